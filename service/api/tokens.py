"""Tokens `<scheme>_<number>_<secret>`, of API keys and of invitations: the database holds the SHA-256 of the secret."""

from __future__ import annotations

import hashlib
import hmac

_ABSENT = hashlib.sha256(b"").hexdigest()


def digest(secret: str) -> str:
    """Return what the database holds of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def split(token: str, scheme: str, longest: int) -> tuple[str | None, str]:
    """Return a token's number, of at most `longest` letters and digits, and its secret; no number of any other text."""
    found, _, rest = token.partition("_")
    number, _, secret = rest.partition("_")
    named = found == scheme and number.isascii() and number.isalnum() and len(number) <= longest
    return number if named else None, secret


def matches(secret: str, held: str | None) -> bool:
    """Check a secret against the digest that is held; None: there is no such token.

    The comparison takes as long for an unknown number as for a known one.
    """
    return hmac.compare_digest(digest(secret), _ABSENT if held is None else held) and held is not None
