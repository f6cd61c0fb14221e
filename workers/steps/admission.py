"""What a submission asks of the database before it is stored: its team's quotas, its op, the kernels to start from.

One statement answers where nothing more is to be done: the team has no quota, the op is known, no kernel is like it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Dialect, Select, false, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.store.records import KNOWN_OP, Offer, add_op, offers_kernels, similar_kernels
from warpsmith.workers.steps.quotas import LIMITED, check_submission


def admit(
    session: Session, op: Op, target: Target, language: str, seeds: int, team: str, now: float
) -> tuple[str, Sequence[Offer]]:
    """Return the id of the op's row, which is stored where it is new, and up to `seeds` kernels to start from.

    They are among those that `team` may read. Raises QuotaReached where `team` may not submit a search.
    """
    connection = session.connection()
    statement, values = _write_query(connection.dialect, language, target.device, team, seeds=seeds > 0)
    asked = {**values, "digest": op.digest, "team": team}
    limited, op_id, offered = connection.exec_driver_sql(statement, asked).one()
    offers = similar_kernels(session, op, target, language, seeds, team) if offered else ()
    if limited:
        check_submission(session, team, now)
    return op_id or add_op(session, op, now, team)[0].id, offers


@lru_cache(maxsize=1024)  # one for each team, language and device that submits: to write it takes long
def _write_query(
    dialect: Dialect, language: str, device: str, team: str, *, seeds: bool
) -> tuple[str, Mapping[str, Any]]:
    """Write the query of `_select_facts` for a database's driver, with the values that it compares with.

    SQLAlchemy writes the lists of such a query anew each time, which was most of the processor time of asking it.
    """
    make_dialect: Callable[..., Dialect] = type(dialect)
    named = make_dialect(paramstyle="named") if dialect.positional else dialect
    query = _select_facts(language, device, team, seeds=seeds).params(digest="", team=team)  # given with each
    compiled = query.compile(dialect=named, compile_kwargs={"render_postcompile": True})
    return compiled.string, compiled.params


def _select_facts(
    language: str, device: str, team: str, *, seeds: bool
) -> Select[tuple[bool | None, str | None, bool]]:
    """Select whether the team has a quota, the op's id, and whether there are kernels that may be like it."""
    offered = offers_kernels(language, device, team) if seeds else false()
    return select(LIMITED.scalar_subquery(), KNOWN_OP.scalar_subquery(), offered)
