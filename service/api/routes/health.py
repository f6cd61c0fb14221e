"""Whether the process lives, whether it can work, and its metrics."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import APIRouter
from fastapi.responses import Response
from kombu.exceptions import KombuError
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.service.api import metrics
from warpsmith.service.api.context import Service, ServiceDependency
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import DatabaseUnavailable, NotReady, documented
from warpsmith.service.documents.system import Health, Ready

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
def healthz() -> Health:
    """Answers as long as the process does; asks nothing of database and broker. No API key needed."""
    return Health(status="alive", version=version("warpsmith"))


@router.get("/readyz", summary="Can the service work?", responses=documented(NotReady))
def readyz(service: ServiceDependency) -> Ready:
    """Whether the database answers at the revision of this program and the broker takes messages. No API key needed."""
    errors: list[FieldError] = []
    found, name = revision(service, errors), broker(service, errors)
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
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **documented(DatabaseUnavailable)},
)
def prometheus(service: ServiceDependency) -> Response:
    """Searches, nodes and attempts by state, queue ages, live workers, spend and request latency in Prometheus' text
    format."""
    return Response(service.metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})


def revision(service: Service, errors: list[FieldError]) -> str | None:
    """The database's revision; what is wrong with it goes to `errors`."""
    try:
        found, expected = service.db.revision()
    except SQLAlchemyError as error:
        errors.append(FieldError(field="database", found=_first_line(error), expected="a database that can be reached"))
        return None
    if found != expected:
        wanted = f"revision {expected} (run: warpsmith db upgrade)"
        errors.append(
            FieldError(field="database", found=f"revision {found}" if found else "no schema", expected=wanted)
        )
    return found


def broker(service: Service, errors: list[FieldError]) -> str:
    """The broker's address, its password masked; what is wrong with it goes to `errors`."""
    timeout_s = service.settings.broker_timeout_s
    connection = service.celery.connection_for_write(connect_timeout=timeout_s)
    name = str(connection.as_uri())  # the password is masked
    try:
        with connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0.1, timeout=timeout_s)
    except (KombuError, OSError) as error:
        errors.append(
            FieldError(field="broker", found=f"{name}: {_first_line(error)}", expected="a broker that can be reached")
        )
    return name


def _first_line(error: Exception) -> str:
    text = str(error.__cause__ or error).strip().partition("\n")[0]
    return text[:200] or type(error).__name__
