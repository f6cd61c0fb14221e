"""The usual harness for one candidate, in a process of its own.

    python peer.py REQUEST ANSWER

Written as the field does it (KernelBench's eval and its like): CUDA through `torch.utils.cpp_extension.load_inline`,
Triton by importing the file; five trials of `torch.allclose(atol=1e-2, rtol=1e-2)` at one shape, with seeds that are
known; three warm-up calls and a hundred calls on the same arguments, each between two CUDA events. The candidate runs
in the process that checks and times it. Nothing of Warpsmith is used here.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TRIALS, WARM_UP, TIMED = 5, 3, 100
TOLERANCE = 1e-2

Run = Callable[..., Any]


def module_of(name: str, source: str) -> Any:
    """Import a module from a file here, because Triton reads its kernels' text."""
    path = Path(f"{name}.py").resolve()
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def build(request: dict[str, Any]) -> Run:
    """Return the candidate as a function that returns a new tensor."""
    if request["language"] == "cuda":
        from torch.utils.cpp_extension import load_inline  # noqa: PLC0415 - slow, and only CUDA candidates need it

        Path("build").mkdir()
        built = load_inline(  # type: ignore[no-untyped-call]  # torch's
            name="candidate",
            cpp_sources=[request["declaration"]],
            cuda_sources=[request["source"]],
            functions=["forward"],
            build_directory="build",
        )
        return built.forward  # type: ignore[no-any-return]  # a compiled function
    run = module_of("candidate", request["source"]).run

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(inputs[0])
        run(*inputs, out)
        return out

    return forward


def draw(request: dict[str, Any], seed: int) -> list[torch.Tensor]:
    """Draw the inputs of a trial."""
    torch.manual_seed(seed)
    dtype = getattr(torch, request["dtype"])
    return [torch.randn(shape, dtype=dtype, device="cuda") for shape in request["inputs"]]


def correct(request: dict[str, Any], reference: Run, forward: Run) -> bool:
    """Check whether every trial is close."""
    for trial in range(TRIALS):
        inputs = draw(request, 42 + trial)
        expected = reference(*inputs)
        torch.cuda.synchronize()
        found = forward(*inputs)
        torch.cuda.synchronize()
        if expected.shape != found.shape or not torch.allclose(expected, found, atol=TOLERANCE, rtol=TOLERANCE):
            return False
    return True


def median_us(request: dict[str, Any], forward: Run) -> float:
    """Return the median of the timed calls, microseconds."""
    inputs = draw(request, 42)
    for _ in range(WARM_UP):
        forward(*inputs)
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(TIMED):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        forward(*inputs)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main() -> None:
    """Write the answer: {"accepted", "reason", "time_us", "build_s"}."""
    request = json.loads(Path(sys.argv[1]).read_text())
    answer: dict[str, Any] = {"accepted": False, "reason": "", "time_us": None, "build_s": None}
    begun = time.perf_counter()
    try:
        forward = build(request)
        answer["build_s"] = time.perf_counter() - begun
        reference = module_of("reference", request["reference"]).run
        if correct(request, reference, forward):
            answer |= {"accepted": True, "time_us": median_us(request, forward)}
        else:
            answer["reason"] = "outputs differ"
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its own failure
        answer["reason"] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    Path(sys.argv[2]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
