"""Check this package against PyTorch on this machine: `python -m <package>.selfcheck [--json]`.

Every verified workload of at most 2 GiB, and of at most a sixteenth of the free memory, is run on fresh random inputs
and compared with the reference in float64; `_compare` says what is right. Of several kernels each is checked by itself;
those for other machines are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from . import _compare, _control, _draws, _guard, _load, _math, _op, _spec


def draw(workload: dict[str, Any], seed: int, device: str | None = None) -> list[Any]:
    """Fresh random arguments of one workload, on its kernel's device unless another is named."""
    generator = torch.Generator().manual_seed(seed)
    place = device or _load.BY_NAME[workload["kernel"]].device
    arguments: list[Any] = []
    for item in workload["inputs"]:
        if item["shape"] is None:
            arguments.append(item["value"])
            continue
        drawn = _drawn(item["dist"], tuple(item["shape"]), getattr(torch, item["dtype"]), generator)
        arguments.append(_compare.laid_out(drawn, item["strides"] or drawn.stride(), place))
    return arguments


def _drawn(
    dist: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Values of one input; those of the kind `code` come from the op's own text, as its reference beside it does."""
    if dist["kind"] != "code":
        return _draws.draw(dist, shape, dtype, generator)
    module: dict[str, Any] = {}
    exec(dist["source"], module)  # noqa: S102 - the package runs the op's reference, which the same author wrote
    made: torch.Tensor = module["make"](list(shape), dtype, generator)
    return made


def workloads() -> list[dict[str, Any]]:
    """The verified workloads that can be compared in this machine's memory, each with its kernel's name."""
    found = json.loads((Path(__file__).parent / "workloads.json").read_text())
    return [workload for workload in found if workload["min_bytes"] <= _compare.most_bytes()]


def checked_here() -> list[dict[str, Any]]:
    """Those of `workloads` whose kernels are for this machine; all where none is, so that each says why."""
    found = workloads()
    return [each for each in found if _guard.elsewhere(_load.BY_NAME[each["kernel"]]) is None] or found


def check(workload: dict[str, Any], seed: int) -> dict[str, Any]:
    """Compare the workload's kernel, which alone is on, with PyTorch and the float64 reference."""
    with alone(workload["kernel"]), _math.setting():
        arguments = draw(workload, seed)
        foretold, before = _op.explain(*arguments), _op.status()
        expected = _compare.expected(arguments)
        mine = _compare.clones(arguments)
        compared = _compare.compare(_compare.written(_op.call(*mine), mine), expected)
        after = _op.status()
    served = after["served"]["kernel"] > before["served"]["kernel"]  # not what was expected: a launch may be refused
    reasons = [why for why, count in after["fallbacks"].items() if count > before["fallbacks"].get(why, 0)]
    return {
        "workload": workload["id"],
        "kernel": workload["kernel"],
        "served_by": foretold if served else f"PyTorch: {', '.join(reasons)}",
        "error": compared.error,
        "pytorch_error": compared.pytorch_error,
        "limit": compared.limit,
        "agrees": compared.agrees and served,
    }


@contextmanager
def alone(kernel: str) -> Iterator[None]:
    """No other kernel of this package serves inside the block, and no watch puts its results right."""
    others = [name for name in _control.NAMES if name != kernel]
    with _control.unwatched(), _control.disabled(*others) if others else nullcontext():
        yield


def main() -> int:
    """Print a line a workload; exit 0 when the kernels served and agreed on all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seed", type=int, default=torch.seed() % 2**31, help="seed of the inputs")
    options = parser.parse_args()
    rows = [check(workload, options.seed) for workload in checked_here()]
    agrees = bool(rows) and all(row["agrees"] for row in rows)
    if options.json:
        print(json.dumps({"op": _spec.NAME, "seed": options.seed, "agrees": agrees, "workloads": rows}))
    else:
        for row in rows:
            which = f"{row['workload']} by {row['kernel']}" if len(_load.KERNELS) > 1 else row["workload"]
            word = "agrees" if row["agrees"] else "DIFFERS"
            print(
                f"{_spec.NAME} {which}: {word} with PyTorch "
                f"(error {row['error']:.2e}, PyTorch's own {row['pytorch_error']:.2e}, limit {row['limit']:.2e}); "
                f"{row['served_by']}"
            )
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
