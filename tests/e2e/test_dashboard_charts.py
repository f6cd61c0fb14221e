"""The charts of a search: what the best came to, what mattered, each as large as there is room for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browsing import NARROW, WIDE, barriers, small_text, visiting
from tests.support.api_support import application, served, settings_for
from tests.support.grown_search import grow
from tests.support.waiting import wait_until

VERY_WIDE = (1920, 1080)


@dataclass(frozen=True)
class House:
    """A served API with a search of 200 nodes."""

    url: str
    search: str
    best: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The API alone: these pages need no worker."""
    app = application(settings_for(tmp_path_factory.mktemp("house")))
    search = grow(app.state.service.db)
    with served(app) as url:
        best = httpx.get(f"{url}/v1/searches/{search}").json()["best"]["node_id"]
        yield House(url, search, best)


def overflow_px(page: Page) -> int:
    """By how much the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def open_large(page: Page, title: str) -> None:
    """Enlarge a plot by keyboard, look at it, and close it with Escape, which gives the focus back."""
    button = page.get_by_role("button", name=f"Enlarge: {title}")
    before = page.get_by_role("figure", name=title).get_by_role("img").first.bounding_box()
    button.focus()
    button.press("Enter")
    dialog = page.get_by_role("dialog", name=title)
    window = page.viewport_size
    assert before
    assert window

    def large_and_whole() -> bool:
        """Drawn again in the place that it has in the dialog, and all of it in the window."""
        after = dialog.get_by_role("img", name=title).bounding_box()
        assert after
        larger = after["width"] * after["height"] > before["width"] * before["height"]
        return larger and after["y"] + after["height"] <= window["height"]

    wait_until(large_and_whole, what=f"a larger plot, whole in the window: {title}")
    plot = dialog.get_by_role("application")
    plot.focus()
    plot.press("ArrowRight")
    expect(plot).not_to_be_empty()
    assert barriers(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


@pytest.mark.parametrize(
    ("size", "scheme"),
    [
        pytest.param(WIDE, "light", marks=pytest.mark.nightly),
        (NARROW, "dark"),
        pytest.param(VERY_WIDE, "light", marks=pytest.mark.nightly),
    ],
)
def test_charts_are_large_whole_and_reachable(
    chromium: Browser, house: House, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    with visiting(chromium, house.url, size, color_scheme=scheme, reduced_motion="reduce") as visit:
        page = visit.open(f"/searches/{house.search}?tab=progress")
        assert overflow_px(page) <= 0
        assert small_text(page) == []
        assert barriers(page) == []
        open_large(page, "Best so far")
        visit.is_clean()


def test_what_mattered_in_a_search_leads_to_the_candidate_that_was_best(chromium: Browser, house: House) -> None:
    with visiting(chromium, house.url, reduced_motion="reduce") as visit:
        page = visit.open(f"/searches/{house.search}?tab=mattered")
        expect(page.get_by_text(re.compile("The technique explains .* of the variance"))).to_be_visible()
        slice_of = page.get_by_role("application", name=re.compile("Slice of BLOCK"))
        slice_of.press("Home")
        expect(slice_of).to_contain_text("BLOCK=32")
        slice_of.press("Enter")
        expect(page).to_have_url(re.compile("tab=mattered&node=nd_"))
        visit.is_clean()


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_what_mattered_in_a_search_is_drawn_and_reachable(
    chromium: Browser, house: House, size: tuple[int, int], scheme: Literal["light", "dark"]
) -> None:
    with visiting(chromium, house.url, size, color_scheme=scheme, reduced_motion="reduce") as visit:
        page = visit.open(f"/searches/{house.search}?tab=progress")
        assert not [url for url in visit.requests if "Mattered" in url or url.endswith("/mattered")], "not asked for"
        page = visit.open(f"/searches/{house.search}?tab=mattered")
        mattered = page.get_by_role("figure", name="What mattered: techniques")
        for measure, axis in (("Tried", "candidates, %"), ("Gain", "median and range"), ("Cost", "US dollars")):
            mattered.get_by_role("button", name=measure, exact=True).click()
            expect(mattered.locator("svg text").filter(has_text=axis)).to_be_visible()
        open_large(page, "What mattered: tunables")
        parallel = page.get_by_role("application", name=re.compile("Parallel coordinates"))
        parallel.press("Home")
        parallel.press("Enter")
        page.get_by_role("button", name=re.compile("BLOCK=256: show all")).click()
        page.get_by_label("Across").select_option("WARPS")
        expect(page.get_by_role("figure", name="Heat map of two tunables").get_by_role("img")).to_have_accessible_name(
            re.compile("WARPS=. and STAGES=")
        )
        assert overflow_px(page) <= 0
        assert small_text(page) == []
        assert barriers(page) == []
        visit.is_clean()


@pytest.mark.nightly
def test_a_swept_candidate_says_which_tunable_mattered(chromium: Browser, house: House) -> None:
    with visiting(chromium, house.url) as visit:
        page = visit.open(f"/searches/{house.search}?tab=list&node={house.best}&view=workloads")
        plot = page.get_by_role("application", name=re.compile("What mattered: tunables"))
        plot.focus()
        plot.press("ArrowRight")
        expect(plot).to_contain_text("BLOCK")
        open_large(page, "What mattered: tunables")
        expect(page.get_by_role("button", name="Enlarge: What mattered: tunables")).to_be_visible()
        assert f"node={house.best}" in page.url, "Escape closed the plot, and not the node"
        visit.is_clean()
