"""Text of models, users and compilers on every page: nothing of it executes, nothing leaves the host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser
from sqlalchemy import update

from tests.e2e.browsing import VIEWS, visiting
from tests.support.api_support import application, seed, served, settings_for
from tests.support.campaigns import PROGRESS, begun
from warpsmith.kernels_db.store.campaigns import add_campaign
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    VerdictRow,
    WorkerRow,
)

PAYLOADS = (
    '<img src=x onerror="window.__executed.push(1)"><img src="http://203.0.113.7/leak">',
    '<script>window.__executed.push(2)</script></script><svg onload="window.__executed.push(3)">',
    "[click](javascript:window.__executed.push(4)) javascript:window.__executed.push(5)",
    "safe\u202etxt.exe\u2066 \u200bhidden\x1b[31m\u2069",
    "{{constructor.constructor('window.__executed.push(6)')()}} ${window.__executed.push(7)}",
    '"><style>@import url(http://203.0.113.7/x.css)</style><iframe srcdoc="<script>parent.__executed.push(8)</script>',
)
TEXT = "\n".join(PAYLOADS)
INVISIBLE = ("\u202e", "\u2066", "\u2069", "\u200b", "\x1b")
PAGES = (
    "/campaigns", "/campaigns/cm_bad",
    "/", "/kernels", "/kernels/kn_0", "/kernels/compare?a=kn_0&b=kn_0", "/asks", "/asks/ak_0", "/system", "/about",
    *(f"/searches/sr_seed?tab={tab}" for tab in ("tree", "list", "progress", "mattered", "asks", "story", "spec")),
    *(f"/searches/sr_seed?tab=list&node=nd_bad&view={view}" for view in VIEWS),
    f"/searches/new?op={PAYLOADS[0]}", f"/searches/{PAYLOADS[0]}", f"/{PAYLOADS[2]}",
)  # fmt: skip


def poison(db: Database) -> None:
    """Put the payloads wherever text of others is kept."""
    failure: dict[str, Any] = {
        "kind": "compile", "message": TEXT, "log": TEXT, "workload": PAYLOADS[0], "tensor": PAYLOADS[1], "found": TEXT,
        "expected": TEXT,
    }  # fmt: skip
    document = {
        "verdict": "rejected", "gate": "compile", "reason": TEXT, "workloads": [], "failure": failure,
        "compile": {"log": TEXT, "kernels": [{"name": PAYLOADS[0], "registers": 32, "spills": 0}]},
        "device": {"name": PAYLOADS[1], "type": "cpu"}, "versions": {PAYLOADS[2]: PAYLOADS[3]},
    }  # fmt: skip
    idea = dict.fromkeys(("title", "technique", "mechanism", "evidence", "expected_gain", "risk", "sketch"), TEXT)
    progress = PROGRESS | {"state": "measuring", "stopped": TEXT, "package": PAYLOADS[0]}
    texts = {"operators": PAYLOADS[0], "places": [TEXT], "reason": TEXT, "kept": False}
    progress["regions"] = [region | texts for region in PROGRESS["regions"]]
    with db.writing() as session:
        settings = begun()["settings"] | {"target": PAYLOADS[1][:60], "mode": PAYLOADS[1][:60]}
        row = add_campaign(
            session, model_name=PAYLOADS[0], model_digest="", settings=settings, progress=progress, now=time.time()
        )
        row.id = "cm_bad"
        session.execute(update(OpRow).values(name=PAYLOADS[0]))
        session.execute(update(NodeRow).where(NodeRow.id != "nd_root").values(idea=idea, technique=PAYLOADS[1][:60]))
        session.execute(update(NodeRow).where(NodeRow.id == "nd_bad").values(source=TEXT, reason=TEXT))
        session.execute(
            update(ModelCallRow).values(messages=[{"role": "user", "content": TEXT}], reply=TEXT, error=TEXT)
        )
        session.execute(update(AskRow).values(messages=[{"role": "user", "content": TEXT}]))
        session.execute(update(AttemptRow).values(owner=PAYLOADS[0], error=TEXT))
        session.execute(update(KernelRow).values(source=TEXT, lineage=[{"node_id": "nd_good", "idea": idea}]))
        session.execute(update(WorkerRow).values(facts={"host": PAYLOADS[0], "versions": {PAYLOADS[1]: TEXT}}))
        session.add(WorkerRow(name=PAYLOADS[0], role="model", facts={}, started_at=time.time(), seen_at=time.time()))
        attempt = AttemptRow(
            id="at_bad", search_id="sr_seed", node_id="nd_bad", kind="judge", ordinal=1, params={}, state="succeeded",
            created_at=time.time(),
        )  # fmt: skip
        session.add(attempt)
        session.flush()
        session.add(
            VerdictRow(
                id="vd_bad", search_id="sr_seed", node_id="nd_bad", attempt_id="at_bad", level="screen",
                verdict="rejected", gate="compile", document=document, created_at=time.time(),
            )
        )  # fmt: skip


def test_nothing_of_others_text_executes_or_leaves_the_host(chromium: Browser, tmp_path: Path) -> None:
    app = application(settings_for(tmp_path))
    seed(app.state.service.db, state="running")
    poison(app.state.service.db)
    shown: dict[str, str] = {}
    with served(app) as url, visiting(chromium, url) as visit:
        for path in PAGES:
            page = visit.open(path)
            shown[path] = page.inner_text("body")
            assert page.evaluate("window.__executed") == [], path
            assert visit.refused() == [], path
            hrefs = page.eval_on_selector_all("a[href]", "all => all.map(a => a.protocol)")
            assert set(hrefs) <= {"http:", "blob:"}, path
            assert page.locator("img[onerror], iframe, svg[onload], body script").count() == 0, path
            hidden = [hex(ord(one)) for one in INVISIBLE if one in shown[path] + page.title()]
            assert hidden == [], f"{path} has invisible characters as they are: {hidden}"
        assert visit.foreign() == []
        assert visit.errors == []
    # What was planted was really shown, so that the silence above says something.
    assert "onerror" in shown["/"]
    for view in ("idea", "code", "prompt", "compile", "history"):
        text = shown[f"/searches/sr_seed?tab=list&node=nd_bad&view={view}"]
        assert "__executed" in text, f"{view} shows nothing of what was planted: {json.dumps(text)[:600]}"
    assert "onerror" in shown["/system"]
    assert "onerror" in shown["/campaigns"]
    assert shown["/campaigns/cm_bad"].count("__executed.push(6)") > len(PROGRESS["regions"])
    assert "onerror" in shown["/asks/ak_0"]
