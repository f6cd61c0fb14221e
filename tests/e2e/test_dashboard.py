"""The whole service, by the command line and by the dashboard in a browser: searches that really run, from the op to a
package in use.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browsing import NARROW, WIDE, Visit, barriers, pages_of, small_text, visiting
from tests.e2e.test_agent import IDEA
from tests.e2e.test_main_job import USE
from tests.support import scenario
from tests.support.launching import PATIENCE_S, REPLIES, family, living, up, warpsmith, write_scenario
from warpsmith.kernels_db.library import entries

WAIT_MS = 1000 * 2 * PATIENCE_S
# The kernel that an earlier search kept is planted in the next one: to be no duplicate, this one runs backwards.
BACKWARDS = scenario.LOOP.replace("int64_t i = 0; i < n; ++i", "int64_t i = n - 1; i >= 0; --i")
GOOD = f"```python\n{scenario.candidate(BACKWARDS)}```"


@dataclass(frozen=True)
class House:
    """A whole service with a recorded pool and one search that has ended."""

    url: str
    home: Path
    spec: Path
    pool: Path
    found: dict[str, Any]
    launcher: int

    @property
    def search(self) -> str:
        """The id of the search that has ended."""
        return str(self.found["search"]["id"])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Everything on this machine, started once."""
    place = tmp_path_factory.mktemp("house")
    home, (spec, pool) = place / "home", write_scenario(place)
    with up(home) as (launcher, document):
        done = warpsmith(home, "search", str(spec), "--model", f"replay:{pool}", "--json")
        yield House(document["url"].rstrip("/"), home, spec, pool, json.loads(done.stdout), launcher.pid)


def submit(visit: Visit, spec: Path, who: str, **budget: int) -> Page:
    """Fill in the form for a new search and start it; returns the page of the search."""
    page = visit.open("/searches/new")
    page.get_by_label("A spec's file").set_input_files(spec)
    expect(page.get_by_text("The spec is valid.")).to_be_visible()
    page.get_by_role("radio", name=re.compile(who)).check()
    if who == "A recorded pool":
        page.get_by_label("Pool", exact=True).select_option(index=1)
    for field, value in budget.items():
        page.get_by_label(field, exact=True).fill(str(value))
    start = page.get_by_role("button", name="Start the search")
    expect(start).to_be_enabled()
    start.dblclick()
    page.wait_for_url(re.compile(r"/searches/sr_"))
    return page


def state(page: Page, word: str) -> None:
    """Wait until the page says, without being loaded again, that the search is in a state."""
    expect(page.locator("h1").locator("xpath=../..").get_by_text(word, exact=True).first).to_be_visible(timeout=WAIT_MS)


def test_the_command_line_does_the_whole_job_against_a_running_service(house: House, tmp_path: Path) -> None:
    def documents(*arguments: str) -> Any:
        return json.loads(warpsmith(house.home, *arguments, "--json").stdout)

    found = house.found
    assert found["search"]["state"] == "finished"
    assert found["search"]["best"]["verified"] is True
    (kernel,) = documents("kernels", "--op", "scale_shift")
    listed = documents("searches")
    assert [(item["id"], item["op_name"]) for item in listed] == [(found["search"]["id"], "scale_shift")]
    shipped = {entry.op.name for entry in entries()}
    assert {item["name"] for item in documents("ops", "list")} == {"scale_shift"} | shipped
    assert {item["op_name"] for item in documents("kernels")} == {"scale_shift"} | shipped

    exported = documents("export", "scale_shift", "--output", str(tmp_path / "out"))
    assert exported["kernel"] == kernel["id"]
    assert all(Path(path).is_file() for path in exported["files"])
    assert exported["verification"]["kernel_ran"], exported["verification"]
    again = documents("export", kernel["id"], "--no-verify", "--output", str(tmp_path / "out"))
    assert again["files"] == exported["files"]
    changed = Path(next(path for path in exported["files"] if path.endswith("_kernel.py")))
    changed.write_text("# mine")
    refused = warpsmith(house.home, "export", kernel["id"], "--output", str(tmp_path / "out"), code=1)
    assert "--force" in refused.stderr
    unknown = warpsmith(house.home, "export", "soft_max", code=2)
    assert "scale_shift" in unknown.stderr

    replies = tmp_path / "replies.jsonl"
    recorded = documents("export", found["search"]["id"], "--format", "pool", "--output", str(replies))
    assert recorded["replies"] == len(replies.read_text().splitlines()) - 1 == REPLIES
    stored = documents("import", str(replies), "--format", "pool")
    assert stored["id"] in {item["id"] for item in documents("pools", "list")}

    tree = warpsmith(house.home, "tree", found["search"]["id"]).stdout
    assert re.search(r"\* #\d \w+ ", tree)
    assert re.search(r"#3 unheard .* closed \(pool", tree)
    missing = warpsmith(house.home, "tree", "sr_none", code=1)
    assert "sr_none" in missing.stderr

    asked = documents("search", str(house.spec), "--model", "agent", "--detach")
    assert documents("pause", asked["id"])["state"] == "paused"
    assert documents("resume", asked["id"])["state"] == "running"
    assert documents("cancel", asked["id"])["state"] == "cancelled"
    ended = warpsmith(house.home, "pause", asked["id"], code=1)
    assert "cancelled" in ended.stderr


def test_a_search_from_the_form_to_a_package_in_use(chromium: Browser, house: House, tmp_path: Path) -> None:
    with visiting(chromium, house.url) as visit:
        page = submit(visit, house.spec, "A recorded pool")
        page.reload()
        state(page, "finished")
        page.get_by_role("tab", name="List").click()
        tree = page.get_by_role("tree")
        expect(tree.get_by_role("treeitem")).to_have_count(5)
        tree.get_by_role("treeitem", name=re.compile("restrict")).click()
        page.get_by_role("tab", name="Code").click()
        expect(page.get_by_text("cpp.compile").first).to_be_visible()
        page.get_by_role("button", name="Diff", exact=True).click()
        added = page.get_by_role("img", name="added").first
        expect(added).to_be_visible()
        assert "node=" in page.url
        assert "view=diff" in page.url
        page.reload()
        expect(added).to_be_visible()

        searched = re.search("sr_[0-9a-z]+", page.url)[0]  # type: ignore[index]  # it is a search's page
        best = httpx.get(f"{house.url}/v1/searches/{searched}").json()["best"]  # of two good ones, by a clock
        page.get_by_role("link", name=re.compile(f"^#{best['seq']} ")).first.click()
        page.get_by_role("link", name="Export").click()
        page.wait_for_url(re.compile("/kernels/"))
        with page.expect_download() as started:
            page.locator("a[download]").first.click()
        started.value.save_as(tmp_path / "kernel.zip")
        assert visit.foreign() == []
        assert visit.errors == []
    with zipfile.ZipFile(tmp_path / "kernel.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    [project] = [file.parent for file in (tmp_path / "unpacked").rglob("pyproject.toml")]
    package = next(file.parent.name for file in project.rglob("__init__.py"))
    source = project / "src" if (project / "src").is_dir() else project
    program = [sys.executable, "-c", USE, str(source), package]
    used = subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert used.stdout.split()[-1] == "True"


def lose_the_connection(house: House) -> None:
    """Kill the process that serves the page; the launcher starts another on the same socket."""
    [api] = [each for each in family(house.launcher) if "warpsmith.service.server.serve" in "".join(living([each]))]
    api.kill()


def answer(page: Page, reply: str) -> None:
    """Answer the first open ask of the search whose page is open."""
    page.get_by_role("tab", name=re.compile("Asks")).click()
    page.locator("a[href*='/asks/']").first.click(timeout=WAIT_MS)
    editor = page.get_by_role("textbox", name="Answer", exact=True)
    editor.fill(reply)
    page.get_by_role("button", name="Send the answer").click()
    expect(page.get_by_text("answered", exact=True).first).to_be_visible()


@pytest.mark.nightly
def test_a_person_answers_steers_and_cancels(chromium: Browser, house: House) -> None:
    with visiting(chromium, house.url) as visit:
        page = submit(visit, house.spec, "A person or an agent")
        here = page.url
        answer(page, json.dumps([IDEA]))
        page.goto(here)
        answer(page, GOOD)
        expect(page.get_by_text("accepted").first).to_be_visible(timeout=WAIT_MS)

        page.goto(here + "?tab=list")
        other = visit.second()
        other.goto(here + "?tab=list")
        page.get_by_role("treeitem", name=re.compile("one pass")).first.click()
        page.get_by_role("button", name="Pin").click()
        expect(page.get_by_role("button", name="Unpin")).to_be_visible()
        expect(other.get_by_text("pinned").first).to_be_visible()

        page.get_by_role("button", name="Ban", exact=True).click()
        expect(page.get_by_role("button", name="Unban")).to_be_visible()
        expect(other.get_by_text("banned").first).to_be_visible()
        expect(other.get_by_text("pinned")).to_have_count(0)
        [banned] = re.findall(r"node=(nd_\w+)", page.url)
        best = httpx.get(here.replace("/searches/", "/v1/searches/")).json()["best"]
        assert best is None or best["node_id"] != banned
        page.get_by_role("button", name="Unban").click()
        expect(page.get_by_role("button", name="Ban", exact=True)).to_be_visible()
        expect(other.get_by_text("banned")).to_have_count(0)

        lose_the_connection(house)
        expect(other.get_by_text(re.compile("reconnect", re.IGNORECASE)).first).to_be_visible(timeout=WAIT_MS)
        expect(other.get_by_text("Live", exact=True).first).to_be_visible(timeout=WAIT_MS)

        page.get_by_role("button", name="Pause").click()
        state(page, "paused")
        state(other, "paused")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        page.get_by_role("button", name="Cancel").first.click()
        page.get_by_role("dialog").get_by_role("button", name=re.compile("^Cancel the search")).click()
        state(page, "cancelled")
        state(other, "cancelled")
        assert visit.foreign() == []


@pytest.mark.nightly
def test_a_kept_candidate_is_profiled_and_branched_from(chromium: Browser, house: House, tmp_path: Path) -> None:
    with httpx.Client(base_url=f"{house.url}/v1") as client, visiting(chromium, house.url) as visit:
        node = client.get(f"/searches/{house.search}").json()["best"]["node_id"]
        page = visit.open(f"/searches/{house.search}?tab=list&node={node}&view=profile")
        page.get_by_role("button", name="Profile a few calls").click()
        save = page.get_by_role("button", name="Download Chrome trace")
        expect(save).to_be_visible(timeout=WAIT_MS)
        with page.expect_download() as started:
            save.click()
        started.value.save_as(tmp_path / "trace.json")
        profiled = page.get_by_role("table", name="What the profiled calls ran").locator("tbody code").first
        trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
        assert profiled.inner_text() in {event["name"] for event in trace["traceEvents"]}

        page.get_by_role("button", name="Branch").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Candidates at most").fill("1")
        dialog.get_by_role("button", name="Start the search").click()
        page.wait_for_url(lambda url: house.search not in url)
        branch = page.url.split("/")[-1].partition("?")[0]
        assert client.get(f"/searches/{branch}").json()["budget"]["candidates"] == 1
        first = client.get(f"/searches/{branch}/tree").json()["nodes"][1]["id"]
        sources = [client.get(f"/nodes/{each}/source").json()["source"] for each in (node, first)]
        assert sources[0] == sources[1]
        client.post(f"/searches/{branch}/cancel").raise_for_status()
        state(page, "cancelled")
        visit.is_clean()


def test_a_pool_is_uploaded_from_the_form(chromium: Browser, house: House, tmp_path: Path) -> None:
    header, *replies = house.pool.read_text("utf-8").splitlines()
    renamed = json.dumps(json.loads(header) | {"answered_by": "somebody else"})
    (tmp_path / "pool.jsonl").write_text("\n".join([renamed, *replies]) + "\n", "utf-8")
    with visiting(chromium, house.url) as visit:
        page = visit.open("/searches/new")
        page.get_by_role("radio", name=re.compile("A recorded pool")).check()
        chosen = page.get_by_label("Pool", exact=True)
        expect(chosen).to_have_value("")
        page.get_by_label("A pool's file").set_input_files(house.spec)
        expect(page.get_by_role("alert")).to_contain_text("The pool was not stored")
        page.get_by_label("A pool's file").set_input_files(tmp_path / "pool.jsonl")
        expect(chosen).to_have_value(re.compile("^pl_"))
        stored = httpx.get(f"{house.url}/v1/pools/{chosen.input_value()}").json()
        assert stored["header"]["answered_by"] == "somebody else"
        expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("size", [pytest.param(WIDE, marks=pytest.mark.nightly), NARROW], ids=["wide", "narrow"])
def test_a_form_that_quotes_a_long_word_stays_in_the_window(
    chromium: Browser, house: House, size: tuple[int, int]
) -> None:
    word = 100 * "a"
    with visiting(chromium, house.url, size) as visit:
        page = visit.open("/searches/new")
        page.get_by_label("A spec's file").set_input_files(house.spec)
        expect(page.get_by_text("The spec is valid.")).to_be_visible()
        tags, tokens = page.get_by_label("Tags", exact=True), page.get_by_label("Tokens", exact=True)
        for field, quotes in ((tags, "tags[0]"), (tokens, "expected a whole number")):
            field.fill(word)
            expect(page.get_by_text(quotes).first).to_be_visible()
            expect(field).to_have_attribute("aria-invalid", "true")
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"the page is {wide} pixels wider than the window"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.nightly
def test_no_page_keeps_anybody_out(chromium: Browser, house: House, size: tuple[int, int]) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    found, titles, pages = [], set(), pages_of(house.url, house.search)
    with visiting(chromium, house.url, size, reduced_motion="reduce") as visit:
        for name, path in pages.items():
            page = visit.open(path)
            for scheme in schemes:
                page.emulate_media(color_scheme=scheme)
                found += [f"{name}, {scheme}: {line}" for line in barriers(page)]
            assert page.locator("h1").count() == 1, name
            found += [f"{name}: {line}" for line in small_text(page)]
            titles.add(page.title())
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is {wide} pixels wider than the window"
        visit.is_clean()
    assert found == []
    assert len(titles) == len({path.partition("?")[0] for path in pages.values()}), titles
