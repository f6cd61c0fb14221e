"""Invitations of hosts to run workers: tokens `wsj_<id>_<secret>`, each for a few hosts and a short time.

The database holds the SHA-256 of the secret; the token itself is shown once, when it is made. A host that joins with it
is given the addresses of broker and database with their passwords: it is trusted as the service's own hosts are.
"""

from __future__ import annotations

import secrets
from typing import cast

from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import InviteRow
from warpsmith.service.api import tokens

SCHEME = "wsj"
PREFIX = "iv"
LONGEST_NUMBER = 29


def create_invite(session: Session, name: str, uses: int, expires_at: float, now: float) -> tuple[InviteRow, str]:
    """Make an invitation for `uses` hosts; return it and its token, which cannot be read again."""
    secret = secrets.token_hex(32)
    row = InviteRow(
        id=new_id(PREFIX),
        name=name,
        digest=tokens.digest(secret),
        uses=uses,
        used=0,
        created_at=now,
        expires_at=expires_at,
        revoked_at=None,
    )
    session.add(row)
    return row, f"{SCHEME}_{row.id.removeprefix(PREFIX + '_')}_{secret}"


def find_invite(db: Database, token: str) -> InviteRow | None:
    """Find the invitation of a token, whether or not it still holds; None for any other text."""
    number, secret = tokens.split(token, SCHEME, LONGEST_NUMBER)
    row = None
    if number is not None:
        with db.reading() as session:
            row = session.get(InviteRow, f"{PREFIX}_{number}")
    return row if tokens.matches(secret, None if row is None else row.digest) else None


def describe_end(row: InviteRow, now: float) -> str | None:
    """Say why no host may join with the invitation any more; None while one may."""
    if row.revoked_at is not None:
        return "one that was revoked"
    if row.expires_at <= now:
        return "one that has expired"
    if row.used >= row.uses:
        return f"one that {row.used} of {row.uses} hosts have used"
    return None


def use_invite(session: Session, invite_id: str, now: float) -> bool:
    """Count a host that joins; False where none may any more, of two at once for the second."""
    still_holds = (InviteRow.revoked_at.is_(None), InviteRow.expires_at > now, InviteRow.used < InviteRow.uses)
    counted = update(InviteRow).where(InviteRow.id == invite_id, *still_holds).values(used=InviteRow.used + 1)
    return cast("CursorResult[object]", session.execute(counted)).rowcount == 1
