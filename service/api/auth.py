"""API keys, `wsk_<prefix>_<secret>`, and the callers that they identify.

The database holds the SHA-256 of the secret; the key itself is shown once, when it is made.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from sqlalchemy import select

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, ApiKeyRow, TeamRow
from warpsmith.service.api import tokens

Scope = Literal["read", "submit", "steer", "admin"]
"""What a key may do: read; submit ops, pools and searches; steer its team's searches; all of it, of every team."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "submit", "steer")

SCHEME = "wsk"
SCOPE_CALLER = "warpsmith.caller"
"""Entry of a request's ASGI scope for its `Caller`; absent where the server requires no keys."""

LONGEST_PREFIX = 16


@dataclass(frozen=True)
class Caller:
    """Who sends a request. `name` and `prefix` are its key's, None where no key is required."""

    name: str | None
    prefix: str | None
    team: str
    scopes: frozenset[str]

    @property
    def reads(self) -> str | None:
        """The team whose view of the service it has; None: an administrator, who sees everything."""
        return None if "admin" in self.scopes else self.team

    def has(self, scope: Scope) -> bool:
        """Check whether it may do what needs `scope`."""
        return not self.scopes.isdisjoint((scope, "admin"))


LOCAL = Caller(name=None, prefix=None, team=DEFAULT_TEAM, scopes=frozenset({"admin"}))
"""The caller of a server that requires no keys: who reaches it may do everything."""


def identify(row: ApiKeyRow) -> Caller:
    """Return the caller that a key identifies."""
    return Caller(name=row.name, prefix=row.prefix, team=row.team, scopes=frozenset(row.scopes.split()))


def create_key(db: Database, name: str, team: str = DEFAULT_TEAM, scopes: Collection[str] = DEFAULT_SCOPES) -> str:
    """Make a key called `name` and return it: the only time that it can be read.

    Raises ValueError for an empty or overlong name, a team that there is not, and no or unknown scopes.
    """
    if not 0 < len(name.strip()) <= 128:
        raise ValueError(f"name: found {len(name)} characters, expected 1 to 128")
    if not scopes or not set(scopes) <= set(SCOPES):
        raise ValueError(f"scope: found {', '.join(scopes) or 'none'}, expected some of {', '.join(SCOPES)}")
    prefix, secret = secrets.token_hex(6), secrets.token_hex(32)
    with db.writing() as session:
        if session.get(TeamRow, team) is None:
            raise ValueError(f"team: found {team!r}, expected one that there is (warpsmith teams list)")
        session.add(
            ApiKeyRow(
                prefix=prefix,
                digest=tokens.digest(secret),
                name=name.strip(),
                team=team,
                scopes=" ".join(scope for scope in SCOPES if scope in scopes),
                created_at=time.time(),
                revoked_at=None,
            )
        )
        audit.note_object(prefix)
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
        audit.note_object(prefix)
        return True


def list_keys(db: Database) -> Sequence[ApiKeyRow]:
    """List every key, revoked ones included, oldest first."""
    with db.reading() as session:
        rows = session.scalars(select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.prefix)).all()
        session.expunge_all()
        return rows


def valid_key(db: Database, key: str) -> ApiKeyRow | None:
    """Find the row of a valid key; None for any other."""
    prefix, secret = tokens.split(key, SCHEME, LONGEST_PREFIX)
    row = None
    if prefix is not None:
        with db.reading() as session:
            row = session.get(ApiKeyRow, prefix)
            if row is not None:
                session.expunge(row)
    valid = tokens.matches(secret, None if row is None else row.digest)
    return row if valid and row is not None and row.revoked_at is None else None
