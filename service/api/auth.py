"""API keys: `wsk_<prefix>_<secret>`.

The database holds the SHA-256 of the secret; the key itself is shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence

from sqlalchemy import select

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ApiKeyRow

SCHEME = "wsk"
SCOPE_NAME = "warpsmith.key_name"
"""Entry of a request's ASGI scope for the name of its key, or of its session's key."""

_ABSENT = hashlib.sha256(b"").hexdigest()


def create_key(db: Database, name: str) -> str:
    """Make a key called `name` and return it: the only time that it can be read.

    Raises ValueError for an empty or overlong name.
    """
    if not 0 < len(name.strip()) <= 128:
        raise ValueError(f"name: found {len(name)} characters, expected 1 to 128")
    prefix, secret = secrets.token_hex(6), secrets.token_hex(32)
    with db.writing() as session:
        session.add(
            ApiKeyRow(prefix=prefix, digest=_digest(secret), name=name.strip(), created_at=time.time(), revoked_at=None)
        )
    return f"{SCHEME}_{prefix}_{secret}"


def revoke_key(db: Database, prefix: str) -> bool:
    """Revoke the valid key with this prefix; False where there is none.

    `prefix` may be a whole key.
    """
    prefix = prefix.removeprefix(f"{SCHEME}_").partition("_")[0]
    with db.writing() as session:
        row = session.get(ApiKeyRow, prefix)
        if row is None or row.revoked_at is not None:
            return False
        row.revoked_at = time.time()
        return True


def list_keys(db: Database) -> Sequence[ApiKeyRow]:
    """List every key, revoked ones included, oldest first."""
    with db.reading() as session:
        rows = session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.prefix)).all()
        session.expunge_all()
        return rows


def valid_key(db: Database, key: str) -> ApiKeyRow | None:
    """Find the row of a valid key; None for any other.

    The comparison takes as long for an unknown prefix as for a known one.
    """
    scheme, _, rest = key.partition("_")
    prefix, _, secret = rest.partition("_")
    row = None
    if scheme == SCHEME and prefix.isascii() and prefix.isalnum() and len(prefix) <= 16:
        with db.reading() as session:
            row = session.get(ApiKeyRow, prefix)
            if row is not None:
                session.expunge(row)
    expected = row.digest if row is not None else _ABSENT
    valid = hmac.compare_digest(_digest(secret), expected)
    return row if valid and row is not None and row.revoked_at is None else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
