"""The judge: referee and runners in separate processes.

`python -m warpsmith.workers.judge` is its only entry point.

It needs the standard library, NumPy, torch, psutil and the language's compiler only. It reads one `Job` a line and
writes one `Verdict` a line, in the order in which they are ready (`kernels_db.job.documents`); diagnostics go to
standard error. No other messages are exchanged:

    {"id", "error": {"field", "found", "expected"}}    the line was no job
    {"id", "fault": traceback}                         a fault of the judge itself; the process ends with status 75
    {"cancel": id} -> {"id", "cancel": "dropped" | "judging" | "unknown"}     only a waiting job is dropped

It ends at the end of input, when every job has its answer; with status 75 where the others should go to a fresh judge.
`protocol.client.JudgeClient` keeps such a process, from any thread; `judge(job, timeout_s)` raises JudgeDied,
JudgeTimeout or JobRefused. A job that a forced end took along goes to the next judge, four in all.

Processes: client -> referee (`__main__`) -> a fork server for each device, with torch loaded and no secret -> runners,
one for each contender, fresh and confined before they read a source; beside them the compile server. Buffers are memory
files on a CPU and CUDA IPC allocations on a GPU, made by the referee. Seeds are drawn from the system for each job and
never enter a runner. A runner or fork server that is killed from outside costs one repetition of the job. Jobs for a
GPU are prepared while another is judged, jobs for a CPU just before. docs/judge.md has the protocol.
"""
