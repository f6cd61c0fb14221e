"""Routes of the service's state, the options of a submission, and the op specs that ship."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter

from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.examples import ExampleDocument, load_examples
from warpsmith.service.api.options import OptionsDocument, collect_options
from warpsmith.service.api.probes import Outcome
from warpsmith.service.documents.page import Page
from warpsmith.service.views import system

CHECKED_WITHIN_S = 2.5
"""Age in seconds of a check that still counts: the database is checked every 2 s, and many pages may ask."""

router = APIRouter(tags=["system"])


@router.get("/v1/system", summary="The state of the service")
def get_system(service: ServiceDependency, asker: Asker) -> system.SystemDocument:
    """Get the state of database and broker, queues and workers, devices and peaks, versions."""
    now = service.db.now()
    probes = service.database_probe, service.broker_probe
    database, broker = (probe.ask_and_wait(CHECKED_WITHIN_S) for probe in probes)
    checks = [
        _make_check("database", database, f"revision {database.detail}"),
        _make_check("broker", broker, _describe_address(broker.detail)),
    ]
    with service.db.reading() as session:
        by_state, asks_open, kernels = system.count_rows(session)
        return system.SystemDocument(
            version=system.list_versions()["warpsmith"],
            as_of=now,
            keys_required=service.settings.keys_required,
            database="sqlite" if service.db.is_sqlite else "postgresql",
            checks=checks,
            queues=system.list_queues(session, now, service.alive_after_s),
            devices=system.list_devices(session),
            workers_alive=system.count_live_workers(session, now, service.alive_after_s),
            searches_by_state=by_state,
            asks_open=asks_open,
            kernels=kernels,
            quotas=system.list_quotas(session, asker.reads, now),
            versions=dict(system.list_versions()),
        )


def _make_check(name: Literal["database", "broker"], outcome: Outcome, detail: str) -> system.Check:
    fault = outcome.fault
    if fault is not None:
        detail = f"found {fault.found}, expected {fault.expected}"
    return system.Check(name=name, ok=fault is None, detail=detail)


def _describe_address(address: str) -> str:
    """Describe a broker's address; hides the path of a private one in the service's directory."""
    return "a private Redis of this machine" if address.startswith("redis+socket:") else address


@router.get("/v1/options", summary="Options of a submission")
def get_options(service: ServiceDependency) -> OptionsDocument:
    """Get targets with languages and live judges, policies with parameters, limits, providers."""
    with service.db.reading() as session:
        return collect_options(session, service.settings, service.db.now() - service.alive_after_s)


@router.get("/v1/examples", summary="Op specs that ship")
def list_examples() -> Page[ExampleDocument]:
    """List the op specs that ship with Warpsmith, by name and on one page."""
    return Page(items=list(load_examples()), next=None)
