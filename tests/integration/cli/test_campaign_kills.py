"""A campaign whose client dies at any of its requests goes on, and submits no search twice.

The service, its database and its exports are real. The process that runs the model is replaced by its documents, and
the searches end at once with a kernel each: to go the real way at every one of the moments would take an hour. One
real way is in `tests/system/test_campaign_of_a_model.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from sqlalchemy import select

from tests.support.api_support import (
    ADD_RELU,
    CANDIDATE,
    TIMES,
    application,
    envelope_of,
    served,
    settings_for,
    workload,
)
from tests.support.campaigns import begun
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import KernelRow, OpRow, SearchRow
from warpsmith.service.client import campaign as campaign_module
from warpsmith.service.client.campaign import CampaignRun, Here
from warpsmith.service.client.errors import ProblemError
from warpsmith.service.client.http import Client
from warpsmith.service.documents.campaigns import CampaignDocument
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.optimize.client import Died

OPS = ("first", "second")
BUSY = "other processes took 88% of this host's processor time during the timing"


class Killed(BaseException):
    """The client's process ends here."""


class Mortal(Client):
    """A client that dies when the service has done its request number `last`, without hearing of it.

    An export is fetched once for all clients: it is the longest of the requests, and always the same.
    """

    exports: ClassVar[dict[str, bytes]] = {}

    def __init__(self, url: str, last: int = 1000) -> None:
        super().__init__(url)
        self.left = last

    def export(
        self, kernel_id: str, form: str = "package", others: Sequence[str] = (), name: str | None = None
    ) -> bytes:
        if kernel_id not in self.exports:
            self.exports[kernel_id] = super().export(kernel_id, form, others, name)
        return self.exports[kernel_id]

    def _send_raw(self, method: str, path: str, **arguments: Any) -> Any:
        answer = super()._send_raw(method, path, **arguments)
        if self.left == 0:
            raise Killed
        self.left -= 1
        return answer


@dataclass
class House:
    """A served API, and where the model's package goes."""

    url: str
    db: Database
    output: Path
    said: list[str] = field(default_factory=list)

    def run(self, client: Client, campaign: CampaignDocument) -> CampaignDocument:
        here = Here(self.output / "model.py", self.output, self.output)
        return CampaignRun(client, campaign, here, self.said.append, self.end_searches).run()

    def searches(self) -> list[str]:
        with self.db.reading() as session:
            return list(session.scalars(select(SearchRow.id)))

    def end_searches(self, _: float) -> None:
        """End every search, as one that kept a kernel; the same code is one kernel, with the latest evidence."""
        with self.db.writing() as session:
            for search in session.scalars(select(SearchRow).where(SearchRow.state != "finished")):
                search.state = "finished"
                kernel = session.scalar(select(KernelRow).where(KernelRow.op_id == search.op_id))
                if kernel is not None:
                    kernel.search_id = search.id
                    continue
                op = session.get_one(OpRow, search.op_id)
                session.add(
                    KernelRow(
                        id=new_id("kn"),
                        op_id=op.id,
                        target=search.target,
                        search_id=search.id,
                        language="cpp",
                        source=CANDIDATE,
                        source_digest=normalised_digest(CANDIDATE),
                        score=2.0,
                        ci_low=1.9,
                        ci_high=2.1,
                        envelope=envelope_of(load_op(ADD_RELU.replace("add_relu", op.name))),
                        evidence={"workloads": [workload("large", "bench", TIMES)], "device": {"name": "a test"}},
                        lineage=[],
                        created_at=time.time(),
                    )
                )


def run_model(request: dict[str, Any]) -> dict[str, Any]:
    """The documents of `python -m warpsmith.workers.optimize`: the second kernel pays only while the first is there."""
    if request["command"] == "profile":
        files = {name: Path(request["output"]) / f"{name}.yaml" for name in OPS}
        for name, file in files.items():
            file.write_text(ADD_RELU.replace("add_relu", name))
        rows = [
            {
                "name": name,
                "operators": "add + relu",
                "places": ["layers.0"],
                "time_us": 300.0,
                "share": 0.3,
                "limit_us": 100.0,
                "limit_by": "bytes",
                "saving_us": 200.0,
                "joins": 1,
                "counted": 1,
                "file": str(file),
                "reason": None,
            }
            for name, file in files.items()
        ]
        times = {"model_us": 1500.0, "compiled_us": 1000.0, "total": {"saving_us": 400.0}}
        return {"device": "cpu", "graphs": 1, "opportunities": rows, "notes": [BUSY], **times}
    kernels = [Path(package).name for package in request["packages"]]
    if request["command"] == "apply":
        made = Path(request["output"]) / "model_kernels"
        made.mkdir()
        return {"package": str(made)}
    gains = {kernel: [0.9, 1.1] if "second" in kernel else [1.1, 1.3] for kernel in kernels}
    row: dict[str, Any] = {"ms": 1.0, "ms_ci95": None, "speedup": 1.5, "speedup_ci95": None}
    row |= {"over_compiled": 1.2, "over_compiled_ci95": [1.1, 1.3], "agrees": True}
    gain = {"speedup": 1.2, "saved_us": 100.0}
    return {
        "places": [{"kernel": kernel, "replaced": True, "reason": None} for kernel in kernels],
        "brings": [
            {"kernel": kernel, "alone": gain | {"ci95": ci95}, "beside": gain | {"ci95": ci95}}
            for kernel, ci95 in gains.items()
        ],
        "variants": [{"variant": name, **row} for name in ("model", "compiled", "rewrites", "all")],
        "unusable": {},
    }


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """An API without workers; the client's wait is when the searches end."""
    app = application(settings_for(tmp_path / "home"))
    with served(app) as url:
        found = House(url, app.state.service.db, tmp_path)
        monkeypatch.setattr(campaign_module, "ask", run_model)
        yield found


@pytest.mark.parametrize(
    "moments",
    [
        # An op is stored; the profile is not heard of; a search is submitted and not stored; kernels are measured.
        pytest.param((1, 2, 3, 5, 14), id="some"),
        pytest.param(range(100), id="each", marks=pytest.mark.nightly),
    ],
)
def test_whatever_request_a_client_dies_at_no_search_is_submitted_twice(house: House, moments: Sequence[int]) -> None:
    died = 0
    with Mortal(house.url) as client:
        for last in moments:
            began, before = client.create_campaign(begun()), set(house.searches())
            mortal = Mortal(house.url, last)
            with mortal:
                try:
                    house.run(mortal, began)
                except Killed:
                    died += 1
            final = client.campaign(began.id)
            if final.state != "finished":
                final = house.run(client, final)
            submitted = set(house.searches()) - before
            assert len(submitted) == len(OPS), f"after request {last}"
            assert {region.search_id for region in final.progress.regions} == submitted
            assert [region.kept for region in final.progress.regions] == [True, False]
            assert "not surely faster" in (final.progress.regions[1].reason or "")
            assert final.progress.package == "model_kernels"
            assert (house.output / final.id / "model_kernels").is_dir()
            if mortal.left > 0:  # it outlived its last request
                break
    assert died == len(moments) or died > 20


def test_two_clients_do_not_go_on_with_one_campaign(house: House) -> None:
    with Mortal(house.url) as client, Mortal(house.url, 4) as mortal:
        began = client.create_campaign(begun())
        with pytest.raises(Killed):
            house.run(mortal, began)
        midway = client.campaign(began.id)
        house.run(client, midway)
        with pytest.raises(ProblemError, match="expected one that goes on"):
            house.run(client, midway)
    assert len(house.searches()) == len(OPS)
    assert f"note: {BUSY}" in house.said, "budgets rest on these times"


def test_what_stops_a_campaign_is_told_until_it_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(_: dict[str, Any]) -> dict[str, Any]:
        raise Died("the process that runs the model ended with signal 9")

    with Mortal(house.url) as client:
        began = client.create_campaign(begun())
        monkeypatch.setattr(campaign_module, "ask", dies)
        with pytest.raises(Died):
            house.run(client, began)
        stopped = client.campaign(began.id)
        assert (stopped.state, stopped.stopped) == ("profiling", "the process that runs the model ended with signal 9")
        monkeypatch.setattr(campaign_module, "ask", run_model)
        assert house.run(client, stopped).stopped is None
