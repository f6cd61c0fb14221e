"""Views of campaigns: rows as documents, with the times before and after."""

from __future__ import annotations

from typing import Any

from warpsmith.kernels_db.store.tables import CampaignRow
from warpsmith.service.documents.campaigns import (
    ALL,
    COMPILED,
    MODEL,
    CampaignDocument,
    CampaignProgress,
    CampaignSettings,
    CampaignSummary,
)


def make_campaign_summary(row: CampaignRow) -> CampaignSummary:
    """Make the document of a campaign in a list."""
    return CampaignSummary(**_summarise(row, CampaignProgress.model_validate(row.progress)))


def make_campaign_document(row: CampaignRow) -> CampaignDocument:
    """Make the document of a campaign."""
    progress = CampaignProgress.model_validate(row.progress)
    return CampaignDocument(
        **_summarise(row, progress),
        model_digest=row.model_digest,
        revision=row.revision,
        settings=CampaignSettings.model_validate(row.settings),
        progress=progress,
    )


def _summarise(row: CampaignRow, progress: CampaignProgress) -> dict[str, Any]:
    timed = {variant.variant: variant for variant in progress.variants}
    kept = sum(region.kept for region in progress.regions)
    after = timed.get(ALL if kept else COMPILED) if progress.state == "finished" else None
    profile = progress.profile
    times = {MODEL: profile.model_us / 1e3, COMPILED: profile.compiled_us / 1e3} if profile else {}
    times |= {name: variant.ms for name, variant in timed.items()}
    return {
        "id": row.id,
        "model_name": row.model_name,
        "target": row.settings["target"],
        "state": progress.state,
        "stopped": progress.stopped,
        "searches": sum(region.search_id is not None for region in progress.regions),
        "kept": kept,
        "before_ms": times.get(MODEL),
        "compiled_ms": times.get(COMPILED),
        "after_ms": after and after.ms,
        "over_compiled": after and after.over_compiled,
        "over_compiled_ci95": after and after.over_compiled_ci95,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }
