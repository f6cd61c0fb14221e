"""Compare ways to search: the same ops, searched by several versions or settings of Warpsmith, each an arm.

    python -m benchmarks.search read DATA ARM SEARCH... [--warpsmith PATH] [--note TEXT]
    python -m benchmarks.search judge DATA [--ops OP...] [--time-s S] [--output FILE]
    python -m benchmarks.search screen DATA POOLS [--ops OP...] [--time-s S] [--output FILE]
    python -m benchmarks.search join DATA FILE...
    python -m benchmarks.search [table [DATA] [--markdown]]

`read` takes searches that have ended into DATA, with the code of each one's winner, by the documents that PATH, the
command line of that arm's version, prints with `--json`. `judge` judges the winners in full on this machine, all arms
of an op in turns by one judge, so that arms are compared by one clock. `screen` does so with every candidate that
POOLS/ARM/OP.jsonl has, at level screen, and then judges each arm's best in full, or where that one is rejected the next
best; it writes each result at once, so it may be ended at any time. `join` brings what was judged in parts together.
`table` prints the figures, of `benchmarks/results/search.json` where no DATA is named.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.policies.statistics import geomean, ratio_interval
from benchmarks.rescreen import Recorded, Row, as_screened, best_of, recorded, screen
from benchmarks.showcase import ROOT, ask, columns, gpu_target, judge_job
from warpsmith.kernels_db.job.means import limit_fraction
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.llm.base import approximate_tokens

STORED = ROOT / "benchmarks" / "results" / "search.json"
TIMEOUT_S = 120.0
"""Of one command."""
ENTRY = ("seq", "round", "technique", "title", "verification", "score", "ci95", "right", "device")
"""What DATA keeps of a candidate that was screened."""


def read(warpsmith: str, arm: str, search: str) -> Row:
    """Return what a search came to, as plain data."""
    tree = _printed(warpsmith, "tree", search)
    asks = [each for each in _printed(warpsmith, "ask", search, "--all") if each["reply"] is not None]
    found = tree["search"]
    nodes = [_printed(warpsmith, "node", node["id"]) for node in tree["nodes"] if node["seq"] and node["verdict"]]
    judged = [each for each in map(_screened, nodes) if each is not None]
    best = best_of(judged)
    return {
        "search": search,
        "op": found["op_name"],
        "arm": arm,
        "language": found["language"],
        "policy": found["policy"],
        "budget": found["budget"],
        "calls": len(asks),
        "prompt_tokens": {kind: _tokens(asks, kind) for kind in sorted({each["kind"] for each in asks})},
        "reply_tokens": approximate_tokens(sum(len(each["reply"]) for each in asks)),
        "gpu_seconds": found["spend"]["gpu_seconds"],
        "sweep_seconds": found["spend"].get("sweep_seconds", 0.0),
        "judged": judged,
        "source": next((node["source"] for node in nodes if best is not None and node["seq"] == best["seq"]), None),
    }


def _screened(node: Mapping[str, Any]) -> Row | None:
    """Return a candidate as it was screened last; None where it was not."""
    screens = [each["document"] for each in node["verdicts"] if each["level"] == "screen"]
    if not screens:
        return None
    told = {name: node[name] for name in ("seq", "round", "technique", "title", "verification")}
    return as_screened(told, screens[-1])


def _tokens(asks: Iterable[Mapping[str, Any]], kind: str) -> list[int]:
    """Return the length of each request of a kind, in tokens."""
    lengths = (sum(len(part["content"]) for part in each["messages"]) for each in asks if each["kind"] == kind)
    return [approximate_tokens(length) for length in lengths]


def _printed(warpsmith: str, *arguments: str) -> Any:
    command = [warpsmith, *arguments, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return json.loads(ran.stdout)


def judge(rows: Sequence[Row], specs: Path, time_s: float) -> Iterable[Row]:
    """Judge each row's winner and yield its verdict: the arms of an op follow one another."""
    target = gpu_target()
    if target is None:
        raise SystemExit("found no GPU here, expected one: winners are compared on the device that they are for")
    with tempfile.TemporaryDirectory(prefix="warpsmith-search-") as cache, JudgeClient(cache=Path(cache)) as client:
        for row in sorted(rows, key=lambda each: (each["op"], each["arm"])):
            if row["source"] is None:
                continue
            job = judge_job(load_op(specs / f"{row['op']}.yaml"), target, row["language"], row["source"], time_s)
            shown = ask(client, job)
            yield {
                "search": row["search"],
                "op": row["op"],
                "arm": row["arm"],
                "verdict": shown.verdict,
                "error": shown.error,
            }


def table(rows: Sequence[Row]) -> list[list[str]]:
    """Return the figures of each search: a row for an op, an arm, a device and a round."""
    head = ["op", "arm", "device", "round", "right of", "best, screened", "calls", "tokens asked", "replied"]
    lines = [[*head, "device s", "of it sweeps", "judged together", "of the limit"]]
    for row in sorted(rows, key=lambda each: (each["op"], each["arm"])):
        asked = sum(map(sum, row["prompt_tokens"].values()))
        whole = [str(row["calls"]), f"{asked:,}", f"{row['reply_tokens']:,}"]
        whole += [f"{row['gpu_seconds']:.0f}", f"{row['sweep_seconds']:.0f}", *_together(row)]
        for (device, number), judged in parts(row).items():
            best = best_of(judged)
            screened = "none" if best is None else _spanned(best["score"], best["ci95"])
            counts = f"{sum(each['right'] for each in judged)} of {len(judged)}"
            lines.append([row["op"], row["arm"], device, str(number), counts, screened, *whole])
            whole = [""] * len(whole)
    return lines


def parts(row: Row) -> dict[tuple[str, int], list[Row]]:
    """Return a search's candidates by the device that they were screened on and their round."""
    found: dict[tuple[str, int], list[Row]] = {}
    for each in row["judged"]:
        found.setdefault((each["device"], each["round"]), []).append(each)
    return found


def _spanned(score: float, ends: Sequence[float]) -> str:
    return f"{score:.3f}x [{ends[0]:.3f}, {ends[1]:.3f}]"


def _together(row: Row) -> tuple[str, str]:
    verdict = row.get("verdict")
    if verdict is None:
        return "-", "-"
    passed_over = row.get("passed_over", ())
    after = f", after {' and '.join(f'#{seq}' for seq in passed_over)} failed" if passed_over else ""
    score = _speedup(verdict)
    if score is None:
        return f"{verdict['verdict']} at {verdict['gate']}{after}", "-"
    share = limit_fraction(verdict["workloads"])
    return f"{_spanned(score[0], score[1:])}{after}", "-" if share is None else f"{share:.0%}"


def _speedup(verdict: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return the score over the fastest baseline of each workload with the ends of its 95 % interval."""
    if verdict["verdict"] != "accepted" or verdict["score"] is None:
        return None
    low, high = verdict["score_ci95"]
    return verdict["score"], low, high


def compare(rows: Sequence[Row], one: str, other: str) -> list[str]:
    """Say how much faster the best of an arm is than another's, by round and device, over the ops that both have.

    Only rounds of as many candidates are compared; ops where an arm has nothing right are left out, and named. Of
    winners that were judged together their verdicts are compared, too.
    """
    screened: dict[tuple[str, int, int], dict[str, dict[str, list[float]]]] = {}
    together: dict[str, dict[str, list[float]]] = {one: {}, other: {}}
    for row in (each for each in rows if each["arm"] in (one, other)):
        if row.get("verdict"):
            score = _speedup(row["verdict"])
            together[row["arm"]].setdefault(row["op"], []).extend([] if score is None else [score[0]])
        for (device, number), judged in parts(row).items():
            arms = screened.setdefault((device, number, len(judged)), {one: {}, other: {}})
            best = best_of(judged)
            arms[row["arm"]].setdefault(row["op"], []).extend([] if best is None else [best["score"]])
    said = []
    for (device, number, count), arms in sorted(screened.items()):
        said += _ratio(arms, one, other, f"round {number} on {device}, best of {count}, screened")
    return said + _ratio(together, one, other, "winners, judged together")


def _ratio(arms: Mapping[str, Mapping[str, list[float]]], one: str, other: str, what: str) -> list[str]:
    both = sorted(set(arms[one]) & set(arms[other]))
    shared = [op for op in both if arms[one][op] and arms[other][op]]
    if not shared:
        return []
    left, right = ({op: arms[arm][op] for op in shared} for arm in (one, other))
    ratio, low, high = ratio_interval(left, right)
    means = f"{geomean(left):.3f}x and {geomean(right):.3f}x in the mean"
    nothing = ", ".join(op for op in both if op not in shared)
    told = f"; nothing right in one of them: {nothing}" if nothing else ""
    return [f"{what}: {one} over {other}: {ratio:.3f} [{low:.3f}, {high:.3f}] over {len(shared)} ops ({means}){told}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description="Ways to search, compared.")
    commands = parser.add_subparsers(dest="part")
    reading = commands.add_parser("read", help="take searches that have ended into DATA")
    reading.add_argument("data", type=Path)
    reading.add_argument("arm")
    reading.add_argument("searches", nargs="+", metavar="SEARCH")
    reading.add_argument("--warpsmith", default="warpsmith", help="the command line of that arm's version")
    reading.add_argument("--note", help="what this arm is")
    judging = commands.add_parser("judge", help="judge the winners together")
    judging.add_argument("data", type=Path)
    judging.add_argument("--ops", nargs="*", help="default: all")
    judging.add_argument("--specs", type=Path, default=ROOT / "examples")
    judging.add_argument("--time-s", type=float, default=1.0, help="limits.time_s: seconds of timing a workload")
    judging.add_argument("--output", type=Path, help="write the verdicts here and leave DATA as it is")
    screening = commands.add_parser("screen", help="screen recorded candidates together")
    screening.add_argument("data", type=Path)
    screening.add_argument("pools", type=Path, metavar="POOLS", help="the directory of ARM/OP.jsonl")
    screening.add_argument("--ops", nargs="*", help="default: all")
    screening.add_argument(
        "--time-s", type=float, default=DEFAULT_LIMITS["time_s"], help="default: as searches have it"
    )
    screening.add_argument("--output", type=Path, help="write the results here; default: print them at the end")
    joining = commands.add_parser("join", help="bring verdicts and screenings into DATA")
    joining.add_argument("data", type=Path)
    joining.add_argument("files", nargs="+", type=Path)
    printing = commands.add_parser("table", help="print the figures")
    printing.add_argument("data", nargs="?", type=Path, default=STORED)
    printing.add_argument("--markdown", action="store_true")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Read, judge, screen, join or print; returns the exit status."""
    parser = _parser()
    given = sys.argv[1:] if argv is None else argv
    arguments = parser.parse_args(given or ["table"])
    if arguments.part != "read" and arguments.data != STORED and not arguments.data.is_file():
        parser.error(f"DATA: found no file {arguments.data}, expected one that `read` wrote")
    data = _load(arguments.data)
    if arguments.part == "read":
        if arguments.note:
            data["arms"][arguments.arm] = arguments.note
        for search in arguments.searches:
            _put(data["rows"], read(arguments.warpsmith, arguments.arm, search))
        _write(arguments.data, data)
    elif arguments.part == "judge":
        chosen = [row for row in data["rows"] if not arguments.ops or row["op"] in arguments.ops]
        found: list[Row] = []
        for each in judge(chosen, arguments.specs, arguments.time_s):
            print(each["op"], each["arm"], each["error"] or each["verdict"]["reason"], flush=True)
            found.append(each)
            if arguments.output:
                _write(arguments.output, found)
        if not arguments.output:
            _join(data["rows"], found)
            _write(arguments.data, data)
    elif arguments.part == "screen":
        chosen = [row for row in data["rows"] if not arguments.ops or row["op"] in arguments.ops]
        return _screen_all(chosen, arguments.pools, arguments.time_s, arguments.output)
    elif arguments.part == "join":
        for file in arguments.files:
            _join(data["rows"], json.loads(file.read_text("utf-8")))
        _write(arguments.data, data)
    else:
        _print(data, arguments.markdown)
    return 0


def _screen_all(rows: Sequence[Row], pools: Path, time_s: float, output: Path | None) -> int:
    """Screen what the pools hold and write each result; an interrupt ends it with status 130, and what there is."""
    found: dict[str, list[Recorded]] = {}
    for row in sorted(rows, key=lambda each: each["op"]):
        pool = pools / row["arm"] / f"{row['op']}.jsonl"
        try:
            found[row["search"]] = recorded(row, pool)
        except (OSError, ValueError) as error:
            raise SystemExit(f"{pool}: {error}") from error
        print(f"{row['op']} {row['arm']}: {len(found[row['search']])} candidates", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is started with it ignored
    results: list[Row] = []
    try:
        for result in screen(rows, found, time_s):
            if result not in results:
                results.append(result)
            if output:
                _write(output, results)
            score = "-" if result.get("score") is None else _spanned(result["score"], result["ci95"])
            told = result["verdict"]["reason"] if result.get("verdict") else result.get("error") or result["reason"]
            print(result["op"], result["arm"], f"#{result['seq']}", score, told, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(results)} candidates", file=sys.stderr)
        return 130
    finally:
        if results and not output:
            print(json.dumps(results, indent=1))
    return 0


def _print(data: Mapping[str, Any], markdown: bool) -> None:
    lines = table(data["rows"])
    if markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        print(columns(lines))
    for arm, note in data["arms"].items():
        print(f"\n{arm}: {note}")
    arms = list(data["arms"])
    for index, one in enumerate(arms):
        for other in arms[index + 1 :]:
            for line in compare(data["rows"], one, other):
                print(f"\n{line}")


def _put(rows: list[Row], row: Row) -> None:
    rows[:] = [each for each in rows if each["search"] != row["search"]] + [row]


def _join(rows: Sequence[Row], found: Iterable[Row]) -> None:
    """Bring verdicts into the rows of their searches, and screenings, in place of those on the same device.

    Of several candidates of a search that were verified, the one verified last is its winner.
    """
    by_search = {row["search"]: row for row in rows}
    for each in sorted(found, key=lambda one: len(one.get("passed_over", ()))):
        row = by_search.get(each["search"])
        if row is None:
            continue
        if "right" in each:
            own = each["seq"], each["device"]
            kept = [one for one in row["judged"] if (one["seq"], one["device"]) != own]
            row["judged"] = sorted([*kept, {name: each[name] for name in ENTRY}], key=lambda one: one["seq"])
        if each.get("verdict") is not None:
            row["verdict"] = each["verdict"]
            row["source"] = each.get("source", row["source"])
            row["passed_over"] = each.get("passed_over", [])


def _load(file: Path) -> dict[str, Any]:
    if file.is_file():
        return dict(json.loads(file.read_text("utf-8")))
    return {"arms": {}, "rows": []}


def _write(file: Path, data: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(file)  # whole, whenever an interrupt comes


if __name__ == "__main__":
    sys.exit(main())
