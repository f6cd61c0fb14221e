"""The state of the house, what a submission can say here, and the op specs that ship."""

from __future__ import annotations

import time

from fastapi import APIRouter

from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.examples import ExampleDocument, examples
from warpsmith.service.api.options import OptionsDocument, options
from warpsmith.service.api.routes.health import broker, revision
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.page import Page
from warpsmith.service.views import system

router = APIRouter(tags=["system"])


@router.get("/v1/system", summary="The state of the house")
def get_system(service: ServiceDependency) -> system.SystemDocument:
    """Whether database and broker work, the queues and who serves them, devices with their measured peaks, versions."""
    now = time.time()
    wrong: list[FieldError] = []
    found, name = revision(service, wrong), broker(service, wrong)
    faults = {error.field: f"found {error.found}, expected {error.expected}" for error in wrong}
    checks = [
        system.Check(name="database", ok="database" not in faults, detail=faults.get("database", f"revision {found}")),
        system.Check(name="broker", ok="broker" not in faults, detail=faults.get("broker", _place(name))),
    ]
    with service.db.reading() as session:
        by_state, asks_open, kernels = system.counts(session)
        return system.SystemDocument(
            version=system.versions()["warpsmith"],
            as_of=now,
            keys_required=service.settings.keys_required,
            database="sqlite" if service.db.is_sqlite else "postgresql",
            checks=checks,
            queues=system.queues(session, now, service.alive_after_s),
            devices=system.devices(session),
            workers_alive=system.workers_alive(session, now, service.alive_after_s),
            searches_by_state=by_state,
            asks_open=asks_open,
            kernels=kernels,
            versions=system.versions(),
        )


def _place(address: str) -> str:
    """A broker's address; of a private one, whose socket lies in the service's own directory, no path."""
    return "a private Redis of this machine" if address.startswith("redis+socket:") else address


@router.get("/v1/options", summary="What a submission can say")
def get_options(service: ServiceDependency) -> OptionsDocument:
    """Targets with their languages and live judges, policies with their parameters, limits, who may answer."""
    with service.db.reading() as session:
        return options(session, service.settings, time.time() - service.alive_after_s)


@router.get("/v1/examples", summary="Op specs that ship")
def list_examples() -> Page[ExampleDocument]:
    """The op specs that ship with Warpsmith, by name and on one page."""
    return Page(items=list(examples()), next=None)
