"""The pages of campaigns: one that is finished, one that was stopped, one that has only begun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browsing import NARROW, WIDE, barriers, visiting
from tests.kinds import nightly_but
from tests.support.api_support import application, served, settings_for
from tests.support.campaigns import PROGRESS, begun

PICTURES = os.environ.get("WARPSMITH_TEST_PICTURES")


@dataclass(frozen=True)
class House:
    """A served API with three campaigns, by what they have come to."""

    url: str
    ids: dict[str, str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The API alone: these pages need no worker."""
    with served(application(settings_for(tmp_path_factory.mktemp("house")))) as url:
        searching = [{**region, "kept": False} for region in PROGRESS["regions"]]
        searching[0] |= {"search_state": "running", "kernel_id": None, "score": None, "alone": None, "beside": None}
        stopped = {"state": "searching", "stopped": "search sr_1 is paused", "regions": searching}
        ids = {
            "begun": begin(url),
            "stopped": begin(url, PROGRESS | stopped | {"variants": [], "package": None}),
            "finished": begin(url, PROGRESS),
        }
        yield House(url, ids)


def begin(url: str, progress: dict[str, Any] | None = None) -> str:
    campaign = httpx.post(f"{url}/v1/campaigns", json=begun()).json()
    if progress is not None:
        body = {"revision": campaign["revision"], "progress": progress}
        assert httpx.put(f"{url}/v1/campaigns/{campaign['id']}", json=body).status_code == httpx.codes.OK
    return str(campaign["id"])


def test_a_finished_campaign_says_what_it_brought_and_why_not_more(chromium: Browser, house: House) -> None:
    with visiting(chromium, house.url) as visit:
        page = visit.open("/campaigns")
        assert page.get_by_role("link", name="Campaigns").get_attribute("aria-current") == "page"
        row = page.get_by_role("row").filter(has_text="finished")
        for text in ("transformer.py", "1 of 2", "900 µs", "500 µs", "400 µs", "1.25x", "1.20\u20131.30"):
            expect(row).to_contain_text(text)
        row.get_by_role("link", name="transformer.py").click()
        page.wait_for_url(f"{house.url}/campaigns/{house.ids['finished']}")
        shares = page.get_by_role("list", name="torch.compile, by regions").get_by_role("listitem")
        expect(shares).to_have_text(
            ["rms + norm + linear + gelu 50 %, stays", "attention 24 %, no gain", "everything else 26 %"]
        )
        table = page.get_by_role("table", name="Regions of the model")
        expect(table.get_by_role("row")).to_have_count(4)
        out = table.get_by_role("row").filter(has_text="attention")
        expect(out).to_contain_text("the model is not surely faster with it: 0.99x [0.96, 1.02]")
        kept = table.get_by_role("row").filter(has_text="gelu")
        for text in ("stays", "1.70x", "1.25x", "100 µs"):
            expect(kept).to_contain_text(text)
        assert kept.get_by_role("link", name="Search sr_1").get_attribute("href") == "/searches/sr_1"
        expect(page.get_by_text("from transformer_kernels import optimize")).to_be_visible()
        visit.is_clean()


def test_a_campaign_that_was_stopped_says_how_it_goes_on(chromium: Browser, house: House) -> None:
    with visiting(chromium, house.url) as visit:
        page = visit.open(f"/campaigns/{house.ids['stopped']}")
        expect(page.get_by_text("It was stopped: search sr_1 is paused.")).to_contain_text("--resume")
        expect(page.get_by_text("stopped while searching")).to_be_visible()
        page = visit.open(f"/campaigns/{house.ids['begun']}")
        expect(page.get_by_text("The model is being profiled")).to_be_visible()
        visit.is_clean()


@pytest.mark.parametrize("size", nightly_but(NARROW.__eq__, [WIDE, NARROW]), ids=["wide", "narrow"])
def test_the_pages_of_campaigns_keep_nobody_out(chromium: Browser, house: House, size: tuple[int, int]) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    pages = {"campaigns": "/campaigns"}
    pages |= {f"campaign-{name}": f"/campaigns/{house.ids[name]}" for name in ("stopped", "finished")}
    found = []
    with visiting(chromium, house.url, size, reduced_motion="reduce") as visit:
        for name, path in pages.items():
            page = visit.open(path)
            for scheme in schemes:
                page.emulate_media(color_scheme=scheme)
                found += [f"{name}, {scheme}: {line}" for line in barriers(page)]
                if PICTURES is not None:
                    page.screenshot(path=Path(PICTURES) / f"{name}-{size[0]}-{scheme}.png", full_page=True)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} pixels wider than the window"
        visit.is_clean()
    assert found == []
