"""Sessions of browsers: a person signs in with an API key once, then a cookie replaces it.

The cookie's value is random, and the database holds its SHA-256 alone. A session ends when it expires, when its user
signs out, and when its key is revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import delete, select

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ApiKeyRow, SessionRow
from warpsmith.service.api.auth import Caller, identify

PATH = "/v1/session"
COOKIE = "warpsmith_session"
SCOPE_SESSION = "warpsmith.session"
"""Entry of a request's ASGI scope for its session."""

_CSRF = b"warpsmith csrf token"
_TOKEN_BYTES = 32
_LONGEST_TOKEN = 128


@dataclass(frozen=True)
class Session:
    """A valid session. `token` is the cookie's value, `caller` what its key identifies."""

    token: str
    caller: Caller
    expires_at: float

    @property
    def csrf_token(self) -> str:
        """The token that a page must send with every change.

        It derives from the cookie, which no script can read, so only the API's answer reveals it.
        """
        return hmac.digest(self.token.encode(), _CSRF, "sha256").hex()

    def has_token(self, given: str | None) -> bool:
        """Check whether `given` is the session's CSRF token."""
        return given is not None and hmac.compare_digest(given.encode(), self.csrf_token.encode())


def begin(db: Database, key: ApiKeyRow, now: float, life_s: float) -> Session:
    """Begin a session of `life_s` seconds for `key`; deletes expired sessions."""
    session = Session(secrets.token_urlsafe(_TOKEN_BYTES), identify(key), now + life_s)
    with db.writing() as writing:
        writing.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
        writing.add(
            SessionRow(
                digest=_digest(session.token), key_prefix=key.prefix, created_at=now, expires_at=session.expires_at
            )
        )
    return session


def find(db: Database, token: str, now: float) -> Session | None:
    """Find the valid session of this cookie; None where there is none."""
    with db.reading() as reading:
        row = reading.execute(
            select(ApiKeyRow, SessionRow.expires_at)
            .join(ApiKeyRow, ApiKeyRow.prefix == SessionRow.key_prefix)
            .where(SessionRow.digest == _digest(token), SessionRow.expires_at > now, ApiKeyRow.revoked_at.is_(None))
        ).one_or_none()
    return None if row is None else Session(token, identify(row[0]), row[1])


def end(db: Database, session: Session) -> None:
    """End the session."""
    with db.writing() as writing:
        writing.execute(delete(SessionRow).where(SessionRow.digest == _digest(session.token)))


def read_token(headers: Iterable[str]) -> str | None:
    """Read the value of the session's cookie from a request's Cookie headers."""
    for header in headers:
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE and 0 < len(value) <= _LONGEST_TOKEN and value.isascii():
                return value
    return None


def _digest(token: str) -> str:
    # 256 random bits cannot be guessed from their digest, so it needs no salt.
    return hashlib.sha256(token.encode()).hexdigest()
