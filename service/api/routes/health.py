"""Routes of liveness, readiness and metrics."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from fastapi import APIRouter
from fastapi.responses import Response

from warpsmith.service.api import metrics
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.documents.problems import DatabaseUnavailable, NotReady, document_problems
from warpsmith.service.documents.system import Health, Ready

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz() -> Health:
    """Answer while the process lives, without database and broker. No API key needed."""
    return Health(status="alive", version=version("warpsmith"))


@router.get("/readyz", summary="Can the service work?", responses=document_problems(NotReady))
async def readyz(service: ServiceDependency) -> Ready:
    """Check that the database has this program's revision and the broker takes messages.

    No API key needed."""
    found = await asyncio.gather(service.database_probe.ask(), service.broker_probe.ask())
    errors = [outcome.fault for outcome in found if outcome.fault is not None]
    if errors:
        raise NotReady(
            "; ".join(f"{error.field}: found {error.found}, expected {error.expected}" for error in errors),
            errors=errors,
        )
    return Ready(status="ready", revision=found[0].detail, broker=found[1].detail)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **document_problems(DatabaseUnavailable),
    },
)
def prometheus(service: ServiceDependency) -> Response:
    """Return metrics in Prometheus' text format.

    They are searches, nodes and attempts by state, each queue's depth and age, live workers, the broker, spend and
    request latency."""
    return Response(service.metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})
