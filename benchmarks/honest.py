"""Measure how often the judge rejects honest kernels.

    python -m benchmarks.honest [--device cpu|cuda] [--verifications N] [--only TEXT] [--json FILE]

Verifies the honest controls of the red team's catalogue again and again, each time under new secret seeds, hold-out
inputs and families, at their small shapes and with very short timings. Prints for each op, dtype and implementation how
many verifications were made and how many rejected it, and the rate with the most that it may be (95 %). Exits with 1 if
any honest kernel was rejected or quarantined; a verdict that this host could not reach counts as neither.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue

import torch

from benchmarks.redteam_catalogue import Control, controls
from benchmarks.redteam_catalogue.entry import Device
from benchmarks.redteam_catalogue.trial import verify_control
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeDied, JudgeTimeout

VERIFICATIONS = 200
TIME_S = 0.02
"""Seconds of timing of a workload: what is measured is whether results are found right."""

AT_ONCE = {"cpu": 1, "cuda": 4}
"""Judges that verify at once, by device type: times are not what is measured.

Their warm runners share the GPU's memory: six filled 80 GB.
"""

REFUSALS = ("rejected", "quarantined")


@dataclass
class Row:
    """The verifications of one control."""

    op: str
    dtype: str
    implementation: str
    verifications: int = 0
    rejected: int = 0
    undecided: int = 0
    reasons: list[str] = field(default_factory=list)


def measure(clients: Sequence[JudgeClient], entries: Sequence[Control], verifications: int) -> list[Row]:
    """Verify controls in turn, so many times in all, one at a time on each judge."""
    rows = [Row(entry.op.name, entry.dtype, f"{entry.name} [{entry.language}]") for entry in entries]
    free: SimpleQueue[JudgeClient] = SimpleQueue()
    for client in clients:
        free.put(client)

    def verify(number: int) -> tuple[str, str]:
        """Return a verdict, or the name of what kept one from being reached; and the reason."""
        client = free.get()
        try:
            verdict = verify_control(client, entries[number % len(entries)], TIME_S)
        except (JudgeDied, JudgeTimeout) as error:
            return type(error).__name__, str(error)[-300:]
        finally:
            free.put(client)
        return str(verdict["verdict"]), f"at {verdict['gate']}: {verdict['reason']}"

    with ThreadPoolExecutor(len(clients)) as pool:
        for number, (found, reason) in enumerate(pool.map(verify, range(verifications))):
            row = rows[number % len(entries)]
            row.verifications += 1
            said = "" if found == "accepted" else f"    {reason}"
            print(f"{number + 1} of {verifications}: {row.implementation}: {found}{said}", file=sys.stderr, flush=True)
            row.rejected += found in REFUSALS
            row.undecided += found not in (*REFUSALS, "accepted")
            row.reasons += [f"{found} {reason}"] if said else []
    return [row for row in rows if row.verifications]


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.honest", description="False rejections of the judge.")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU where there is one")
    parser.add_argument("--verifications", metavar="N", type=int, default=VERIFICATIONS, help="default: %(default)s")
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="controls whose name, op or dtype contains this"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the table here")
    arguments = parser.parse_args()
    if arguments.verifications < 1:
        parser.error(f"argument --verifications: found {arguments.verifications}, expected a positive number")
    device: Device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    entries = [entry for entry in controls(device) if _is_wanted(entry, arguments.only)]
    if not entries:
        parser.error(f"argument --only: found {arguments.only}, expected a part of a control's name, op or dtype")
    random.shuffle(entries)  # fewer verifications than controls are a sample of them
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="warpsmith-honest-") as cache, contextlib.ExitStack() as stack:
        judges = [JudgeClient(cache=Path(cache) / str(number)) for number in range(AT_ONCE[device])]
        rows = measure([stack.enter_context(judge) for judge in judges], entries, arguments.verifications)
    _print_table(rows, time.monotonic() - start)
    if arguments.json:
        arguments.json.write_text(json.dumps({"device": device, "rows": [asdict(row) for row in rows]}, indent=1))
    return 1 if any(row.rejected for row in rows) else 0


def _is_wanted(entry: Control, only: list[str] | None) -> bool:
    said = f"{entry.id} {entry.op.name} {entry.dtype}".lower()
    return not only or any(text.lower() in said for text in only)


def most_likely(rejected: int, verifications: int) -> float:
    """Return the largest rate at which so few rejections have a chance of 5 % (exact binomial, by bisection)."""
    low, high = rejected / verifications, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        term = chance = (1 - middle) ** verifications
        for number in range(rejected):
            term *= (verifications - number) / (number + 1) * middle / (1 - middle)
            chance += term
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high


def _print_table(rows: list[Row], seconds: float) -> None:
    widths = [max(len(str(getattr(row, name))) for row in rows) for name in ("op", "dtype", "implementation")]
    for row in sorted(rows, key=lambda row: (row.op, row.dtype, row.implementation)):
        names = "  ".join(
            f"{text:{width}}" for text, width in zip((row.op, row.dtype, row.implementation), widths, strict=True)
        )
        print(f"{names}  {row.verifications:5} verifications  {row.rejected:3} rejected  {row.undecided:3} undecided")
    made, rejected = sum(row.verifications for row in rows), sum(row.rejected for row in rows)
    undecided = sum(row.undecided for row in rows)
    dtypes = Counter(row.dtype for row in rows)
    print()
    print(f"{made} verifications of {len(rows)} honest kernels, {len(dtypes)} dtypes, in {seconds:.0f} s")
    rate = f"{rejected / made:.2%}, at most {most_likely(rejected, made):.2%} at 95 %"
    print(f"rejected: {rejected} ({rate}); undecided: {undecided}")


if __name__ == "__main__":
    sys.exit(main())
