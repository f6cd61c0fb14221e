"""Merging of verdicts.jsonl and unjudged.jsonl: one transaction checks and stores each line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from warpsmith.kernels_db.job.bundle import SignedUnjudged, ticket_of
from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.bundles.signing import is_genuine
from warpsmith.service.bundles.verdicts import read_line
from warpsmith.service.documents.bundles import MergedLine
from warpsmith.service.documents.field_error import FieldError
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.contract import BrokenDocument


def merge_lines(db: Database, key: bytes, lines: Iterable[bytes], team: str | None = None) -> Iterator[MergedLine]:
    """Merge each line that is not empty and yield its outcome.

    A refused line stores nothing and does not stop the others. `team`: whose searches alone they may be of.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _merge(db, key, number, line, team)


def _merge(db: Database, key: bytes, number: int, line: bytes, team: str | None) -> MergedLine:
    nonce: str | None = None
    bundle_id: str | None = None
    try:
        found = read_line(line)
        nonce, bundle_id = found["nonce"], found["bundle_id"]
        genuine = is_genuine(key, ticket_of(found), found["signature"])
        if "unjudged" in found:
            merged = steps.note_unjudged(db, cast("SignedUnjudged", found), genuine, db.now(), team)
        else:
            merged = steps.merge_verdict(db, found, genuine, db.now(), team)
    except (BrokenDocument, steps.VerdictRefused) as error:
        wrong = FieldError(field=error.field, found=shown(error.found), expected=shown(error.expected))
        return MergedLine(line=number, nonce=nonce, bundle_id=bundle_id, outcome="refused", error=wrong)
    return MergedLine(
        line=number,
        nonce=nonce,
        bundle_id=bundle_id,
        outcome=merged.outcome,
        search_id=merged.search_id,
        of=merged.of,
        detail=merged.reason,
    )
