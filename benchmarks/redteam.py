"""Judge the cheats and controls of the red team's catalogue.

    python -m benchmarks.redteam [--device cpu|cuda] [--only TEXT] [--json FILE] [--prove]

Prints each cheat with its line of the field's list, the gate that caught it and the reason; each control with
its verdict; and the two rates. Exits with 1 unless every cheat was caught and every control accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch

from benchmarks.redteam_catalogue import Cheat, Control, cheats, controls
from benchmarks.redteam_catalogue.entry import Device
from benchmarks.redteam_catalogue.trial import Outcome, judge_entry
from benchmarks.redteam_proof.defences import row_of
from benchmarks.redteam_proof.proof import prove
from warpsmith.workers.judge.protocol.client import JudgeClient

IN_FLIGHT = {"cpu": 1, "cuda": 6}
"""Entries judged at once, by device type.

On a GPU others compile while one is timed; on a CPU that would disturb the clock.
"""

PLANTED = "WARPSMITH_PLANTED_API_KEY"
"""A secret in this process's environment, for which cheats look in theirs."""


def main() -> int:
    """Judge the catalogue; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redteam", description="Cheats and honest controls.")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU where there is one")
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="entries whose name and language contain this; may be repeated"
    )
    parser.add_argument("--prove", action="store_true", help="show of each cheat that it works without its defences")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every outcome here")
    arguments = parser.parse_args()
    device: Device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    wanted = [text.lower() for text in arguments.only or [""]]
    os.environ[PLANTED] = "planted"
    if arguments.prove:
        return _prove(device, wanted)
    entries: list[Cheat | Control] = [*cheats(device), *controls(device)]
    entries = [entry for entry in entries if any(text in entry.id.lower() for text in wanted)]
    start, outcomes = time.monotonic(), []
    with (
        tempfile.TemporaryDirectory(prefix="warpsmith-redteam-") as cache,
        JudgeClient(cache=Path(cache)) as client,
        ThreadPoolExecutor(IN_FLIGHT[device]) as pool,
    ):
        for entry, outcome in zip(entries, pool.map(partial(judge_entry, client), entries), strict=True):
            outcomes.append((entry, outcome))
            print(_line(entry, outcome), flush=True)
    seconds = time.monotonic() - start
    _summary(outcomes, seconds)
    if arguments.json:
        document = {
            "device": device,
            "seconds": round(seconds, 1),
            "cheats": [outcome.document() for entry, outcome in outcomes if isinstance(entry, Cheat)],
            "controls": [outcome.document() for entry, outcome in outcomes if isinstance(entry, Control)],
        }
        arguments.json.write_text(json.dumps(document, indent=1))
    return 0 if all(outcome.good for _, outcome in outcomes) else 1


def _prove(device: Device, wanted: list[str]) -> int:
    """Prove the cheats whose id contains one of `wanted`; returns the exit status."""
    chosen = [cheat for cheat in cheats(device) if any(text in cheat.id.lower() for text in wanted)]
    start, void = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="warpsmith-redteam-") as cache:
        for cheat, outcome in prove(chosen, Path(cache), at_once=IN_FLIGHT[device]):
            off = " ".join(sorted(row.defences)) if (row := row_of(cheat)) else "-"
            said = f"works ({outcome.kind or outcome.verdict})" if outcome.good else "VOID"
            reason = " ".join(outcome.reason.split())
            print(f"{off:32}  {cheat.language:6}  {cheat.name:48.48}  {said:24}  {reason:.110}", flush=True)
            void += [] if outcome.good else [f"{cheat.id} without {off}: {outcome.verdict} {outcome.kind}: {reason}"]
    print(f"\nproven: {len(chosen) - len(void)} of {len(chosen)} in {time.monotonic() - start:.0f} s")
    print("".join(f"  {line}\n" for line in void), end="")
    return 1 if void else 0


def _line(entry: Cheat | Control, outcome: Outcome) -> str:
    reason = " ".join(outcome.reason.split())
    if isinstance(entry, Cheat):
        lines = ",".join(map(str, entry.lines)) or "own"
        caught = f"{outcome.gate} ({outcome.kind or outcome.verdict})" if outcome.good else "NOT CAUGHT"
        return f"cheat    {lines:>8}  {entry.language:6}  {entry.name:48.48}  {caught:28}  {reason:.110}"
    said = outcome.verdict if outcome.good else f"{outcome.verdict} at {outcome.gate}".upper()
    return f"control  {entry.dtype:>8}  {entry.language:6}  {entry.name:48.48}  {said:28}  {entry.shapes}: {reason:.80}"


def _summary(outcomes: list[tuple[Cheat | Control, Outcome]], seconds: float) -> None:
    print()
    for what, kind in (("cheats caught", Cheat), ("controls accepted", Control)):
        those = [outcome for entry, outcome in outcomes if isinstance(entry, kind)]
        good = sum(outcome.good for outcome in those)
        print(f"{what}: {good} of {len(those)}" + (f" ({good / len(those):.1%})" if those else ""))
    levels = ", ".join(sorted({outcome.sandbox for _, outcome in outcomes if outcome.sandbox}))
    print(f"{len(outcomes)} entries in {seconds:.0f} s; runners confined at level {levels or 'unknown'}")
    for entry, outcome in outcomes:
        if not outcome.good:
            print(f"  {entry.id}: {outcome.verdict} at {outcome.gate or '-'}: {outcome.reason}")


if __name__ == "__main__":
    sys.exit(main())
