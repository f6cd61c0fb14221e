"""The guide's model on your own machine: its price file and settings, on a real server, without a key."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.e2e.test_agent import IDEA
from tests.model_server import ModelServer, ok
from tests.support import scenario
from tests.support.launching import up, warpsmith, write_scenario
from warpsmith.workers.llm.providers.cost import Prices

CODE = f"```python\n{scenario.candidate(scenario.LOOP)}```"


def recipe() -> tuple[dict[str, str], str]:
    """What the guide exports, and its price file."""
    guide = (REPOSITORY / "docs/guide.md").read_text(encoding="utf-8")
    section = guide.partition("### A model on your own machine")[2].partition("\n### ")[0]
    exported = dict(re.findall(r"^export (WARPSMITH_\w+)=(\S+)", section, re.MULTILINE))
    return exported, section.partition("```toml\n")[2].partition("```")[0]


def test_the_price_file_prices_the_model_that_is_named(tmp_path: Path) -> None:
    exported, prices = recipe()
    assert list(tomllib.loads(prices)) == [exported["WARPSMITH_OPENAI_MODEL"]]
    (tmp_path / exported["WARPSMITH_MODEL_PRICES"]).write_text(prices)
    cost = Prices.load(tmp_path / "prices.toml").cost(exported["WARPSMITH_OPENAI_MODEL"], 1_000_000, 1_000_000)
    assert cost == pytest.approx(0.25)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_search_by_a_server_without_a_key_is_priced(tmp_path: Path) -> None:
    exported, prices = recipe()
    (tmp_path / "prices.toml").write_text(prices)
    spec, _ = write_scenario(tmp_path)
    name = exported["WARPSMITH_OPENAI_MODEL"]
    with ModelServer([ok(json.dumps([IDEA]), model=name), ok(CODE, model=name)]) as server:
        settings = exported | {
            "WARPSMITH_OPENAI_BASE_URL": server.url,
            "WARPSMITH_MODEL_PRICES": str(tmp_path / "prices.toml"),
        }
        home = tmp_path / "home"
        said = warpsmith(home, "doctor", code=0, **settings).stdout
        assert f"{name} at {server.url}, without a key" in said
        with up(home, **settings):
            words = ("search", str(spec), "--model", "openai", "--policy", "beam=1,diverse=0,ideas=1,codes=1,rounds=1")
            estimate = json.loads(warpsmith(home, *words, "--estimate", "--json", **settings).stdout)
            assert estimate["unpriced"] == []
            assert estimate["worst"]["cost_usd"] > 0
            done = warpsmith(home, *words, "--budget", "candidates=1,cost=1", "--yes", "--json", **settings)
        search = json.loads(done.stdout)["search"]
        assert search["state"] == "finished"
        assert search["best"] is not None
        calls = len(server.requests)
        assert search["spend"]["cost_usd"] == pytest.approx(calls * (1000 * 0.05 + 500 * 0.2) / 1e6)
        assert {request.body["model"] for request in server.requests} == {name}
