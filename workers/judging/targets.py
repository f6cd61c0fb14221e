"""The target of a candidate, and how far this machine can judge on it."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.spec.op import SpecError, Target
from warpsmith.workers.judging import machine

SOME_GPU = "cuda:sm_90"


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
    devices = LANGUAGES[language].devices
    if named is None and "cpu" in devices:
        return Target.parse("cpu")
    if named is None:
        found = machine.gpus()
        if not found:
            expected = f"cuda:ARCH for a {language} candidate, such as {SOME_GPU}; without a CUDA GPU here"
            raise SpecError("target", None, f"{expected} {LANGUAGES[language].without_device}")
        return Target.parse(found[0].target)
    target = Target.parse(named)
    if target.device not in devices:
        where = f"cuda:ARCH for a {language} candidate, such as {SOME_GPU}"
        raise SpecError("target", named, f"cpu for a {language} candidate" if "cpu" in devices else where)
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
    return f"{lacking}: {LANGUAGES[language].without_device}"
