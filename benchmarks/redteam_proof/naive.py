"""A naive evaluator, as those that the field's cheats were written against: one process and one set of values for all.

`python -m benchmarks.redteam_proof.naive REQUEST` times the reference first, so that its freed results lie in the
allocator, for the output or, where that was taken `early`, for the candidate's scratch; calls the candidate once;
computes what is expected afterwards, from the inputs as they are by then; compares with `allclose`; times the candidate
on the same inputs, with a clock in its own process; and prints its verdict.
`evaluate` believes a file with a verdict, else the first line that looks like one, else the exit status.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.redteam_catalogue.entry import Cheat
from benchmarks.redteam_proof.undefended import REPOSITORY
from warpsmith import IMPORT_ROOT
from warpsmith.workers.judge.machine import process_control

CALLS = 40
TOLERANCE = 1e-2
LIMIT_S = 40.0
ENDED = "ended"
"""The evaluator was killed, fell or never came to an end."""


def evaluate(cheat: Cheat, cache: Path) -> tuple[str, str]:
    """Return the verdict of the naive evaluator on a cheat, `accepted`, `rejected` or ENDED, and what it said.

    On a GPU one that is rejected is tried once more, with its output taken early.
    """
    for early in (False, True) if cheat.device == "cuda" else (False,):
        with tempfile.TemporaryDirectory(prefix="redteam-naive-") as name:
            verdict, said = _evaluated(cheat, Path(name), cache, early)
        if verdict != "rejected":
            break
    return verdict, said


def _evaluated(cheat: Cheat, place: Path, cache: Path, early: bool) -> tuple[str, str]:
    (place / "candidate.py").write_text(cheat.source)
    (place / "before.py").write_text(cheat.before or "def run(*_): pass\n")
    (place / "reference.py").write_text(cheat.op.reference)
    request = {"workload": cheat.op.workloads[0], "device": cheat.device, "call_s": cheat.call_s, "early": early}
    (place / "request.json").write_text(json.dumps(request))
    paths = os.pathsep.join([str(IMPORT_ROOT), str(REPOSITORY)])
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(place)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": paths, "WARPSMITH_KERNEL_CACHE": str(cache)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said = process.communicate(timeout=LIMIT_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        return ENDED, f"not done within {LIMIT_S:g} s"
    finally:
        process_control.kill_session(process.pid)
        process.wait()
    written = place / "result.json"
    for line in [*([written.read_text()] if written.is_file() else []), *said.splitlines()]:
        if (found := _verdict(line)) is not None:
            return found, said[-300:]
    if process.returncode == 0:
        return "accepted", "by its exit status"
    return ENDED, f"exit status {process.returncode}: {said[-300:]}"


def _verdict(line: str) -> str | None:
    try:
        return str(json.loads(line)["verdict"])
    except (ValueError, KeyError, TypeError):
        return None


def main() -> None:
    """Evaluate the candidate in the directory that is named."""
    import torch  # noqa: PLC0415 - `evaluate` needs none

    from warpsmith.workers.judge.runner.loading import import_file  # noqa: PLC0415
    from warpsmith.workers.judge.values.inputs import InputSource  # noqa: PLC0415

    place = Path(sys.argv[1])
    request: dict[str, Any] = json.loads((place / "request.json").read_text())
    for what, most in ((resource.RLIMIT_FSIZE, 64 << 20), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, 120)):
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    device, workload = torch.device(request["device"]), request["workload"]
    values = InputSource(workload["inputs"], 0, _no_code, device).draw()
    torch.manual_seed(0)
    normal = [item["dist"] == {"kind": "normal"} for item in workload["inputs"]]
    values = [v if v is None or not own else torch.randn_like(v) for v, own in zip(values, normal, strict=True)]
    arguments = [item["value"] if v is None else v for item, v in zip(workload["inputs"], values, strict=True)]
    reference = import_file(str(place / "reference.py"))
    shown = reference.run(*arguments)  # kept: a candidate may look for it
    signal.alarm(int(request["call_s"] * 2) + 5)
    import_file(str(place / "before.py")).run(*arguments, torch.empty_like(shown))
    candidate = import_file(str(place / "candidate.py"))
    spec = workload["outputs"][0]
    early = _output(spec, device) if request["early"] else None
    baseline = _time(reference.run, arguments)
    if device.type == "cpu":
        _hand_back(shown.clone())
    out = _output(spec, device) if early is None else early
    returned = candidate.run(*arguments, out)
    found = out if returned is None else returned
    right = torch.allclose(found, reference.run(*arguments), atol=TOLERANCE, rtol=TOLERANCE, equal_nan=True)
    spent = _time(candidate.run, [*arguments, out])
    verdict = "accepted" if right else "rejected"
    sys.stdout.write(json.dumps({"verdict": verdict, "speedup": baseline / max(spent, 1e-9)}) + "\n")


def _output(spec: Any, device: Any) -> Any:
    import torch  # noqa: PLC0415

    return torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)


def _hand_back(left: Any) -> None:
    """Have torch.empty hand out what an earlier result left, as CUDA's caching allocator does by itself."""
    import torch  # noqa: PLC0415

    empty = torch.empty

    def again(*size: Any, **options: Any) -> Any:
        made = empty(*size, **options)
        return made.copy_(left) if made.shape == left.shape and made.dtype == left.dtype else made

    torch.empty = again


def _no_code(*_: object) -> Any:
    raise AssertionError("no op of the catalogue draws its inputs by code")


def _time(run: Any, arguments: list[Any]) -> float:
    """The mean seconds of a call, on the clock that the candidate has, too."""
    import time  # noqa: PLC0415 - as patched by then

    import torch  # noqa: PLC0415

    start = time.perf_counter()
    for _ in range(CALLS):
        run(*arguments)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / CALLS


if __name__ == "__main__":
    main()
