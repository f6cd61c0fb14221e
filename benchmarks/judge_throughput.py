"""Measures the candidates per minute that the judge screens, beside the usual harness.

    python -m benchmarks.judge_throughput [--peer N] [--peer-triton N] [--no-verify] [--json FILE]
    python -m benchmarks.judge_throughput --check         no GPU needed: gate and compiler on all forty

On one GPU, the same forty candidates (`benchmarks.throughput_candidates`; ten are broken) go (a) through one
judge process at screening level, all in flight at once, after a baseline job for each of the four ops, as in a
search; and (b) through `benchmarks/peer.py`, a fresh process for each, one at a time. The broken ones that
screening accepted then go through verification, as a search's finalists do. `--peer N` limits the CUDA
candidates of (b), whose builds take most of its time; the others are extrapolated, and the report says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.throughput_candidates import OPS, Candidate, SmallOp, candidates, declaration
from warpsmith.kernels_db.job.documents import Job, Level, Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeError

TIMEOUT_S = 600.0
PEER_TIMEOUT_S = 300.0
ALL_BASELINES = "eager,compile,max_autotune"


def job_of(op: SmallOp, candidate: Candidate | None, level: Level, target: str, baselines: list[str]) -> Job:
    """Return the job of a candidate, or of an op's baselines."""
    workloads = op.workloads() if level != "screen" else op.workloads()[:1]
    source = None if candidate is None else candidate.source
    language = "cuda" if candidate is None else candidate.language
    return jobs.job(
        op.reference, workloads, source, name=op.name, level=level, language=language, target=target,
        baselines=baselines, digest=op.name, time_s=1.0,
    )  # fmt: skip


def screen(client: JudgeClient, todo: list[Job]) -> tuple[list[Verdict | None], float]:
    """Send jobs all at once; return their verdicts and the seconds it took.

    A verdict is None where the judge did not answer.
    """

    def one(job: Job) -> Verdict | None:
        try:
            return client.judge(job, TIMEOUT_S)
        except JudgeError as error:
            print(f"  {job['op']['name']}: {error}", file=sys.stderr)
            return None

    begun = time.monotonic()
    with ThreadPoolExecutor(len(todo)) as pool:
        verdicts = list(pool.map(one, todo))
    return verdicts, time.monotonic() - begun


def warpsmith(all_of_them: list[Candidate], target: str, baselines: list[str], verify: bool) -> dict[str, Any]:
    """Judge the candidates with Warpsmith and return the figures."""
    with (
        tempfile.TemporaryDirectory(prefix="throughput-") as cache,
        JudgeClient(cache=Path(cache), log=lambda line: print(f"  judge: {line}", file=sys.stderr)) as client,
    ):
        client.start()
        first, baseline_s = screen(client, [job_of(op, None, "baseline", target, baselines) for op in OPS.values()])
        for verdict in first:
            if verdict is None or verdict["verdict"] != "accepted":
                print(f"  a baseline was not measured: {verdict and verdict['reason']}", file=sys.stderr)
        todo = [job_of(candidate.op, candidate, "screen", target, baselines) for candidate in all_of_them]
        verdicts, screen_s = screen(client, todo)
        rows = [_row(candidate, verdict) for candidate, verdict in zip(all_of_them, verdicts, strict=True)]
        if verify:
            passed = [n for n, row in enumerate(rows) if row["broken"] and row["verdict"] == "accepted"]
            again = [job_of(all_of_them[n].op, all_of_them[n], "verify", target, baselines) for n in passed]
            for n, verdict in zip(passed, screen(client, again)[0] if again else [], strict=True):
                rows[n]["verified"] = verdict["verdict"] if verdict else "no answer"
                rows[n]["verify_reason"] = verdict["reason"] if verdict else None
    exclusive = [row["exclusive_s"] for row in rows if row["exclusive_s"] is not None]
    return {
        "rows": rows,
        "baseline_s": baseline_s,
        "wall_s": screen_s,
        "per_minute": 60 * len(rows) / screen_s,
        "exclusive_s": statistics.median(exclusive) if exclusive else None,
        "exclusive_of": len(exclusive),
    }


def _row(candidate: Candidate, verdict: Verdict | None) -> dict[str, Any]:
    """Return the part of a verdict that is kept."""
    row: dict[str, Any] = {"candidate": candidate.name, "broken": candidate.broken, "exclusive_s": None}
    if verdict is None:
        return row | {"verdict": "no answer", "gate": None, "reason": None}
    times = verdict["workloads"][0]["time_us"] if verdict["workloads"] else {}
    kept = {name: verdict[name] for name in ("verdict", "gate", "reason", "score", "seconds")}
    return row | kept | {"time_us": times.get("candidate"), "exclusive_s": verdict["seconds"].get("exclusive")}


def usual(all_of_them: list[Candidate], cuda: int, triton: int) -> dict[str, Any]:
    """Run the candidates in the usual harness and return the figures.

    With a limit, the broken ones of each language come first.
    """
    rows, run = [], {"cuda": cuda, "triton": triton}
    for candidate in sorted(all_of_them, key=lambda one: one.broken is None):
        if run[candidate.language] <= 0:
            continue
        run[candidate.language] -= 1
        begun = time.monotonic()
        answer = _peer(candidate)
        rows.append({"candidate": candidate.name, "broken": candidate.broken, "language": candidate.language} | answer)
        rows[-1]["wall_s"] = time.monotonic() - begun
        print(f"  {candidate.name}: {rows[-1]['wall_s']:.1f} s {answer['reason']}", file=sys.stderr)
    walls = {
        language: [row["wall_s"] for row in rows if row["language"] == language] for language in ("cuda", "triton")
    }
    wanted = {language: sum(one.language == language for one in all_of_them) for language in walls}
    known = all(walls.values())
    whole = sum(statistics.mean(walls[name]) * count for name, count in wanted.items()) if known else None
    return {
        "rows": rows,
        "run": {name: len(seconds) for name, seconds in walls.items()},
        "of": wanted,
        "extrapolated": any(len(walls[name]) < count for name, count in wanted.items()),
        "mean_s": {name: statistics.mean(seconds) for name, seconds in walls.items() if seconds},
        "wall_s": whole,
        "per_minute": 60 * len(all_of_them) / whole if whole else None,
    }


def _peer(candidate: Candidate) -> dict[str, Any]:
    """Run one candidate in a fresh process and an empty directory."""
    op = candidate.op
    request = {
        "language": candidate.language,
        "source": candidate.peer if candidate.language == "cuda" else candidate.source,
        "declaration": declaration(op),
        "reference": op.reference,
        "dtype": op.dtype,
        "inputs": [op.shape(name, op.rows, op.columns) for name in op.inputs],
    }
    failed: dict[str, Any] = {"accepted": False, "reason": "", "time_us": None, "build_s": None}
    with tempfile.TemporaryDirectory(prefix="peer-") as place:
        (Path(place) / "request.json").write_text(json.dumps(request))
        peer = Path(__file__).with_name("peer.py").resolve()
        command = [sys.executable, "-P", str(peer), "request.json", "answer.json"]
        # ninja is beside the interpreter; every process compiles for itself.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        environment = {**os.environ, "PATH": path, "TRITON_CACHE_DIR": str(Path(place) / "triton")}
        try:
            ended = subprocess.run(
                command,
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PEER_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return failed | {"reason": f"no answer within {PEER_TIMEOUT_S:g} s"}
        answer = Path(place) / "answer.json"
        if not answer.is_file():
            last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
            return failed | {"reason": f"ended with status {ended.returncode}: {last[:200]}"}
        document: dict[str, Any] = json.loads(answer.read_text())
        return document


def about_warpsmith(found: dict[str, Any]) -> list[str]:
    """Return the results of `warpsmith` as lines."""
    good = [row for row in found["rows"] if not row["broken"]]
    broken = [row for row in found["rows"] if row["broken"]]
    passed = [row for row in broken if row["verdict"] == "accepted"]
    refused = [row for row in good if row["verdict"] != "accepted"]
    held = "no candidate was timed" if found["exclusive_s"] is None else f"{found['exclusive_s']:.3f} s"
    return [
        f"Warpsmith, screening: {found['per_minute']:.1f} candidates a minute",
        f"  {len(found['rows'])} candidates in {found['wall_s']:.1f} s, all in flight at once",
        f"  baselines of {len(OPS)} ops before, once for an op and device: {found['baseline_s']:.1f} s",
        f"  device held for a candidate, median of {found['exclusive_of']}: {held}",
        f"  right candidates accepted: {len(good) - len(refused)} of {len(good)}",
        *(f"    {row['candidate']}: {row['verdict']} at {row['gate']}: {row['reason']}" for row in refused),
        f"  broken candidates accepted by screening: {len(passed)} of {len(broken)}",
        *(
            f"    {row['candidate']}: verification: {row.get('verified', 'not asked')} ({row.get('verify_reason')})"
            for row in passed
        ),
        "  broken candidates, and what ended them:",
        *(f"    {row['candidate']}: {row['gate']}: {row['reason']}" for row in broken if row not in passed),
    ]


def about_usual(found: dict[str, Any]) -> list[str]:
    """Return the results of `usual` as lines."""
    good = [row for row in found["rows"] if not row["broken"]]
    broken = [row for row in found["rows"] if row["broken"]]
    run, of = found["run"], found["of"]
    said = "".join(
        f"; EXTRAPOLATED from {run[name]} of {of[name]} {name} candidates" for name in of if run[name] < of[name]
    )
    rate = "unknown" if found["per_minute"] is None else f"{found['per_minute']:.2f}"
    wall = "an unknown time" if found["wall_s"] is None else f"{found['wall_s']:.0f} s"
    means = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found["mean_s"].items())
    return [
        f"The usual harness: {rate} candidates a minute",
        f"  {sum(of.values())} candidates in {wall}, one at a time{said}",
        f"  a candidate, mean: {means}",
        f"  right candidates accepted: {sum(row['accepted'] for row in good)} of {len(good)} that were run",
        *(f"    {row['candidate']}: {row['reason']}" for row in good if not row["accepted"]),
        f"  broken candidates accepted: {sum(row['accepted'] for row in broken)} of {len(broken)} that were run",
        *(f"    {row['candidate']}" for row in broken if row["accepted"]),
    ]


def check(all_of_them: list[Candidate]) -> list[str]:
    """Return the errors that gate and compiler find in candidates, for sm_90; needs no GPU."""
    from warpsmith.workers.gate import check as gate  # noqa: PLC0415 - only needed here
    from warpsmith.workers.judge import languages  # noqa: PLC0415

    said = []
    with tempfile.TemporaryDirectory(prefix="throughput-") as cache:
        for one in all_of_them:
            problems = gate(one.source, one.language, (), [*one.op.inputs, "out"], ())
            if problems:
                said.append(f"{one.name}: gate: line {problems[0].line}: {problems[0].message}")
                continue
            try:
                languages.prepare(
                    one.source,
                    one.language,
                    target_arch="sm_90",
                    cache_dir=Path(cache),
                    limits=languages.CompileLimits(),
                    workloads=one.op.workloads()[:1],
                )
            except languages.CompileError as error:
                said.append(f"{one.name}: compile: {error.message}")
    return said


def gpu_target() -> str | None:
    """Return the target of the first GPU."""
    import torch  # noqa: PLC0415 - slow to import

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"cuda:sm_{major}{minor}"


def main() -> int:
    """Run the requested measurements; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge_throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--peer", type=int, default=20, metavar="N", help="CUDA candidates of the usual harness")
    parser.add_argument("--peer-triton", type=int, default=20, metavar="N", help="its Triton candidates")
    parser.add_argument("--no-warpsmith", action="store_true", help="run the usual harness alone")
    parser.add_argument("--no-verify", action="store_true", help="do not verify what screening accepted of the broken")
    parser.add_argument("--baselines", default=ALL_BASELINES, help=f"default {ALL_BASELINES}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument("--check", action="store_true", help="gate and compiler on all candidates, without a GPU")
    chosen = parser.parse_args()
    forty = candidates()
    if chosen.check:
        print("\n".join(check(forty)))
        return 0
    target = gpu_target()
    if target is None:
        print("this benchmark needs a CUDA GPU, and torch finds none; --check works without one", file=sys.stderr)
        return 2
    baselines = chosen.baselines.split(",")
    ours = None if chosen.no_warpsmith else warpsmith(forty, target, baselines, not chosen.no_verify)
    if ours is not None:
        print("\n".join(about_warpsmith(ours)), flush=True)
    theirs = usual(forty, chosen.peer, chosen.peer_triton) if chosen.peer or chosen.peer_triton else None
    if chosen.json:
        chosen.json.write_text(json.dumps({"target": target, "warpsmith": ours, "usual": theirs}, indent=1))
    if theirs is not None:
        print("\n".join(about_usual(theirs)))
        if ours is not None and theirs["per_minute"]:
            print(f"Warpsmith screens {ours['per_minute'] / theirs['per_minute']:.1f} times as many a minute")
    return 0


if __name__ == "__main__":
    sys.exit(main())
