"""`python -m warpsmith.workers.optimize`: one request on standard input, one answer out.

{"command": "profile" | "apply" | "ablate", "model": FILE.py, "device": "cpu" | "cuda", ...}
{"result": ...}  or  {"error": {"field", "found", "expected", "message"}}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from warpsmith.workers.exports.project import NotAnExport
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.optimize import applying, contract, packages, profiling
from warpsmith.workers.optimize.physical import NoLimits
from warpsmith.workers.optimize.traced import NoGraph


def main() -> None:
    """Answer one request. Output of the user's code goes to standard error."""
    process_control.die_with_parent(os.getppid())
    request = json.loads(sys.stdin.readline())
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answer: dict[str, Any]
    try:
        answer = {"result": _answer(request)}
    except contract.NoModel as error:
        answer = _error(str(error), error.field, error.found, error.expected)
    except NoGraph as error:
        answer = _error(str(error), "model()", str(error), "a model that torch.compile takes")
    except (NotAnExport, packages.BadPackage) as error:
        answer = _error(
            f"--package: {error}", "--package", str(error), "the directory of an exported package, unchanged"
        )
    except (FileExistsError, NoLimits) as error:
        answer = _error(str(error))
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    device = torch.device(request["device"])
    if device.type == "cuda" and not torch.cuda.is_available():
        raise contract.NoModel("--device", request["device"], "cpu: PyTorch sees no CUDA GPU here")
    output = None if request.get("output") is None else Path(request["output"])
    if request["command"] == "apply" and output is not None:
        made = packages.destination(Path(request["model"]), output)
        if made.exists():
            raise contract.NoModel("--output", made, "a directory without it: nothing is overwritten")
    how = applying.How.of(request.get("mode"), request.get("keep", "faster"))
    projects = packages.opened([Path(each) for each in request.get("packages", [])])
    user = contract.load(Path(request["model"]), device)
    if request["command"] == "profile":
        assert output is not None
        options = {"top": int(request["top"]), "force": bool(request["force"]), "say": _say}
        return profiling.profile(user, device, output, Path(request["cache"]), **options)  # type: ignore[arg-type]
    if request["command"] == "apply":
        return applying.apply(user, projects, output, how, _say)
    return applying.ablate(user, device, projects, how, float(request["time_s"]), _say)


def _error(
    message: str, field: str | None = None, found: str | None = None, expected: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "field": field, "found": found, "expected": expected}}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
