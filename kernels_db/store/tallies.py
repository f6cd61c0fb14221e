"""Counts of whole tables by their labels, kept as the tables change: to read one costs the same at any size.

Triggers, which the migrations make, add a row to `tallies` for each row of a counted table that comes, goes or changes
its labels. So a count commits or rolls back with what it counts, whichever program of whichever version wrote it, and
two writers never wait for each other's count as they would for a counter's row. `fold` keeps the table short.

Triggers do not fire while a database is restored without its schema (`pg_dump --data-only`), nor under
`session_replication_role = replica`: `recount` sets right what was missed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, cast, delete, func, insert, literal, select, text, union_all
from sqlalchemy import Float as FloatType
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    KernelRow,
    NodeRow,
    ReverificationRow,
    SearchRow,
    TallyRow,
)

Label = InstrumentedAttribute[str] | InstrumentedAttribute[str | None]

COUNTED: dict[str, tuple[Label, ...]] = {
    "searches": (SearchRow.state,),
    "nodes": (NodeRow.state, NodeRow.verdict),
    "attempts": (AttemptRow.kind, AttemptRow.state),
    "asks": (AskRow.state,),
    "kernels": (KernelRow.target, KernelRow.standing),
    "reverifications": (ReverificationRow.state, ReverificationRow.outcome),
}
"""What is counted, by which columns."""

SPEND = "spend"
SPENT = {"calls": SearchRow.model_calls, "tokens": SearchRow.tokens, "usd": SearchRow.cost_usd}
"""What is summed over all searches."""

DELETED = "deleted"
"""The second label of what deleted searches spent, which no table holds any more."""

FOLD_AT = 1_000
"""Rows from which on `fold` folds: fewer are read in less than a millisecond."""

_KEY = (TallyRow.counted, TallyRow.label_1, TallyRow.label_2)
_LOCK = 0x74616C6C79  # "tally": one recount at a time on a PostgreSQL database


@dataclass(frozen=True)
class Tallies:
    """Counts by what is counted and its labels, an empty one where a column is None."""

    counts: dict[str, dict[tuple[str, ...], int]]
    spend: dict[str, float]


def read_tallies(session: Session) -> Tallies:
    """Read every count; labels that nothing has are left out."""
    counts: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in COUNTED}
    spend = dict.fromkeys(SPENT, 0.0)
    for name, *labels, total in session.execute(select(*_KEY, func.sum(TallyRow.change)).group_by(*_KEY)):
        if name == SPEND:
            spend[labels[0]] += total
        elif count := round(total):
            counts[name][tuple(labels[: len(COUNTED[name])])] = count
    return Tallies(counts, spend)


def keep_spend(session: Session, search: SearchRow) -> None:
    """Go on counting what a search has spent, which is about to be deleted."""
    for unit, column in SPENT.items():
        if spent := getattr(search, column.key):
            session.add(TallyRow(counted=SPEND, label_1=unit, label_2=DELETED, change=spent))


def is_long(session: Session) -> bool:
    """Check whether there are so many rows that they are to be folded."""
    return (session.scalar(select(func.count()).select_from(TallyRow)) or 0) >= FOLD_AT


def fold(session: Session) -> int:
    """Replace the rows by their sums; return how many rows went.

    Rows that others add meanwhile stay. Of two that fold at once the second waits, and finds the rows gone.
    """
    sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    gone = session.execute(delete(TallyRow).returning(*_KEY, TallyRow.change)).tuples().all()
    for counted, label_1, label_2, change in gone:
        sums[counted, label_1, label_2] += change
    left = [
        {"counted": counted, "label_1": label_1, "label_2": label_2, "change": change}
        for (counted, label_1, label_2), change in sums.items()
        if change
    ]
    if left:
        session.execute(insert(TallyRow), left)
    return len(gone)


def recount(session: Session) -> int:
    """Count the tables anew and add what the tallies lack; return how many counts were wrong.

    One statement sees one state of tables and tallies, so writers go on meanwhile. It reads the tables whole.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    sources = [_count(name, labels) for name, labels in COUNTED.items()]
    sources += [_sum(unit, column) for unit, column in SPENT.items()]
    sources.append(select(*_KEY, (-TallyRow.change).label("change")).where(TallyRow.label_2 != DELETED))
    found = union_all(*sources).subquery()
    total = func.sum(found.c.change)
    key = (found.c.counted, found.c.label_1, found.c.label_2)
    columns = ["counted", "label_1", "label_2", "change"]
    wrong = select(*key, total).group_by(*key).having(func.abs(total) > 1e-6 * func.max(func.abs(found.c.change)))
    result = session.execute(insert(TallyRow).from_select(columns, wrong).returning(TallyRow.id))
    return len(result.all())


def _count(name: str, labels: tuple[Label, ...]) -> Select[tuple[str, str, str, float]]:
    values = [_or_empty(label) for label in labels] + [literal("")] * (2 - len(labels))
    count = cast(func.count(), FloatType(53)).label("change")
    query = select(literal(name).label("counted"), values[0].label("label_1"), values[1].label("label_2"), count)
    return query.group_by(*labels)


def _sum(
    unit: str, column: InstrumentedAttribute[int] | InstrumentedAttribute[float]
) -> Select[tuple[str, str, str, float]]:
    total = func.coalesce(cast(func.sum(column), FloatType(53)), 0.0)
    return select(
        literal(SPEND).label("counted"),
        literal(unit).label("label_1"),
        literal("").label("label_2"),
        total.label("change"),
    )


def _or_empty(label: Label) -> ColumnElement[str]:
    return func.coalesce(label, "")
