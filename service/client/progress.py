"""How a search looks on a terminal: its state as a live panel, its tree and its results as text.

Pure functions from API documents to text and rich renderables; whoever calls them does the I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from warpsmith.service.documents.escaping import seen
from warpsmith.service.documents.figures import BASELINE_NAMES, dollars, duration, microseconds, ratio, repaired, share
from warpsmith.service.documents.nodes import NodeSummary
from warpsmith.service.documents.searches import Best, SearchDocument
from warpsmith.service.documents.workloads import WorkloadTimes

LONGEST_TITLE = 60
LONGEST_REASON = 100
VERDICT_STYLE = {"accepted": "green", "rejected": "red", "quarantined": "magenta", "ambiguous": "yellow"}
ORIGINS = {"person": "a person's idea", "stored": "a stored kernel", "branch": "branched"}


def outcome_of(node: NodeSummary) -> str:
    """What became of a node: its speed-up, why it failed, or its state."""
    if node.verdict == "accepted":
        return f"accepted {ratio(node.score, node.ci95)}"
    reason = f" ({shorten(node.reason, LONGEST_REASON)})" if node.reason else ""
    if node.verdict is not None:
        return f"{node.verdict} at {node.gate}{repaired(node.repairs)}{reason}"
    return f"{node.state}{reason}"


def progress_panel(search: SearchDocument, happenings: Sequence[str], now: float) -> Panel:
    """The live display of a running search; `now` in epoch seconds."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    facts.add_row("state", _state(search))
    facts.add_row("round", str(search.round))
    facts.add_row("nodes", counts(search))
    facts.add_row("best so far", best_line(search.best))
    facts.add_row("model", model_line(search))
    facts.add_row("time left", time_left(search, now))
    log = Text("\n".join(happenings), overflow="ellipsis", no_wrap=True, style="dim")
    return Panel(
        Group(facts, Text(), log), title=Text(f"{search.op_name} on {search.target}  {search.id}"), title_align="left"
    )


def counts(search: SearchDocument) -> str:
    """How many nodes there are, by what became of them."""
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


def best_line(best: Best | None) -> str:
    """The best candidate against each baseline."""
    if best is None:
        return "none yet"
    against = ", ".join(f"{value:.2f}x {BASELINE_NAMES.get(name, name)}" for name, value in best.speedup.items())
    verified = "verified" if best.verified else "not verified yet"
    return f"#{best.seq} {against} ({verified}): {shorten(best.title or '', LONGEST_TITLE)}"


def model_line(search: SearchDocument) -> str:
    """Calls, tokens and cost so far, against their limits."""
    spend, budget = search.spend, search.budget
    calls = _of(f"{spend.model_calls}", budget.get("model_calls")) + " calls"
    tokens = _of(f"{spend.tokens:,}", budget.get("tokens")) + " tokens"
    limit = budget.get("cost_usd")
    cost = dollars(spend.cost_usd)
    cost += f" of ${limit:.2f}" if limit is not None else ""
    return f"{cost}, {calls}, {tokens}"


def time_left(search: SearchDocument, now: float) -> str:
    """What is left of the wall-clock budget and of the candidates."""
    candidates = search.budget.get("candidates")
    left = [] if candidates is None else [f"{max(0, candidates - search.spend.candidates)} of {candidates} candidates"]
    limit = search.budget.get("wall_clock_s")
    running = now - search.updated_at if search.state == "running" else 0.0
    used = search.spend.wall_clock_s + max(0.0, running)
    if limit is None:
        return ", ".join([f"no limit ({duration(used)} so far)", *left])
    return ", ".join([f"{duration(max(0.0, limit - used))} of {duration(limit)}", *left])


def tree_text(search: SearchDocument, nodes: Sequence[NodeSummary]) -> Tree:
    """The whole tree; the path to the best node is marked with a star."""
    path = best_path(nodes)
    branches: dict[str, Tree] = {}
    root = Tree(Text(f"{search.op_name} on {search.target}  {search.id}  {search.state}"))
    for node in nodes:
        label = Text()
        if node.id in path:
            label.append("* ", style="bold yellow")
        if node.parent_id is None:
            label.append("reference and its baselines")
            if node.verdict not in {None, "accepted"}:
                label.append(f"  {outcome_of(node)}", style="red")
        else:
            label.append(f"#{node.seq} ", style="dim")
            label.append(shorten(node.title or "", LONGEST_TITLE))
            label.append(f" [{node.technique or 'no technique'}, round {node.round}]", style="dim")
            label.append(f"  {outcome_of(node)}", style=VERDICT_STYLE.get(node.verdict or "", "dim"))
            if node.verification != "none":
                label.append(f"  verification {node.verification}", style="dim")
            if node.origin != "model":
                label.append(f"  {ORIGINS.get(node.origin, node.origin)}", style="dim")
            if node.mark is not None:
                label.append(f"  {node.mark}", style="bold")
        parent = branches.get(node.parent_id or "", root)
        branches[node.id] = parent.add(label)
    return root


def best_path(nodes: Iterable[NodeSummary]) -> set[str]:
    """The ids from the root to the best node; empty where there is none."""
    by_id = {node.id: node for node in nodes}
    current = next((node for node in by_id.values() if node.best), None)
    path: set[str] = set()
    while current is not None and current.id not in path:
        path.add(current.id)
        current = by_id.get(current.parent_id or "")
    return path


def result_rows(op_name: str, workloads: Iterable[WorkloadTimes], roles: Sequence[str] = ("bench",)) -> list[list[str]]:
    """One row a workload: op, workload, times of baselines and winner, gain over the fastest, share of the limit.

    The gain is a speed-up with its 95 % interval; the share is the physical limit over the winner's time.
    """
    rows = []
    for workload in workloads:
        if workload.role not in roles or "candidate" not in workload.time_us or not workload.speedup:
            continue
        fastest = min(workload.speedup, key=lambda name: workload.speedup[name])
        times = [microseconds(workload.time_us.get(name)) for name in BASELINE_NAMES]
        interval = workload.ci95.get(fastest)
        gain = f"{ratio(workload.speedup[fastest], interval)} {BASELINE_NAMES.get(fastest, fastest)}"
        winner = microseconds(workload.time_us["candidate"])
        rows.append([op_name, workload.id, *times, winner, gain, share(workload.limit_fraction)])
    return rows


def result_table(rows: Sequence[Sequence[str]]) -> Table:
    """The rows of `result_rows` as a table."""
    table = Table(title="Against PyTorch, in microseconds a call", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("op", "workload"):
        table.add_column(name, no_wrap=True)
    for name in (*BASELINE_NAMES.values(), "winner"):
        table.add_column(name, justify="right")
    table.add_column("speed-up over the fastest", no_wrap=True)
    table.add_column("of the limit", justify="right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def shorten(text: str, length: int) -> str:
    """Foreign text on one line of at most `length` characters."""
    return seen(text, length)


def _of(spent: str, limit: float | None) -> str:
    return spent if limit is None else f"{spent} of {limit:,}"


def _state(search: SearchDocument) -> str:
    waiting = "; ".join(dict.fromkeys(item.detail for item in search.waiting_for))
    return ": ".join(part for part in (search.state, search.reason or waiting) if part)
