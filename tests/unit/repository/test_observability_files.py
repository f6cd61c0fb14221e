"""Prometheus' and Grafana's files: what they name is what a running API serves, and every alert has its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select, update

from tests import REPOSITORY, compose
from tests.support.api_support import client_of, database, seed, settings_for
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow

OBSERVE = REPOSITORY / "docker/observe"
OF_PROMETHEUS = {"up": {"job", "instance"}}
"""What Prometheus itself says of a target; it also adds these labels to what it scrapes."""

Served = dict[str, set[str]]
"""Names of series, with their labels."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The series of an API whose service has something of everything."""
    with client_of(settings_for(tmp_path_factory.mktemp("home"))) as client:
        seed(database(client))
        with database(client).writing() as session:
            kernel = {"kernel_id": session.scalars(select(KernelRow.id)).first(), "target": "cpu:x86_64"}
            session.add(
                ReverificationRow(id="rv_1", ordinal=1, state="pending", cause="asked", created_at=0.0, **kernel)
            )
            session.execute(update(KernelRow).values(standing="slower"))
        client.get("/v1/searches")
        return read_series(client)


def read_series(client: TestClient) -> Served:
    found: Served = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(expression: str) -> Iterator[Any]:
    """The vector selectors of a query; raises ValueError for one that does not parse."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        for name in ("lhs", "rhs", "expr", "vector_selector", "param"):
            child = getattr(node, name, None)
            if isinstance(child, promql_parser.Expr):
                visit(child)
        for child in getattr(node, "args", []):
            visit(child)

    visit(promql_parser.parse(expression))
    return iter(found)


def find_unserved(expression: str, served: Served) -> list[str]:
    """What a query names that no API serves: series, or labels in its braces and after `by`."""
    wrong, labels = [], set[str]()
    for selector in selectors(expression):
        known = OF_PROMETHEUS.get(selector.name, served.get(selector.name))
        if known is None:
            wrong.append(selector.name)
            continue
        labels |= known | OF_PROMETHEUS["up"]
        wrong += [f"{selector.name}{{{m.name}}}" for m in selector.matchers.matchers if m.name not in labels]
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        wrong += [name.strip() for name in group.split(",") if name.strip() not in labels]
    return wrong


def load_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((OBSERVE / "rules.yml").read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def load_dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((OBSERVE / "grafana/warpsmith.json").read_text(encoding="utf-8"))
    return dashboard


def queries() -> list[tuple[str, str]]:
    """Every query of the repository, with who asks it."""
    return [*((rule["alert"], rule["expr"]) for rule in load_rules()), *panel_queries()]


def panel_queries() -> list[tuple[str, str]]:
    """The queries of the dashboard, with the titles of their panels."""
    return [
        (panel["title"], target["expr"]) for panel in load_dashboard()["panels"] for target in panel.get("targets", [])
    ]


@pytest.mark.parametrize(("asked_by", "expression"), queries())
def test_queries_name_what_the_api_serves(asked_by: str, expression: str, served: Served) -> None:
    assert list(selectors(expression)), asked_by
    assert find_unserved(expression, served) == [], asked_by


def test_a_query_of_something_else_would_be_found(served: Served) -> None:
    assert find_unserved("max by (queue) (warpsmith_queue_length)", served) == ["warpsmith_queue_length", "queue"]
    assert find_unserved('max by (kind) (warpsmith_queue_depth{kind="x"})', served) == [
        "warpsmith_queue_depth{kind}",
        "kind",
    ]
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        find_unserved("max by (queue (up)", served)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_to_do(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    section = (REPOSITORY / page).read_text(encoding="utf-8").partition(f"### {rule['alert']}\n")[2].partition("\n#")[0]
    for part in ("**Means.**", "**Look at**", "**Do.**"):
        assert part in section, part


def test_every_runbook_has_its_alert() -> None:
    page = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (Warpsmith\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in load_rules()]


def test_the_page_has_every_metric_with_its_labels(served: Served) -> None:
    page = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(warpsmith_\w+)` \|([^|]*)\|", page, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    ours: Served = {}
    for name, labels in served.items():
        if name.startswith("warpsmith_") and not name.endswith("_created"):
            ours.setdefault(re.sub(r"_(bucket|count|sum)$", "", name), set()).update(labels - {"le"})
    assert documented == ours


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    dashboard = load_dashboard()
    assert dashboard["schemaVersion"] == 39  # of Grafana 11
    assert dashboard["uid"] == "warpsmith"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    (source,) = yaml.safe_load((OBSERVE / "grafana/datasource.yml").read_text(encoding="utf-8"))["datasources"]
    for panel in panels:
        assert panel["type"] in {"row", "stat", "timeseries"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        if panel["type"] != "row":
            asked = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
            assert asked == [{"type": source["type"], "uid": source["uid"]}] * len(asked)
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_compose_brings_every_file_to_where_it_is_read() -> None:
    services = compose.load(
        {"WARPSMITH_DB_PASSWORD": "a", "WARPSMITH_REDIS_PASSWORD": "b", "WARPSMITH_OPENAI_API_KEY": "c"}
    )["services"]
    mounted = dict[str, str]()
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["observe"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        assert services[name]["read_only"] is True
        for volume in services[name]["volumes"]:
            outside, inside, *_ = volume.split(":")
            mounted[inside] = outside
            assert not outside.startswith("./") or (REPOSITORY / outside).is_file(), outside
    config = yaml.safe_load((OBSERVE / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "warpsmith"  # by which rules and panels ask
    assert job["static_configs"] == [{"targets": ["api:" + services["api"]["environment"]["WARPSMITH_PORT"]]}]
    assert {*config["rule_files"], job["authorization"]["credentials_file"]} <= set(mounted)
    (source,) = yaml.safe_load((OBSERVE / "grafana/datasource.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((OBSERVE / "grafana/dashboards.yml").read_text(encoding="utf-8"))["providers"]
    assert str(Path(provider["options"]["path"]) / "warpsmith.json") in mounted
    assert services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
    given = {inside for inside, outside in mounted.items() if outside.startswith("./")}
    assert len(given) == len(list(OBSERVE.rglob("*.*")))  # none is left over


def test_every_state_of_a_queue_has_a_panel(served: Served) -> None:
    """What an alert is about, or an operator scales by, is to be seen."""
    shown = {selector.name for _, expression in panel_queries() for selector in selectors(expression)}
    queues = {name for name in served if name.startswith("warpsmith_queue_")}
    assert len(queues) >= 6
    assert sorted(queues - shown) == []


def test_no_panel_lies_on_another() -> None:
    panels = [panel["gridPos"] | {"title": panel["title"]} for panel in load_dashboard()["panels"]]
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        for x in range(panel["x"], panel["x"] + panel["w"]):
            for y in range(panel["y"], panel["y"] + panel["h"]):
                assert x < 24, panel["title"]
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    assert len({panel["id"] for panel in load_dashboard()["panels"]}) == len(panels)
