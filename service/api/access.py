"""Which caller may do what: the one place that decides, before the route runs.

Every operation has a scope in `RULES`; one without is refused to everyone, so a new route needs a rule. Every path
parameter names a row, and the row's team decides (of rows for administrators alone the scope does):

    404     the row is of a team that keeps its work to itself; the answer is that of a row that is not there
    403     the caller lacks the scope, or would change what is another team's

Rows that a body or a query names, and the rows of lists, are filtered by `Caller.reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request
from sqlalchemy import Select, func, select
from starlette.concurrency import run_in_threadpool

from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.tables import (
    SHIPPED,
    AskRow,
    BundleJobRow,
    CampaignRow,
    HoldingRow,
    ImportRow,
    KernelRow,
    NodeRow,
    OpRow,
    PoolRow,
    ReverificationRow,
    SearchRow,
    TryRow,
)
from warpsmith.kernels_db.store.teams import may_read
from warpsmith.service.api.auth import LOCAL, Caller, Scope
from warpsmith.service.api.context import Service, find_caller, find_service, make_unknown
from warpsmith.service.documents.problems import Forbidden, NotFound, Problem

RULES: Mapping[str, Scope | None] = {
    # Orchestrators, a browser that signs in or out, and a host that joins with a token of its own.
    **dict.fromkeys(("healthz", "readyz", "get_session", "sign_in", "sign_out", "join_host"), None),
    **dict.fromkeys(
        (
            "prometheus",
            "list_ops",
            "list_op_names",
            "get_op",
            "validate_op",
            "list_counterexamples",
            "list_searches",
            "list_tags",
            "compare_searches",
            "get_search",
            "estimate_search",
            "get_tree",
            "get_tree_rows",
            "get_story",
            "get_events",
            "get_progress",
            "get_mattered",
            "list_attempts",
            "export_pool",
            "get_node",
            "get_source",
            "get_report",
            "get_profile",
            "list_tries",
            "get_try",
            "list_pools",
            "get_pool",
            "list_imports",
            "get_import",
            "list_campaigns",
            "get_campaign",
            "list_bundles",
            "list_unjudged",
            "list_asks",
            "get_ask",
            "list_kernels",
            "get_kernel",
            "export_kernel",
            "list_reverifications",
            "get_reverification",
            "list_workers",
            "get_system",
            "get_options",
            "list_examples",
        ),
        "read",
    ),
    **dict.fromkeys(("list_audit", "create_invite", "list_invites", "revoke_invite", "drain_workers"), "admin"),
    **dict.fromkeys(
        ("create_op", "import_files", "create_pool", "create_search", "create_campaign", "branch_node"), "submit"
    ),
    **dict.fromkeys(
        (
            "pause_search",
            "resume_search",
            "cancel_search",
            "change_search",
            "delete_search",
            "add_idea",
            "pin_node",
            "unpin_node",
            "ban_node",
            "unban_node",
            "request_profile",
            "create_try",
            "create_bundle",
            "settle_unjudged",
            "drop_bundle",
            "merge_verdicts",
            "answer_ask",
            "change_campaign",
            "reverify_kernel",
            "reverify_kernels",
        ),
        "steer",
    ),
}
"""The scope that each operation needs, by its id; None: it is open, and asks for none."""

SIGNING = ("sign_in", "sign_out")
"""Changes that need no scope, for the audit log. `join_host` writes its own entry, once the token is known."""

ADMINISTERING = ("create_invite", "revoke_invite", "drain_workers")
"""Changes of administrators, for the audit log."""


def _of_search(table: Any) -> Callable[[str], Select[Any]]:
    return lambda row_id: select(SearchRow.team).join(table, table.search_id == SearchRow.id).where(table.id == row_id)


def _of_holders(table: Any) -> Callable[[str], Select[Any]]:
    team = func.coalesce(HoldingRow.team, SHIPPED)  # what nobody holds is everyone's
    return lambda row_id: (
        select(team)
        .select_from(table)
        .outerjoin(HoldingRow, HoldingRow.object_id == table.id)
        .where(table.id == row_id)
    )


OWNERS: Mapping[str, Callable[[str], Select[Any]]] = {
    "search_id": lambda row_id: select(SearchRow.team).where(SearchRow.id == row_id),
    "campaign_id": lambda row_id: select(CampaignRow.team).where(CampaignRow.id == row_id),
    "import_id": lambda row_id: select(ImportRow.team).where(ImportRow.id == row_id),
    "node_id": _of_search(NodeRow),
    "ask_id": _of_search(AskRow),
    "try_id": _of_search(TryRow),
    "bundle_id": lambda row_id: (
        select(SearchRow.team)
        .join(BundleJobRow, BundleJobRow.search_id == SearchRow.id)
        .where(BundleJobRow.bundle_id == row_id)
        .limit(1)
    ),
    "kernel_id": lambda row_id: select(KernelRow.team).where(KernelRow.id == row_id),
    "reverification_id": lambda row_id: (
        select(KernelRow.team)
        .join(ReverificationRow, ReverificationRow.kernel_id == KernelRow.id)
        .where(ReverificationRow.id == row_id)
    ),
    "op_id": _of_holders(OpRow),
    "pool_id": _of_holders(PoolRow),
}
"""The teams of the row that a path parameter names: none where there is no such row."""


def make_unknown_bundle(bundle_id: str) -> NotFound:
    """Make the problem that no bundle has this id."""
    return NotFound(f"bundle: found {shown(bundle_id)!r}, expected the id of a bundle that is out")


UNKNOWN: Mapping[str, Callable[[str], NotFound]] = {
    "search_id": lambda row_id: make_unknown(SearchRow, row_id, "search"),
    "campaign_id": lambda row_id: make_unknown(CampaignRow, row_id, "campaign"),
    "import_id": lambda row_id: make_unknown(ImportRow, row_id, "import"),
    "node_id": lambda row_id: make_unknown(NodeRow, row_id, "node"),
    "ask_id": lambda row_id: make_unknown(AskRow, row_id, "ask"),
    "try_id": lambda row_id: make_unknown(TryRow, row_id, "try"),
    "bundle_id": make_unknown_bundle,
    "kernel_id": lambda row_id: make_unknown(KernelRow, row_id, "kernel"),
    "reverification_id": lambda row_id: make_unknown(ReverificationRow, row_id, "reverification"),
    "op_id": lambda row_id: make_unknown(OpRow, row_id, "op"),
    "pool_id": lambda row_id: make_unknown(PoolRow, row_id, "pool"),
}
"""The routes' own answers to ids that no row has."""


async def enforce(request: Request) -> None:
    """Refuse what the caller may not do; a dependency of every route. Raises Forbidden, NotFound."""
    # Not as dependencies of this one: to resolve them takes the framework longer than all that is done here.
    service, caller = find_service(request), find_caller(request)
    operation: str = request.scope["route"].name
    named = {name: str(value) for name, value in request.path_params.items()}
    entry = _begin_entry(caller, named)
    if operation not in RULES:
        raise Forbidden(f"operation: found {operation}, which has no rule, expected one with a scope")
    scope = RULES[operation]
    if scope in ("submit", "steer") or operation in SIGNING or operation in ADMINISTERING:
        entry.action = operation
    if scope is None:
        return
    if not caller.has(scope):
        entry.action = operation
        found = " ".join(sorted(caller.scopes))
        raise Forbidden(f"scope: found a key with {found}, expected one with {scope} (warpsmith keys create --scope)")
    if named and caller.reads is not None:
        try:
            await run_in_threadpool(_check_rows, service, caller, scope, named)
        except _OfAnotherTeam as error:
            entry.action = operation
            raise error.problem from None


class _OfAnotherTeam(Exception):  # noqa: N818 - named for what it is
    """A row that the caller may not read or change, and the problem that answers it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _begin_entry(caller: Caller, named: Mapping[str, str]) -> audit.Entry:
    """Say in the request's audit entry who acts, and on what."""
    entry = audit.current() or audit.Entry(source="unknown")
    entry.object_id = next((row_id for row_id in named.values() if Service.is_id(row_id)), None)
    if caller is not LOCAL:
        entry.team, entry.key_prefix, entry.key_name = caller.team, caller.prefix, caller.name
    return entry


def _check_rows(service: Service, caller: Caller, scope: Scope, named: Mapping[str, str]) -> None:
    with service.db.reading() as session:
        for parameter, row_id in named.items():
            owners = list(session.scalars(OWNERS[parameter](row_id))) if service.is_id(row_id) else []
            # Both here, before a body is checked: what is wrong with that must not tell the one from the other.
            if not owners:
                raise UNKNOWN[parameter](row_id)
            if not may_read(session, owners, caller.team):
                raise _OfAnotherTeam(UNKNOWN[parameter](row_id))
            if scope == "steer" and caller.team not in owners and SHIPPED not in owners:
                whose, own = ", ".join(sorted(owners)), caller.team
                found = f"found one of team {whose}, expected one of this key's team, {own}"
                raise _OfAnotherTeam(Forbidden(f"{parameter}: {found}"))
