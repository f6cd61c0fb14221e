"""Which kernels that ship can take places in models, by their ops alone: no model is looked at.

    python -m benchmarks.placeable [--target cuda:sm_90] [--json FILE]

An op has places only where its reference can be traced without values, and where values can be drawn for its inputs to
compare its kernel on. For each kernel that has none this says why. No GPU is needed: references are traced on the CPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from warpsmith.workers.optimize import shipped
from warpsmith.workers.optimize.compiled.served import SOME, Served

DRAWN = ("float", "bfloat", "bool")
"""Beginnings of the dtypes of which any value makes sense."""


def reason(served: Served) -> str:
    """Return why an op can have no place, or none but behind a topk of the model; empty where it can anywhere."""
    why = served.untraceable(SOME[:1], torch.device("cpu"))
    if why:
        return f"its reference cannot be traced: {why}"
    kernel = served.kernel
    unknown = {
        position: f"{name} ({sample['dtype']})"
        for position, (name, sample) in enumerate(zip(served.names, served.samples, strict=True))
        if not sample["dtype"].startswith(DRAWN)
        and kernel.integers(position, single=served.rank(position) == 0) is None
        and kernel.groups(position) is None
    }
    where = " but behind a topk of the model" if all(map(kernel.indexed, unknown)) else ""
    return f"which integers make sense is not known of {', '.join(unknown.values())}{where}" if unknown else ""


def main() -> int:
    """Print a line for each kernel that can have no place, and how many can."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placeable", description="Which kernels fit models.")
    parser.add_argument("--target", default="cuda:sm_90", help="whose kernels; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the reasons by kernel, empty where it has places")
    arguments = parser.parse_args()
    reasons = {served.name: reason(served) for served in shipped.shipped_of(arguments.target)}
    for name, why in reasons.items():
        if why:
            print(f"{name}: {why}")
    free = list(reasons.values()).count("")
    print(f"{free} of {len(reasons)} kernels for {arguments.target} can take places anywhere")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(reasons, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
