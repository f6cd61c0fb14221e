"""Check this package against PyTorch on this machine: `python -m <package>.selfcheck [--json]`.

Every verified workload of at most 2 GiB is run on fresh random inputs and compared with the reference in float64. The
limit is the larger of twice PyTorch's own relative error and the output dtype's unit roundoff, as in the verdict that
admitted the kernel, and three times as wide: a single seed says less about PyTorch's error than the judge's several.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from . import _draws, _op, _reference, _spec

WIDER = 3.0
LARGEST_BYTES = 2 << 30


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _results(run: Any, arguments: list[Any]) -> list[torch.Tensor]:
    """Outputs and mutated inputs of one call, on copies of the arguments."""
    copies = [_copy(a) for a in arguments]
    outputs = run(*copies)
    found = [] if outputs is None else list(_as_tuple(outputs))
    return found + [copies[i] for i in _spec.MUTATED]


def _copy(value: Any) -> Any:
    """A copy with the same strides (`clone` would densify some)."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _relative_error(found: torch.Tensor, exact: torch.Tensor) -> float:
    difference = (found.double() - exact).norm()
    return float(difference / exact.norm()) if exact.norm() > 0 else float(difference)


def _arguments(inputs: list[dict[str, Any]], seed: int) -> list[Any]:
    """Fresh random arguments of one workload, on the kernel's device."""
    generator = torch.Generator().manual_seed(seed)
    arguments: list[Any] = []
    for item in inputs:
        if item["shape"] is None:
            arguments.append(item["value"])
            continue
        drawn = _draws.draw(item["dist"], tuple(item["shape"]), getattr(torch, item["dtype"]), generator)
        if item["strides"] is not None:
            drawn = torch.empty_strided(item["shape"], item["strides"], dtype=drawn.dtype).copy_(drawn)
        arguments.append(drawn.to(_spec.DEVICE))
    return arguments


def _norm_floor(dtype: torch.dtype) -> float:
    """The relative error that the judge takes for right however small PyTorch's own is."""
    return (8 if dtype.itemsize >= 4 else 1) * torch.finfo(dtype).eps / 2


def check(workload: dict[str, Any], seed: int) -> dict[str, Any]:
    """Compare kernel, PyTorch and the float64 reference on one workload."""
    arguments = _arguments(workload["inputs"], seed)
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    served = _op.explain(*arguments)
    exact = _results(_reference.run, wide)
    eager = _results(_reference.run, arguments)
    found = _results(_op.call, arguments)
    error = max(_relative_error(f, e) for f, e in zip(found, exact, strict=True))
    own = max(_relative_error(f, e) for f, e in zip(eager, exact, strict=True))
    limit = WIDER * max(4 * own, *(_norm_floor(f.dtype) if f.is_floating_point() else 0.0 for f in found))
    return {
        "workload": workload["id"],
        "served_by": served,
        "error": error,
        "pytorch_error": own,
        "limit": limit,
        "agrees": error <= limit and served.startswith("kernel"),
    }


def main() -> int:
    """Print a line a workload; exit 0 when the kernel served and agreed on all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seed", type=int, default=torch.seed() % 2**31, help="seed of the inputs")
    options = parser.parse_args()
    workloads = json.loads((Path(__file__).parent / "workloads.json").read_text())
    rows = [check(w, options.seed) for w in workloads if w["min_bytes"] <= LARGEST_BYTES]
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
