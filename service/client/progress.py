"""Views of a search for a terminal: a live panel, its tree and its results as text.

Pure functions from API documents to text and rich renderables; callers do the I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import (
    BASELINE_NAMES,
    format_dollars,
    format_duration,
    format_microseconds,
    format_ratio,
    format_repairs,
    format_share,
)
from warpsmith.service.documents.nodes import NodeSummary
from warpsmith.service.documents.searches import Best, SearchDocument
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.workers.search.tree import ENDED

LONGEST_TITLE = 60
LONGEST_REASON = 100
LONGEST_UNTIMED = 300
VERDICT_STYLE = {"accepted": "green", "rejected": "red", "quarantined": "magenta", "ambiguous": "yellow"}
REPAIRING = ("coding", "coded", "judging")
"""States of a node with a verdict whose code is written or judged again."""
ORIGINS = {"person": "a person's idea", "stored": "a stored kernel", "branch": "branched", "joined": "joined"}


def describe_outcome(node: NodeSummary, *, ended: bool = False) -> str:
    """Describe the outcome of a node: its speed-up, why it failed, or its state; `ended`: its search has ended."""
    if node.verdict == "accepted":
        return f"accepted {format_ratio(node.score, node.ci95)}"
    reason = f" ({shorten(node.reason, LONGEST_REASON)})" if node.reason else ""
    if node.verdict is not None:
        if node.state in REPAIRING:  # the verdict is of the code before: a repair counts once it is judged
            under_way = "" if ended else f", repair {node.repairs} under way"
            return f"{node.verdict} at {node.gate}{format_repairs(node.repairs - 1)}{under_way}{reason}"
        return f"{node.verdict} at {node.gate}{format_repairs(node.repairs)}{reason}"
    if ended and node.state == "planned":
        return "not tried"
    return f"{node.state}{reason}"


def build_progress_panel(search: SearchDocument, lines: Sequence[str], now: float) -> Panel:
    """Build the live display of a running search; `now` in epoch seconds."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("state", _describe_state(search))
    facts.add_row("round", str(search.round))
    facts.add_row("nodes", count_nodes(search))
    facts.add_row("best so far", describe_best(search.best))
    facts.add_row("model", describe_spend(search))
    facts.add_row("time left", describe_time_left(search, now))
    log = Text("\n".join(lines), overflow="ellipsis", no_wrap=True, style="dim")
    return Panel(
        Group(facts, Text(), log), title=Text(f"{search.op_name} on {search.target}  {search.id}"), title_align="left"
    )


def needs_person(search: SearchDocument) -> bool:
    """Check whether a person must resume the search.

    After a model's outage it goes on by itself.
    """
    return search.state == "paused" and any(item.what == "person" for item in search.waiting_for)


def count_nodes(search: SearchDocument) -> str:
    """Count the nodes by verdict."""
    verdicts = dict(search.nodes_by_verdict)
    parts = [
        f"{verdicts[word]} {word}"
        for word in ("accepted", "rejected", "quarantined", "ambiguous")
        if verdicts.get(word)
    ]
    closed = search.nodes_by_state.get("closed", 0)
    if closed:
        parts.append(f"{closed} closed")
    return f"{search.nodes} ({', '.join(parts)})" if parts else str(search.nodes)


def describe_best(best: Best | None) -> str:
    """Describe the best candidate against each baseline."""
    if best is None:
        return "none yet"
    against = ", ".join(f"{value:.2f}x {BASELINE_NAMES.get(name, name)}" for name, value in best.speedup.items())
    verified = "verified" if best.verified else "not verified yet"
    return f"#{best.seq} {against} ({verified}): {shorten(best.title or '', LONGEST_TITLE)}"


def describe_spend(search: SearchDocument) -> str:
    """Describe calls, tokens, cost and sweeps so far, against their limits."""
    spend, budget = search.spend, search.budget
    calls = _add_limit(f"{spend.model_calls}", budget.get("model_calls")) + " calls"
    tokens = _add_limit(f"{spend.tokens:,}", budget.get("tokens")) + " tokens"
    limit = budget.get("cost_usd")
    cost = format_dollars(spend.cost_usd)
    cost += f" of ${limit:.2f}" if limit is not None else ""
    swept = ""
    if spend.sweep_seconds or budget.get("sweep_seconds") is not None:
        swept = f", sweeps {format_duration(spend.sweep_seconds)}"
        swept += "" if (most := budget.get("sweep_seconds")) is None else f" of {format_duration(most)}"
    return f"{cost}, {calls}, {tokens}{swept}"


def describe_time_left(search: SearchDocument, now: float) -> str:
    """Describe the rest of the wall-clock budget and of the candidates."""
    candidates = search.budget.get("candidates")
    left = [] if candidates is None else [f"{max(0, candidates - search.spend.candidates)} of {candidates} candidates"]
    limit = search.budget.get("wall_clock_s")
    running = now - search.updated_at if search.state == "running" else 0.0
    used = search.spend.wall_clock_s + max(0.0, running)
    if limit is None:
        return ", ".join([f"no limit ({format_duration(used)} so far)", *left])
    return ", ".join([f"{format_duration(max(0.0, limit - used))} of {format_duration(limit)}", *left])


def build_tree(search: SearchDocument, nodes: Sequence[NodeSummary]) -> Tree:
    """Build the whole tree; stars mark the path to the best node."""
    path = find_best_path(nodes)
    branches: dict[str, Tree] = {}
    root = Tree(Text(f"{search.op_name} on {search.target}  {search.id}  {search.state}"))
    for node in nodes:
        label = Text()
        if node.id in path:
            label.append("* ", style="bold yellow")
        if node.parent_id is None:
            label.append("reference and its baselines")
            if node.verdict not in {None, "accepted"}:
                label.append(f"  {describe_outcome(node)}", style="red")
        else:
            label.append(f"#{node.seq} ", style="dim")
            label.append(shorten(node.title or "", LONGEST_TITLE))
            label.append(f" [{node.technique or 'no technique'}, round {node.round}]", style="dim")
            outcome = describe_outcome(node, ended=search.state in ENDED)
            label.append(f"  {outcome}", style=VERDICT_STYLE.get(node.verdict or "", "dim"))
            if node.verification != "none":
                label.append(f"  verification {node.verification}", style="dim")
            if node.origin != "model":
                label.append(f"  {ORIGINS.get(node.origin, node.origin)}", style="dim")
            if node.mark is not None:
                label.append(f"  {node.mark}", style="bold")
        parent = branches.get(node.parent_id or "", root)
        branches[node.id] = parent.add(label)
    return root


def find_best_path(nodes: Iterable[NodeSummary]) -> set[str]:
    """Find the ids from the root to the best node; empty where there is none."""
    by_id = {node.id: node for node in nodes}
    current = next((node for node in by_id.values() if node.best), None)
    path: set[str] = set()
    while current is not None and current.id not in path:
        path.add(current.id)
        current = by_id.get(current.parent_id or "")
    return path


def build_result_rows(
    op_name: str, workloads: Iterable[WorkloadTimes], roles: Sequence[str] = ("bench",)
) -> list[list[str]]:
    """Build one row for each workload of `roles`.

    A row holds the op, the workload, the times of PyTorch's baselines, of the op's experts in one cell, and of the
    winner, the gain over the fastest baseline, and the share of the limit. The gain is a speed-up with its 95 %
    interval; the share is the physical limit over the winner's time.
    """
    rows = []
    for workload in workloads:
        if workload.role not in roles or "candidate" not in workload.time_us or not workload.speedup:
            continue
        fastest = min(workload.speedup, key=lambda name: workload.speedup[name])
        times = [format_microseconds(workload.time_us.get(name)) for name in BASELINE_NAMES]
        experts = {name: time for name, time in workload.time_us.items() if name not in {"candidate", *BASELINE_NAMES}}
        told = ", ".join(
            f"{shorten(name, LONGEST_TITLE)} {format_microseconds(time)}" for name, time in experts.items()
        )
        interval = workload.ci95.get(fastest)
        gain = f"{format_ratio(workload.speedup[fastest], interval)} {BASELINE_NAMES.get(fastest, fastest)}"
        winner = format_microseconds(workload.time_us["candidate"])
        name = workload.id if workload.weight == 1.0 else f"{workload.id} (weight {workload.weight:g})"
        rows.append([op_name, name, *times, told, winner, gain, format_share(workload.limit_fraction)])
    return rows


def describe_times(workloads: Iterable[WorkloadTimes]) -> list[str]:
    """Write a line for each timed bench workload: the kernel's microseconds, each baseline's, and the limit's."""
    lines = []
    for workload in workloads:
        time = workload.time_us.get("candidate")
        if workload.role != "bench" or time is None:
            continue
        told = [f"kernel {format_microseconds(time)} us"]
        for name, speedup in workload.speedup.items():
            beside = workload.time_us.get(name)
            baseline = BASELINE_NAMES.get(name, shorten(name, LONGEST_TITLE))
            took = "" if beside is None else f" {format_microseconds(beside)} us"
            told.append(f"{baseline}{took} ({format_ratio(speedup, workload.ci95.get(name))})")
        if workload.limit_fraction is not None:
            limit = format_microseconds(workload.limit_fraction * time)
            told.append(f"limit {limit} us ({format_share(workload.limit_fraction)} reached)")
        lines.append(f"{shorten(workload.id, LONGEST_TITLE)}: {', '.join(told)}")
    return lines


def build_result_table(rows: Sequence[Sequence[str]]) -> Table:
    """Build a table of the rows of `build_result_rows`; experts have a column where there are any."""
    place = 2 + len(BASELINE_NAMES)
    has_experts = any(row[place] for row in rows)
    against = "PyTorch and experts" if has_experts else "PyTorch"
    table = Table(title=f"Against {against}, in microseconds a call", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("op", "workload"):
        table.add_column(name, no_wrap=True)
    for name in (*BASELINE_NAMES.values(), *(["experts"] if has_experts else []), "winner"):
        table.add_column(name, justify="right")
    table.add_column("speed-up over the fastest", no_wrap=True)
    table.add_column("of the limit", justify="right")
    for row in rows:
        table.add_row(*(Text(cell) for at, cell in enumerate(row) if has_experts or at != place))
    return table


def describe_untimed(workloads: Iterable[WorkloadTimes]) -> list[str]:
    """Say of each baseline that was not timed why, a line for each reason with the workloads that it is true of."""
    places: dict[tuple[str, str], list[str]] = {}
    for workload in workloads:
        for name, reason in workload.not_timed.items():
            places.setdefault((name, reason), []).append(clean_line(workload.id, LONGEST_TITLE))
    return [
        f"{BASELINE_NAMES.get(name, name)} not timed on {', '.join(where)}: {shorten(reason, LONGEST_UNTIMED)}"
        for (name, reason), where in places.items()
    ]


def shorten(text: str, length: int) -> str:
    """Put text of others on one line of at most `length` characters."""
    return clean_line(text, length)


def _add_limit(spent: str, limit: float | None) -> str:
    return spent if limit is None else f"{spent} of {limit:,}"


def _describe_state(search: SearchDocument) -> str:
    waiting = "; ".join(dict.fromkeys(item.detail for item in search.waiting_for))
    return ": ".join(part for part in (search.state, search.reason or waiting) if part)
