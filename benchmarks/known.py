"""Keep what a cache has of decisions and traced references among those that ship.

    python -m benchmarks.known CACHE [--modes MODE,...] [--output DIR]

CACHE is the directory above that of WARPSMITH_KERNEL_CACHE, in which `warpsmith.optimize` left `choices/` and
`patterns/`; run it on the machine that measured them, or one of its kind. What is in DIR, by default the package's own,
stays beside it.

What ships is looked up by device, versions and mode, and by the kernel's digest: of a kernel that has changed it says
nothing any longer.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from warpsmith.workers.optimize.compiled import choice, inductor, known
from warpsmith.workers.optimize.compiled.choices import Choices, kind_of


def keep(cache: Path, modes: Sequence[str], device: torch.device, output: Path) -> list[Path]:
    """Add what the cache has to the files in `output`; returns those that were written."""
    output.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    written = []
    for mode in modes:
        name = Choices(device, inductor.patches_of(mode, None)).file.stem
        found = decisions(cache / "choices" / f"{name}.json")
        told = {"device": kind_of(device), **facts, "mode": mode}
        written += _added(output / known.decisions_file(name), told, known.DECISIONS, found)
    references = {
        file.stem: json.loads(file.read_text("utf-8")) for file in sorted((cache / "patterns").glob("*.json"))
    }
    return written + _added(output / known.references_file(), facts, known.REFERENCES, references)


def decisions(file: Path) -> dict[str, Any]:
    """Return a cache's decisions as plain data; none where there is no such file."""
    if not file.is_file():
        return {}
    return {key: asdict(choice.read(each)) for key, each in json.loads(file.read_text("utf-8")).items()}


def _added(file: Path, facts: dict[str, Any], part: str, found: dict[str, Any]) -> list[Path]:
    if not found:
        return []
    before = json.loads(file.read_text("utf-8"))[part] if file.is_file() else {}
    if part == known.REFERENCES:  # a cache has no lead that ships: those of one reference are joined
        found = {key: before.get(key, {}) | each for key, each in found.items()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in sorted((before | found).items()))
    head = json.dumps(facts).removesuffix("}")
    file.write_text(f'{head}, "{part}": {{\n{lines}\n}}}}\n', encoding="utf-8")
    return [file]


def main() -> int:
    """Write the files and name them; returns the exit status, 1 where the cache has nothing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.known", description="What ships of decisions.")
    parser.add_argument("cache", type=Path, metavar="CACHE")
    parser.add_argument("--modes", default="reduce-overhead,max-autotune", help="by commas; default: %(default)s")
    parser.add_argument("--output", type=Path, default=known.DIRECTORY, metavar="DIR")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    written = keep(arguments.cache, arguments.modes.split(","), device, arguments.output)
    for file in written:
        print(f"{file}: {file.stat().st_size} bytes")
    if not written:
        print(f"{arguments.cache}: found neither decisions nor references of this machine's kind", file=sys.stderr)
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
