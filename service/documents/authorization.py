"""Read the key from an Authorization header."""

from __future__ import annotations


def bearer_key(authorization: str | None) -> str | None:
    """The key of an `Authorization: Bearer` header."""
    scheme, _, value = (authorization or "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" and value.strip() else None
