"""Check this package against PyTorch on this machine: `python -m <package>.selfcheck [--json]`.

Every verified workload of at most 2 GiB is run on fresh random inputs and compared with the reference in float64;
`_compare` says what is right.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from . import _compare, _draws, _op, _spec


def draw(inputs: list[dict[str, Any]], seed: int, device: str = _spec.DEVICE) -> list[Any]:
    """Fresh random arguments of one workload."""
    generator = torch.Generator().manual_seed(seed)
    arguments: list[Any] = []
    for item in inputs:
        if item["shape"] is None:
            arguments.append(item["value"])
            continue
        drawn = _draws.draw(item["dist"], tuple(item["shape"]), getattr(torch, item["dtype"]), generator)
        arguments.append(_compare.laid_out(drawn, item["strides"] or drawn.stride(), device))
    return arguments


def workloads() -> list[dict[str, Any]]:
    """The verified workloads that can be compared in this machine's memory."""
    found = json.loads((Path(__file__).parent / "workloads.json").read_text())
    return [workload for workload in found if workload["min_bytes"] <= _compare.LARGEST_BYTES]


def check(workload: dict[str, Any], seed: int) -> dict[str, Any]:
    """Compare kernel, PyTorch and the float64 reference on one workload."""
    arguments = draw(workload["inputs"], seed)
    expected, before = _op.explain(*arguments), _op.status()
    exact = _compare.reference(_compare.widened(arguments))
    eager = _compare.reference(_compare.clones(arguments))
    mine = _compare.clones(arguments)
    compared = _compare.compare(_compare.written(_op.call(*mine), mine), eager, exact)
    after = _op.status()
    served = after["served"]["kernel"] > before["served"]["kernel"]  # not what was expected: a launch may be refused
    reasons = [why for why, count in after["fallbacks"].items() if count > before["fallbacks"].get(why, 0)]
    return {
        "workload": workload["id"],
        "served_by": expected if served else f"PyTorch: {', '.join(reasons)}",
        "error": compared.error,
        "pytorch_error": compared.pytorch_error,
        "limit": compared.limit,
        "agrees": compared.agrees and served,
    }


def main() -> int:
    """Print a line a workload; exit 0 when the kernel served and agreed on all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seed", type=int, default=torch.seed() % 2**31, help="seed of the inputs")
    options = parser.parse_args()
    rows = [check(workload, options.seed) for workload in workloads()]
    agrees = bool(rows) and all(row["agrees"] for row in rows)
    if options.json:
        print(json.dumps({"op": _spec.NAME, "seed": options.seed, "agrees": agrees, "workloads": rows}))
    else:
        for row in rows:
            word = "agrees" if row["agrees"] else "DIFFERS"
            print(
                f"{_spec.NAME} {row['workload']}: {word} with PyTorch "
                f"(error {row['error']:.2e}, PyTorch's own {row['pytorch_error']:.2e}, limit {row['limit']:.2e}); "
                f"{row['served_by']}"
            )
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
