"""Reading of API keys from Authorization headers."""

from __future__ import annotations


def read_bearer_key(authorization: str | None) -> str | None:
    """Read the key of an `Authorization: Bearer` header; None where there is none."""
    scheme, _, value = (authorization or "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" and value.strip() else None
