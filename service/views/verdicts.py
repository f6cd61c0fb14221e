"""Choice of the verdicts and timed workloads that documents show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import VerdictRow
from warpsmith.service.documents.workloads import WorkloadTimes, read_workload_times

LEVEL_ORDER = {"verify": 0, "screen": 1, "baseline": 2}


def read_timed_workloads(session: Session, node_ids: Sequence[str]) -> dict[str, list[WorkloadTimes]]:
    """Read the timed workloads of each node's verdict that `choose_verdict` would choose."""
    if not node_ids:
        return {}
    columns = (VerdictRow.node_id, VerdictRow.verdict, VerdictRow.level, VerdictRow.document["workloads"])
    rows = session.execute(select(*columns).where(VerdictRow.node_id.in_(node_ids)).order_by(VerdictRow.id)).all()
    # The last row of a node counts, so the newest among equals.
    rows = sorted(rows, key=lambda row: (row[1] == "accepted", -LEVEL_ORDER.get(row[2], len(LEVEL_ORDER))))
    return {node_id: read_workload_times(workloads) for node_id, _, _, workloads in rows}


def choose_verdict(session: Session, node_id: str) -> Mapping[str, Any]:
    """Choose a node's newest verdict, a full verification before a screening; empty without one."""
    rows = session.scalars(select(VerdictRow).where(VerdictRow.node_id == node_id).order_by(VerdictRow.id.desc())).all()
    accepted = [row for row in rows if row.verdict == "accepted"] or rows
    accepted = sorted(accepted, key=lambda row: LEVEL_ORDER.get(row.level, len(LEVEL_ORDER)))
    return accepted[0].document if accepted else {}
