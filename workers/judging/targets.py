"""The target of a candidate, and how far this machine can judge on it."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels_db.spec.op import SpecError, Target
from warpsmith.workers.judging import machine

SOME_GPU = "cuda:sm_90"
ON_A_CPU = ("cpp", "python")
WITHOUT_DEVICE = {
    "triton": "the candidate is compiled for the target and checked under Triton's interpreter on the smallest "
    "workloads; nothing is timed",
    "cuda": "the candidate is compiled for the target, and its kernels' resources are reported; it is not run",
    "python": "the file is parsed and its imports are looked up; it is not run",
}
"""Treatment of a candidate for a GPU that this machine lacks, by language."""


@dataclass(frozen=True)
class Place:
    """Where a candidate is judged.

    `shortfall`: why this machine cannot judge there in full, and what it does instead; None where it can.
    """

    target: Target
    shortfall: str | None = None


def choose_place(named: str | None, language: str) -> Place:
    """Choose where a candidate in `language` is judged.

    Raises SpecError for the target, CannotJudge where this machine lacks what the language needs.
    """
    target = choose_target(named, language)
    shortfall = describe_shortfall(target, language)
    machine.require_judge(language)
    return Place(target, shortfall)


def choose_target(named: str | None, language: str) -> Target:
    """Choose the target to judge on: `named`, or the language's default.

    The default is the CPU for C++ and for free Python, which is timed there alone, and the first GPU for the other
    languages. Raises SpecError where the language cannot run on the named target, or none is named and there is no GPU.
    """
    if named is None and language in ON_A_CPU:
        return Target.parse("cpu")
    if named is None:
        found = machine.gpus()
        if not found:
            expected = f"cuda:ARCH for a {language} candidate, such as {SOME_GPU}; without a CUDA GPU here"
            raise SpecError("target", None, f"{expected} {WITHOUT_DEVICE[language]}")
        return Target.parse(found[0].target)
    target = Target.parse(named)
    if language == "cpp" and target.device != "cpu":
        raise SpecError("target", named, "cpu for a cpp candidate")
    if language not in ON_A_CPU and target.device == "cpu":
        raise SpecError("target", named, f"cuda:ARCH for a {language} candidate, such as {SOME_GPU}")
    return target


def list_own_targets() -> list[str]:
    """List the targets of this machine's devices."""
    gpus = [gpu.target for gpu in machine.gpus()] if machine.torch_cuda() is not None else []
    return [str(Target.parse("cpu")), *dict.fromkeys(gpus)]


def describe_shortfall(target: Target, language: str) -> str | None:
    """Say why this machine cannot judge on `target` in full, and the substitute; None if it can."""
    if target.device == "cpu":
        return None
    found = machine.gpus()
    if not found:
        lacking = machine.driver_fault() or "no CUDA GPU here"
    elif str(target) not in [gpu.target for gpu in found]:
        lacking = f"no GPU of {target} here, but {', '.join(dict.fromkeys(gpu.target for gpu in found))}"
    elif machine.torch_cuda() is None:
        lacking = "the torch that is installed is built without CUDA"
    else:
        return None
    return f"{lacking}: {WITHOUT_DEVICE[language]}"
