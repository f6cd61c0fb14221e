"""The pictures of the dashboard in `docs/`, of a search that ships with Warpsmith.

`WARPSMITH_TEST_PICTURES=docs/pictures python -m pytest tests/e2e/test_dashboard_pictures.py`
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.browsing import NARROW, WIDE, pages_of, visiting
from tests.support.launching import REPOSITORY, up, warpsmith

PLACE = os.environ.get("WARPSMITH_TEST_PICTURES")
SPEC = REPOSITORY / "examples" / "fused_add_mul_relu.yaml"
POOL = REPOSITORY / "examples" / "pools" / "fused_add_mul_relu.cpu.jsonl"
NARROW_TOO = ("searches", "tree", "node-idea", "kernel")


@pytest.mark.skipif(PLACE is None, reason="WARPSMITH_TEST_PICTURES names no directory for pictures")
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_page_has_its_picture_in_light_and_dark(chromium: Browser, tmp_path: Path) -> None:
    assert PLACE is not None
    place = Path(PLACE)
    place.mkdir(parents=True, exist_ok=True)
    with up(tmp_path / "home") as (_, document):
        base = document["url"].rstrip("/")
        arguments = ("search", str(SPEC), "--model", f"replay:{POOL}", "--budget", "candidates=6", "--json")
        done = warpsmith(tmp_path / "home", *arguments, patience_s=900)
        search = json.loads(done.stdout)["search"]
        assert search["state"] == "finished", search
        for scheme in ("light", "dark"):
            for size, kind in ((WIDE, ""), (NARROW, "narrow-")):
                with visiting(chromium, base, size, color_scheme=scheme, reduced_motion="reduce") as visit:
                    for name, path in pages_of(base, search["id"]).items():
                        if not kind or name in NARROW_TOO:
                            visit.open(path).screenshot(path=place / f"{name}-{kind}{scheme}.png")
                    visit.is_clean()
