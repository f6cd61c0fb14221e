"""Names of queues and of the tasks that serve them.

model                     ideate and code steps; its workers hold the model's key and need no GPU
judge.<device>-<arch>     judge and verify steps of one target, such as judge.cuda-sm_90; its workers hold the device
compile.<device>-<arch>   tries at level compile, for a worker of their own beside a processor's judge, or for the
                          workers of that target's judge queue; they may be of another target that such a worker
                          announces (`steps.compiling`)
"""

from __future__ import annotations

MODEL_QUEUE = "model"
JUDGE_PREFIX = "judge."
COMPILE_PREFIX = "compile."

MODEL_TASK = "warpsmith.model_step"
JUDGE_TASK = "warpsmith.judge_step"
PROFILE_TASK = "warpsmith.profile"
"""A requested profile; it goes to a judge's queue and is no step."""
REVERIFY_TASK = "warpsmith.reverify"
"""A stored kernel to be judged anew; it goes to a judge's queue and is no step."""
IMPORT_TASK = "warpsmith.import"
"""An upload to be read; it goes to the model queue, whose workers need no device, and is no step."""
TRY_TASK = "warpsmith.try"
"""A candidate to be tried for a node; it goes to a judge's queue, at level compile to its compile queue; no step."""
DUE_TASK = "warpsmith.reverify_due"
"""The periodic check which kernels are due for re-verification.

It goes to the model queue, whose workers need no device.
"""


def judge_queue(target: str) -> str:
    """Return the queue of the judge and verify steps of `target`, such as "cuda:sm_90"."""
    return JUDGE_PREFIX + _name_target(target)


def compile_queue(target: str) -> str:
    """Return the queue of tries at level compile that the workers of `target` take."""
    return COMPILE_PREFIX + _name_target(target)


def _name_target(target: str) -> str:
    device, _, architecture = target.partition(":")
    if not device or not architecture:
        raise ValueError(f"target: found {target!r}, expected device and architecture, for example cpu:x86_64")
    return f"{device}-{architecture}"


def target_of(queue: str) -> str | None:
    """Return the target that a judge or compile queue serves; None for the model queue."""
    for prefix in (JUDGE_PREFIX, COMPILE_PREFIX):
        if queue.startswith(prefix):
            device, _, architecture = queue.removeprefix(prefix).partition("-")
            return f"{device}:{architecture}"
    return None


def task_of(queue: str) -> str:
    """Return the name of the task that does the steps of `queue`."""
    return JUDGE_TASK if queue.startswith(JUDGE_PREFIX) else MODEL_TASK


def role_of(queue: str) -> str:
    """Return the role of a worker that serves `queue`: model, judge or compile."""
    if queue.startswith(COMPILE_PREFIX):
        return "compile"
    return "judge" if queue.startswith(JUDGE_PREFIX) else "model"
