"""A tree of 5,000 nodes in the browser: all of it is there, and it answers. `node bench/tree.mjs` counts frames."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import bindparam, select, update

from benchmarks.trees import plant
from tests.e2e.browsing import visiting
from tests.support.api_support import application, served, settings_for
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import NodeRow

SIZE, CHILDREN = 5000, 4


def grow(db: Database) -> str:
    """A running search of SIZE nodes with CHILDREN under each, as far as they go; its id."""
    search_id, _ = plant(db, SIZE)
    with db.writing() as session:
        ids = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)).all()
        parents = [{"own": node, "above": ids[at // CHILDREN]} for at, node in enumerate(ids[1:])]
        session.connection().execute(
            update(NodeRow).where(NodeRow.id == bindparam("own")).values(parent_id=bindparam("above")), parents
        )
    return search_id


def drag_the_map(page: Page, search_id: str) -> None:
    """What is in view follows the pointer on the map, down the tree, until it is let go."""

    def top() -> float:
        # A page that is left keeps its view.
        kept = "(key) => { dispatchEvent(new Event('pagehide')); return JSON.parse(sessionStorage.getItem(key)) }"
        return float(page.evaluate(kept, f"warpsmith-tree-{search_id}")["view"]["camera"]["y"])

    drawn = page.locator("canvas:not([role=application] *)").nth(1)  # the frame, above the map
    drawn.scroll_into_view_if_needed()
    box = drawn.bounding_box()
    assert box is not None
    across, seen = box["x"] + box["width"] / 2, [top()]
    page.mouse.move(across, box["y"] + 0.2 * box["height"])
    page.mouse.down()
    seen.append(top())
    page.mouse.move(across, box["y"] + 0.8 * box["height"], steps=3)
    seen.append(top())
    page.mouse.up()
    page.mouse.move(across, box["y"] + 0.5 * box["height"])
    before, pressed, dragged = seen
    assert pressed != before
    assert dragged < pressed - box["height"]
    assert top() == dragged


@pytest.mark.nightly
def test_five_thousand_nodes_are_drawn_found_and_opened(chromium: Browser, tmp_path: Path) -> None:
    app = application(settings_for(tmp_path))
    search_id = grow(app.state.service.db)
    with served(app) as url, visiting(chromium, url, reduced_motion="reduce") as visit:
        page = visit.open(f"/searches/{search_id}")
        drawing = page.get_by_role("application", name=re.compile(f"Tree of {SIZE - 1} ideas"))
        expect(drawing).to_be_visible()
        painted = page.evaluate(
            """() => [...document.querySelectorAll('canvas')].some((canvas) => canvas.getContext('2d')
                .getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"""
        )
        assert painted
        for _ in range(8):
            page.get_by_role("button", name="Zoom in").click()
        drag_the_map(page, search_id)
        find = page.get_by_placeholder(re.compile("Find"))
        find.fill("#4321")
        find.press("Enter")
        find.press("Escape")
        drawing.press("Enter")
        expect(page).to_have_url(re.compile("node=nd_"))
        expect(page.get_by_text("idea 4321").first).to_be_visible()

        page.get_by_role("tab", name="List").click()
        expect(page.get_by_role("treeitem", selected=True)).to_contain_text("#4321")
        page.get_by_role("treeitem", selected=True).press("End")
        expect(page.locator("[role=treeitem]:focus")).to_be_visible()
        visit.is_clean()
