"""Routes of liveness, readiness and metrics."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from fastapi.responses import Response
from kombu.exceptions import KombuError
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.service.api import metrics
from warpsmith.service.api.context import Service, ServiceDependency
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import DatabaseUnavailable, NotReady, document_problems
from warpsmith.service.documents.system import Health, Ready

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
def healthz() -> Health:
    """Answer while the process lives, without database and broker. No API key needed."""
    return Health(status="alive", version=version("warpsmith"))


@router.get("/readyz", summary="Can the service work?", responses=document_problems(NotReady))
def readyz(service: ServiceDependency) -> Ready:
    """Check that the database has this program's revision and the broker takes messages.

    No API key needed."""
    errors: list[FieldError] = []
    found, name = check_revision(service, errors), check_broker(service, errors)
    if errors or found is None:
        raise NotReady(
            "; ".join(f"{error.field}: found {error.found}, expected {error.expected}" for error in errors),
            errors=errors,
        )
    return Ready(status="ready", revision=found, broker=name)


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

    They are searches, nodes and attempts by state, queue ages, live workers, spend and request latency."""
    return Response(service.metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})


def check_revision(service: Service, errors: list[FieldError]) -> str | None:
    """Read the database's revision; adds faults to `errors`."""
    try:
        found, expected = service.db.revision()
    except SQLAlchemyError as error:
        errors.append(
            FieldError(field="database", found=_extract_message(error), expected="a database that can be reached")
        )
        return None
    if found != expected:
        wanted = f"revision {expected} (run: warpsmith db upgrade)"
        errors.append(
            FieldError(field="database", found=f"revision {found}" if found else "no schema", expected=wanted)
        )
    return found


def check_broker(service: Service, errors: list[FieldError]) -> str:
    """Check the broker and return its address with the password masked; adds faults to `errors`."""
    timeout_s = service.settings.broker_timeout_s
    connection = service.celery.connection_for_write(connect_timeout=timeout_s)
    name = str(connection.as_uri())  # the password is masked
    try:
        with connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0.1, timeout=timeout_s)
    except (KombuError, OSError) as error:
        errors.append(
            FieldError(
                field="broker", found=f"{name}: {_extract_message(error)}", expected="a broker that can be reached"
            )
        )
    return name


def _extract_message(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().partition("\n")[0]
    return text[:200] or type(error).__name__
