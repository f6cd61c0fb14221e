"""Campaigns: one row each, changed as a whole by the client that does its stages.

`revision` keeps two clients apart: a change that is based on an older one is refused.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, CampaignRow


def add_campaign(
    session: Session,
    *,
    model_name: str,
    model_digest: str,
    settings: dict[str, Any],
    progress: dict[str, Any],
    now: float,
    team: str = DEFAULT_TEAM,
) -> CampaignRow:
    """Store a new campaign of a team; `progress` as for `save_progress`."""
    row = CampaignRow(
        id=new_id("cm"),
        model_name=model_name,
        model_digest=model_digest,
        state=progress["state"],
        settings=settings,
        progress=progress,
        revision=1,
        created_at=now,
        updated_at=now,
        team=team,
    )
    session.add(row)
    session.flush()
    return row


def save_progress(session: Session, campaign_id: str, revision: int, progress: dict[str, Any], now: float) -> bool:
    """Replace a campaign's progress; False, and nothing is written, where `revision` is not its latest.

    progress: the document of `CampaignProgress`.
    """
    change = (
        update(CampaignRow)
        .where(CampaignRow.id == campaign_id, CampaignRow.revision == revision)
        .values(progress=progress, state=progress["state"], revision=revision + 1, updated_at=now)
    )
    return cast("CursorResult[Any]", session.execute(change)).rowcount == 1
