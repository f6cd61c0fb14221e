"""A campaign from the stage that is stored to its end: profile, search, measure in the model.

The service has the whole state, so a campaign goes on from any machine with the model's file. Each stage is stored
before the next begins, and a search is submitted under a key made of the campaign and the op: whatever moment the
client dies at, no search is submitted twice.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.spec.op import Op, load_op
from warpsmith.service.client import campaign_plan as plan
from warpsmith.service.client.archive import ArchiveError, unpack
from warpsmith.service.client.errors import CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.client.http import RECONNECT_FOR_S, WORTH_WAITING, Client
from warpsmith.service.client.progress import count_nodes, describe_best, needs_person
from warpsmith.service.documents.campaigns import ALL, CampaignDocument, CampaignRegion
from warpsmith.service.documents.figures import format_limits
from warpsmith.service.documents.pools import PoolDocument
from warpsmith.service.documents.searches import SearchDocument
from warpsmith.workers.optimize.client import Died, Refused, ask
from warpsmith.workers.search.tree import ENDED

POLL_S = 1.0
ALL_SPECS = 10_000
RECORDED = {"provider": "replay"}
"""The model of a campaign whose searches take the newest stored pool of their op."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Here:
    """What a campaign needs of this machine: the model's file, where the package goes, the judge's cache."""

    model: Path
    output: Path
    cache: Path


class CampaignRun:
    """One campaign under way; `campaign` is its latest document. `pause` waits between looks at the searches."""

    def __init__(
        self,
        client: Client,
        campaign: CampaignDocument,
        here: Here,
        say: Say,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.campaign = campaign
        self._pause = pause
        self._client = client
        self._here = here
        self._say = say

    def run(self) -> CampaignDocument:
        """Do the stages that are left. Raises what stopped it, after storing it."""
        stages = {"profiling": self._profile, "searching": self._search, "measuring": self._measure}
        try:
            while self.campaign.state != "finished":
                stages[self.campaign.state]()
        except (Refused, Died, ArchiveError, CommandError) as error:
            self._store(stopped=str(error)[: plan.LONGEST])
            raise
        return self.campaign

    @property
    def _regions(self) -> list[CampaignRegion]:
        return self.campaign.progress.regions

    def _store(self, **changes: Any) -> None:
        progress = self.campaign.progress.model_copy(update={"stopped": None, **changes})
        self.campaign = self._client.change_campaign(self.campaign.id, self.campaign.revision, progress)

    def _store_region(self, changed: CampaignRegion) -> None:
        self._store(regions=[changed if one.name == changed.name else one for one in self._regions])

    def _profile(self) -> None:
        settings = self.campaign.settings
        with tempfile.TemporaryDirectory(prefix="warpsmith-campaign-") as specs:
            options = {"output": specs, "cache": str(self._here.cache), "top": ALL_SPECS, "force": False}
            found = self._ask("profile", **options)
            regions = [plan.read_region(one) for one in found["opportunities"]]
            ops = {one["name"]: load_op(Path(one["file"])) for one in found["opportunities"] if one["file"]}
        for note in found["notes"]:
            self._say(f"note: {note}")
        pools = self._client.pools() if settings.model == RECORDED else []
        regions = [self._with_model(one, ops.get(one.name), pools) for one in regions]
        chosen = plan.choose_regions(regions, settings.top, settings.budget)
        regions = [
            one if one.reason else one.model_copy(update={"op_id": self._client.create_op(ops[one.name].document()).id})
            for one in chosen
        ]
        self._store(state="searching", profile=plan.read_profile(found), regions=regions)

    def _with_model(self, region: CampaignRegion, op: Op | None, pools: Sequence[PoolDocument]) -> CampaignRegion:
        settings = self.campaign.settings
        if op is None or settings.model != RECORDED:
            return region.model_copy(update={"model": settings.model})
        for pool in pools:  # newest first
            header = pool.header
            fits = header["op_digest"] == op.semantic_digest and header["target"].startswith(settings.device)
            if fits and settings.language in (None, header["language"]):
                return region.model_copy(update={"model": {**RECORDED, "pool": pool.id}})
        return region.model_copy(update={"reason": "no replies are recorded for it"})

    def _search(self) -> None:
        for region in self._regions:
            if region.reason is None and region.search_id is None:
                self._submit(region)
        self._await_searches()
        for region in self._regions:
            if region.reason is None and region.search_id is not None:
                self._store_region(self._with_kernel(region, self._client.search(region.search_id)))
        self._store(state="measuring")

    def _submit(self, region: CampaignRegion) -> None:
        settings = self.campaign.settings
        body: dict[str, Any] = {"op_id": region.op_id, "target": settings.target, "model": region.model}
        optional = {"language": settings.language, "policy": settings.policy, "budget": region.budget or None}
        body |= {name: value for name, value in optional.items() if value is not None}
        try:
            created = self._client.create_search(body, idempotency_key=f"{self.campaign.id}-{region.name}")
        except ProblemError as error:
            if error.status != 422:
                raise
            self._store_region(region.model_copy(update={"reason": f"no search: {error}"[: plan.LONGEST]}))
            return
        changed = {"search_id": created.id, "search_state": created.state}
        self._store_region(region.model_copy(update=changed))
        self._say(f"search {created.id}: {region.name}, {format_limits(region.budget)}")

    def _await_searches(self) -> None:
        """Wait until every search has ended. Raises CommandError where one waits for a person to resume it."""
        seen = time.monotonic()
        while True:
            try:
                searches = [
                    self._look(one) for one in self._regions if one.search_state and one.search_state not in ENDED
                ]
                seen = time.monotonic()
            except (ServiceUnreachableError, ProblemError) as error:
                lasting = isinstance(error, ProblemError) and error.status not in WORTH_WAITING
                if lasting or time.monotonic() - seen > RECONNECT_FOR_S:
                    raise
                self._pause(POLL_S)
                continue
            paused = next((one.id for one in searches if needs_person(one)), None)
            if paused is not None:
                raise CommandError(f"search {paused} is paused; let it go on: warpsmith resume {paused}")
            if all(one.state in ENDED for one in searches):
                return
            self._pause(POLL_S)

    def _look(self, region: CampaignRegion) -> SearchDocument:
        """Get a region's search, and store its state where that has changed."""
        found = self._client.search(region.search_id or "")
        if found.state != region.search_state:
            self._store_region(region.model_copy(update={"search_state": found.state}))
            best = f", best {describe_best(found.best)}" if found.best else ""
            self._say(f"search {found.id} of {region.name} is {found.state}: {count_nodes(found)}{best}")
        return found

    def _with_kernel(self, region: CampaignRegion, search: SearchDocument) -> CampaignRegion:
        kernels = [self._client.kernel(kernel) for kernel in search.kernels]
        if not kernels:
            why = f"search {search.state}: {search.reason or 'no reason given'}"
            return region.model_copy(update={"reason": f"no kernel: {why}"[: plan.LONGEST]})
        best = max(kernels, key=lambda kernel: kernel.score)
        return region.model_copy(update={"kernel_id": best.id, "score": best.score, "score_ci95": best.ci95})

    def _measure(self) -> None:
        """Measure kernels in the model, and again without those that do not pay, until all that are left do."""
        with tempfile.TemporaryDirectory(prefix="warpsmith-campaign-") as scratch:
            projects = {one.name: self._unpack(one, Path(scratch) / one.name) for one in self._regions if one.kernel_id}
            while True:
                staying = [one for one in self._regions if one.kernel_id and one.reason is None]
                found = self._ask("ablate", packages=[str(projects[one.name]) for one in staying], **self._timing())
                names = {one.name for one in staying}
                regions = [
                    plan.assess(one, projects[one.name].name, found) if one.name in names else one
                    for one in self._regions
                ]
                variants = plan.read_variants(found)
                together = next((one.agrees for one in variants if one.variant == ALL), True)
                if not together and all(one.kept for one in regions if one.name in names):
                    regions = plan.drop_least(regions)
                self._store(regions=regions, variants=variants, rounds=self.campaign.progress.rounds + 1)
                if {one.name for one in regions if one.kept} in (names, set()):
                    break
            kept = [str(projects[one.name]) for one in self._regions if one.kept]
            package = self._write_package(kept) if kept else None
        self._store(state="finished", package=package)

    def _timing(self) -> dict[str, Any]:
        return {"mode": self.campaign.settings.mode, "keep": "faster", "time_s": self.campaign.settings.time_s}

    def _unpack(self, region: CampaignRegion, directory: Path) -> Path:
        written = unpack(self._client.export(region.kernel_id or ""), directory)
        return directory / written[0].relative_to(directory).parts[0]

    def _write_package(self, projects: Sequence[str]) -> str | None:
        """Write the package that compiles the model with these kernels; None where the model is not served by it."""
        place = self._here.output / self.campaign.id
        shutil.rmtree(place, ignore_errors=True)  # what a campaign that was killed left of its own
        place.mkdir(parents=True)
        timing = {name: value for name, value in self._timing().items() if name != "time_s"}
        found = self._ask("apply", packages=list(projects), output=str(place), **timing)
        return None if found["package"] is None else Path(found["package"]).name

    def _ask(self, command: str, **request: Any) -> dict[str, Any]:
        device = self.campaign.settings.device
        return ask({"command": command, "model": str(self._here.model), "device": device, **request})
