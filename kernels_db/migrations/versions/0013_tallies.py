"""Counts of whole tables for `/metrics` and `/v1/system`, kept by triggers, and indices for their other queries.

Revision: 0013.

The triggers come before the first count: they hold back writers until this transaction ends, so none is missed.
"""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0011"
branch_labels = None
depends_on = None

_LABELS = {
    "searches": ("state",),
    "nodes": ("state", "verdict"),
    "attempts": ("kind", "state"),
    "asks": ("state",),
    "kernels": ("target", "standing"),
    "reverifications": ("state", "outcome"),
}
_NULLABLE = ("verdict", "outcome")
_SPENT = {"calls": "model_calls", "tokens": "tokens", "usd": "cost_usd"}
_COLUMNS = "counted, label_1, label_2, change"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "tallies",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("counted", sa.String(length=16), nullable=False),
        sa.Column("label_1", sa.String(length=64), nullable=False),
        sa.Column("label_2", sa.String(length=64), nullable=False),
        sa.Column("change", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tallies")),
    )
    op.drop_index(op.f("ix_searches_target"), "searches")
    op.create_index(op.f("ix_searches_target_created_at_id"), "searches", ["target", "created_at", "id"])
    op.create_index(op.f("ix_kernels_score_id"), "kernels", ["score", "id"])
    op.create_index(op.f("ix_kernels_target"), "kernels", ["target"])
    add = _add_on_sqlite if op.get_bind().dialect.name == "sqlite" else _add_on_postgresql
    for table, labels in _LABELS.items():
        for event, changed, rows in _events(table, labels):
            add(f"tally_{table}_{event.split()[0].lower()}", event, table, changed, rows)
        key = ", ".join(labels)
        values = ", ".join(_value("", label) for label in labels) + ", ''" * (2 - len(labels))
        op.execute(f"INSERT INTO tallies ({_COLUMNS}) SELECT '{table}', {values}, count(*) FROM {table} GROUP BY {key}")
    for unit, column in _SPENT.items():
        op.execute(
            f"INSERT INTO tallies ({_COLUMNS}) SELECT 'spend', '{unit}', '', coalesce(sum({column}), 0) FROM searches"
        )


def _events(table: str, labels: tuple[str, ...]) -> Iterator[tuple[str, str | None, list[str]]]:
    """Yield each trigger of a table: its event, the condition, and the rows that it adds."""
    spent = _SPENT if table == "searches" else {}
    for event, row, sign in (("INSERT", "NEW.", ""), ("DELETE", "OLD.", "-")):
        rows = [_row(table, labels, row, f"{sign}1")]
        yield (
            event,
            None,
            rows
            + [
                f"SELECT 'spend', '{unit}', '', {sign}{row}{column} WHERE {row}{column} <> 0"
                for unit, column in spent.items()
            ],
        )
    rows = [
        f"{_row(table, labels, row, change)} WHERE {_differs(labels)}"
        for row, change in (("OLD.", "-1"), ("NEW.", "1"))
    ]
    rows += [
        f"SELECT 'spend', '{unit}', '', NEW.{column} - OLD.{column} WHERE {_differs((column,))}"
        for unit, column in spent.items()
    ]
    columns = (*labels, *spent.values())
    yield f"UPDATE OF {', '.join(columns)}", _differs(columns), rows


def _row(table: str, labels: tuple[str, ...], row: str, change: str) -> str:
    values = [_value(row, label) for label in labels] + ["''"] * (2 - len(labels))
    return f"SELECT '{table}', {', '.join(values)}, {change}"


def _value(row: str, label: str) -> str:
    return f"coalesce({row}{label}, '')" if label in _NULLABLE else f"{row}{label}"


def _differs(columns: tuple[str, ...]) -> str:
    return "(" + " OR ".join(f"{_value('OLD.', name)} <> {_value('NEW.', name)}" for name in columns) + ")"


def _add_on_sqlite(name: str, event: str, table: str, condition: str | None, rows: list[str]) -> None:
    when = "" if condition is None else f" WHEN {condition}"
    body = " ".join(f"INSERT INTO tallies ({_COLUMNS}) {row};" for row in rows)
    op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table}{when} BEGIN {body} END")


def _add_on_postgresql(name: str, event: str, table: str, condition: str | None, rows: list[str]) -> None:
    when = "" if condition is None else f" WHEN ({condition})"
    body = f"INSERT INTO tallies ({_COLUMNS}) {' UNION ALL '.join(rows)};"
    op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$")
    op.execute(f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW{when} EXECUTE FUNCTION {name}()")
