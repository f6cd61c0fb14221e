"""The API as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware import Middleware

from warpsmith.kernels_db.store.db import Database
from warpsmith.service.api import access, sessions
from warpsmith.service.api.context import Service
from warpsmith.service.api.handlers import install
from warpsmith.service.api.metrics import Metrics
from warpsmith.service.api.outbox import Outbox
from warpsmith.service.api.probes import make_broker_probe, make_database_probe
from warpsmith.service.api.routes import (
    asks,
    audit,
    bundles,
    campaigns,
    comparison,
    health,
    imports,
    joining,
    kernels,
    nodes,
    ops,
    pools,
    profiles,
    reverifications,
    searches,
    session,
    steering,
    system,
    tries,
    watching,
    workers,
)
from warpsmith.service.api.streams import Streams
from warpsmith.service.server import openapi, pages
from warpsmith.service.server.audit_trail import AuditTrail
from warpsmith.service.server.middleware import (
    JOINING,
    BodyLimit,
    Breaker,
    Gatekeeper,
    RequestLog,
    RequireKey,
    ResponseHeaders,
)
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers import log, tracing
from warpsmith.workers.queue import celery_app
from warpsmith.workers.settings import ALIVE_AFTER_S

LONGEST_SIGN_IN = 4096
"""Bytes of the one body that comes before there is a key."""

ROUTERS = (
    health.router,
    session.router,
    imports.router,
    ops.router,
    comparison.router,  # before searches: `compare` is no search's id
    searches.router,
    steering.router,
    watching.router,
    nodes.router,
    profiles.router,
    tries.router,
    pools.router,
    bundles.router,
    asks.router,
    kernels.router,
    campaigns.router,
    reverifications.router,
    workers.router,
    joining.router,
    system.router,
    audit.router,
)

ROUTES = APIRouter(generate_unique_id_function=openapi.make_operation_id)
"""What every app serves.

FastAPI reads the signatures of a router's routes at the first request, and keeps them here: once a process, however
many apps it makes.
"""
for _router in ROUTERS:
    ROUTES.include_router(_router, dependencies=[Depends(access.enforce)])


def create_app(settings: ServiceSettings | None = None, dashboard: Path = pages.DIST) -> FastAPI:
    """Create the application; it opens no connection before its first request.

    Every app has its own database pool and metrics. `dashboard` holds the dashboard's built files.
    """
    settings = settings or ServiceSettings()
    db = Database(settings.database)
    celery = celery_app.make_app(settings, answer_timeout_s=settings.broker_timeout_s)
    broker_probe = make_broker_probe(celery, settings.broker_timeout_s)
    service = Service(
        settings=settings,
        db=db,
        celery=celery,
        outbox=Outbox(celery),
        database_probe=make_database_probe(db, settings.database_timeout_s),
        broker_probe=broker_probe,
        metrics=Metrics(db, ALIVE_AFTER_S, lambda: broker_probe.ask_and_wait().fault is None),
        streams=Streams(db, settings),
    )
    app = FastAPI(
        title="Warpsmith",
        summary="LLM-driven kernel search",
        version=openapi.VERSION,
        openapi_url=None,  # `openapi.install` serves it
        docs_url=None,  # the usual pages load scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=openapi.make_operation_id,
        lifespan=_run_lifespan,
        middleware=_list_middleware(service),
        routes=ROUTES.routes,
    )
    app.state.service = service
    install(app)
    app.router.default = pages.Dashboard(dashboard, app.router.default)
    openapi.install(app, keys_required=settings.keys_required)
    _trace_requests(app, settings)
    return app


def _trace_requests(app: FastAPI, settings: ServiceSettings) -> None:
    """Make a span of each request, where traces are on; not of probes, nor of the pieces of an answer."""
    provider = tracing.start(settings, "api")
    if provider is None:
        return
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor  # noqa: PLC0415 - an extra

    FastAPIInstrumentor.instrument_app(
        app,
        tracer_provider=provider,
        excluded_urls="/healthz,/readyz,/metrics",
        exclude_spans=["receive", "send"],
    )


def _list_middleware(service: Service) -> list[Middleware]:
    """List the middleware, the outermost first."""
    settings = service.settings

    def limit(path: str) -> int:
        if path in (sessions.PATH, JOINING):  # open to everybody, for a key or a token alone
            return LONGEST_SIGN_IN
        return settings.max_pool_bytes if path in ("/v1/pools", bundles.MERGE) else settings.max_body_bytes

    keys = [Middleware(RequireKey, db=service.db, is_page=pages.is_page)] if settings.keys_required else []
    return [
        Middleware(RequestLog, observe=service.metrics.observe),
        Middleware(ResponseHeaders),
        Middleware(
            Gatekeeper,
            served_hosts=settings.served_hosts,
            origins=frozenset(host.lower() for host in settings.allowed_hosts),
        ),
        Middleware(Breaker, hangs=lambda: service.database_probe.hangs, is_page=pages.is_page),
        *keys,
        Middleware(BodyLimit, limit=limit, timeout_s=settings.body_timeout_s, most_held=settings.max_bodies_bytes),
        Middleware(AuditTrail, db=service.db),
    ]


@asynccontextmanager
async def _run_lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    log.configure(service.settings)
    service.database_probe.start()
    yield
    service.outbox.close()
    tracing.stop()
    service.database_probe.close()
    service.broker_probe.close()
    service.celery.close()
    service.db.dispose()
