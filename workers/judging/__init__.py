"""Judging of candidates on this machine, for programs: the API behind `from warpsmith import Judge`.

It needs the base install alone, and its process never imports torch: a judge is a process of its own.

    judge        Judge: keeps one judge process; one candidate, many at once, awaited; timeouts and restarts
    judgement    Judgement: the verdict on a candidate, or why there is none
    turns        whose turn at the judge it is, and since when
    submission   an op, a candidate and a place -> the job that a judge reads
    candidates   a file -> a candidate: its language, and kernels of other formats
    targets      the target of a candidate, and how far this machine can judge on it
    machine      devices and tools of this machine
    pytest_plugin   the fixture `judge_kernel`

`warpsmith judge`, `warpsmith ops check` and the tool `judge_candidate` of `warpsmith mcp` come through here; workers of
a queue, which hold leases and try again, take their jobs from `submission` and keep a `JudgeClient` themselves.
docs/judge-api.md is the page for users.
"""
