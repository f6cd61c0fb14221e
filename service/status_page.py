"""The status page: plain HTML, no script, no external request. Text of models and users is escaped by the templates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from kernels_db.models import KernelRow, NodeRow, SearchRow, WorkerRow
from service import views
from service.context import ServiceDependency
from service.foreign import visible
from service.problems import NotFound
from service.progress import ORIGINS
from service.schemas import TERMINAL_STATES, NodeSummary, SearchDocument, WorkloadTimes

TEMPLATES = Path(__file__).parent / "templates"
PAGE_PREFIXES = ("/searches/", "/nodes/")
REFRESH_S = 5
SHOWN_SEARCHES = 50
SHOWN_NODES = 1000
CONTENDER_ORDER = ("candidate", "eager", "compile", "max_autotune")
EMPTY = "-"

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def is_page(path: str) -> bool:
    """Whether `path` is one of these pages, which browsers open without an Authorization header of their own."""
    return path in {"/", "/style.css"} or path.startswith(PAGE_PREFIXES)


@dataclass
class Branch:
    """A node and its children, as the nested list shows them."""

    node: NodeSummary
    children: list[Branch] = field(default_factory=list)


@router.get("/")
def home(service: ServiceDependency) -> str:
    """Searches, kernels and workers."""
    now = time.time()
    with service.db.reading() as session:
        rows = session.scalars(
            select(SearchRow).order_by(SearchRow.created_at.desc(), SearchRow.id.desc()).limit(SHOWN_SEARCHES + 1)
        ).all()
        searches = views.search_summaries(session, rows[:SHOWN_SEARCHES])
        kernel_rows = session.scalars(
            select(KernelRow).order_by(KernelRow.created_at.desc(), KernelRow.id.desc()).limit(SHOWN_SEARCHES)
        ).all()
        names = views.op_names(session, {row.op_id for row in kernel_rows})
        worker_rows = session.scalars(select(WorkerRow).order_by(WorkerRow.seen_at.desc()).limit(SHOWN_SEARCHES)).all()
    return _render(
        "home.html",
        refresh=REFRESH_S if any(search.state not in TERMINAL_STATES for search in searches) else None,
        searches=searches,
        more=len(rows) > SHOWN_SEARCHES,
        kernels=[views.kernel_summary(row, names[row.op_id]) for row in kernel_rows],
        workers=[views.worker_document(row, now, service.alive_after_s) for row in worker_rows],
    )


@router.get("/searches/{search_id}")
def search_page(search_id: str, service: ServiceDependency) -> Response:
    """One search: best so far, spend and the tree."""
    with service.db.reading() as session:
        row = session.get(SearchRow, search_id) if service.is_id(search_id) else None
        if row is None:
            return _missing(f"There is no search {search_id}")
        search = views.search_document(session, row, service.alive_after_s)
        nodes = session.scalars(
            select(NodeRow).where(NodeRow.search_id == row.id).order_by(NodeRow.seq).limit(SHOWN_NODES)
        ).all()
        total = session.scalar(select(func.count()).where(NodeRow.search_id == row.id)) or 0
    return HTMLResponse(
        _render(
            "search.html",
            refresh=REFRESH_S if search.state not in TERMINAL_STATES else None,
            search=search,
            roots=branches([views.node_summary(node, row.best_node_id) for node in nodes]),
            cut=total > len(nodes),
            shown=len(nodes),
            spend_rows=spend_rows(search),
        )
    )


@router.get("/nodes/{node_id}")
def node_page(node_id: str, service: ServiceDependency) -> Response:
    """One node: idea, code, verdicts, steps and model calls."""
    with service.db.reading() as session:
        row = session.get(NodeRow, node_id) if service.is_id(node_id) else None
        if row is None:
            return _missing(f"There is no node {node_id}")
        node = views.node_document(session, row, _best_id(session, row))
    return HTMLResponse(_render("node.html", refresh=None, node=node))


@router.get("/style.css")
def style() -> Response:
    """The one style sheet."""
    return Response(
        (TEMPLATES / "style.css").read_bytes(), media_type="text/css", headers={"Cache-Control": "max-age=3600"}
    )


def branches(nodes: Sequence[NodeSummary]) -> list[Branch]:
    """The nodes as trees; they come by rising `seq`, so a parent stands before its children."""
    by_id: dict[str, Branch] = {}
    roots: list[Branch] = []
    for node in nodes:
        entry = by_id[node.id] = Branch(node)
        parent = by_id.get(node.parent_id or "")
        (parent.children if parent is not None else roots).append(entry)
    return roots


def spend_rows(search: SearchDocument) -> list[tuple[str, str, str]]:
    """What was used of each limit, as text."""
    shown = (
        ("candidates", "Candidates", str),
        ("model_calls", "Model calls", str),
        ("tokens", "Tokens", str),
        ("cost_usd", "Model cost", dollars),
        ("wall_clock_s", "Running time", duration),
        ("gpu_seconds", "Device time", duration),
    )
    used = search.spend.model_dump()
    limits = search.budget
    return [
        (label, show(used[name]), "no limit" if limits.get(name) is None else show(limits[name]))
        for name, label, show in shown
    ]


def ratio(value: float | None) -> str:
    """1.2345 as 1.23x."""
    return EMPTY if value is None else f"{value:.3g}x" if value < 100 else f"{value:.0f}x"


def microseconds(value: float | None) -> str:
    """A time with a unit that suits it."""
    if value is None:
        return EMPTY
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def percent(value: float | None) -> str:
    """0.423 as 42 %."""
    return EMPTY if value is None else f"{100 * value:.0f} %"


def dollars(value: float | None) -> str:
    """A cost in dollars, or that nobody knows it."""
    if value is None:
        return "unknown"
    return f"${value:.2f}" if value == 0 or value >= 0.01 else f"${value:.4f}"


def duration(seconds: float) -> str:
    """Seconds as 12 s, 3 min 20 s or 2 h 5 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def iso(seconds: float) -> str:
    """Epoch seconds as an ISO 8601 time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def clock(seconds: float) -> str:
    """Epoch seconds for people; UTC, because a page without script does not know the reader's time zone."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shorten(text: str, length: int) -> str:
    """The first line, cut to `length` characters."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= length else first[: length - 1] + "…"


def contenders(workloads: Sequence[WorkloadTimes]) -> list[str]:
    """Every contender of these workloads: the candidate, then the baselines in their usual order."""
    found = {name for workload in workloads for name in workload.time_us}
    return [name for name in CONTENDER_ORDER if name in found] + sorted(found - set(CONTENDER_ORDER))


def _best_id(session: Session, node: NodeRow) -> str | None:
    return session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == node.search_id))


def _missing(detail: str) -> Response:
    problem = NotFound(detail)
    return HTMLResponse(_render("problem.html", refresh=None, problem=problem), problem.code)


def _shown(value: Any) -> Any:
    """What a template prints: text of others turns no reading direction and hides nothing, in code least of all."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (ratio, microseconds, percent, dollars, duration, iso, clock, shorten, contenders):
        environment.filters[show.__name__] = show
    environment.globals["origins"] = ORIGINS
    environment.filters["workload_times"] = views.workload_times
    environment.globals["version"] = version("warpsmith")
    return environment


_templates = _environment()


def _render(template: str, **values: Any) -> str:
    return _templates.get_template(template).render(**values)
