"""A search in agent mode through an MCP client, from a clean start to an exported kernel that agrees with PyTorch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_main_job import USE
from tests.support import scenario
from tests.support.agents import Agent, over_stdio
from tests.support.launching import PATIENCE_S, up

POLICY = {"name": "idea_beam", "beam": 1, "diverse": 0, "ideas": 1, "codes": 1, "rounds": 1, "max_rounds": 1}
IDEA = {"technique": "fusion", "title": "one pass", "mechanism": "Read once, write once.", "sketch": "A loop."}
REPLIES = {
    "ideate": json.dumps([IDEA]),
    "code": f"```python\n{scenario.candidate(scenario.WRONG)}```",
    "repair": f"```python\n{scenario.candidate(scenario.LOOP)}```",
}
"""What the agent answers: an idea, code that forgets the tail, and, told so, code that does not."""


def see_through(agent: Agent, search_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Answer everything that the search asks until it ends; each ask's kind and prompt."""
    answered = []
    deadline = time.monotonic() + 2 * PATIENCE_S
    while time.monotonic() < deadline:
        found = agent.call("list_asks", search_id=search_id, wait_s=20)
        if found["search"]["state"] not in ("queued", "running"):
            break
        for item in found["asks"]:
            ask = agent.call("get_ask", ask_id=item["id"])
            taken = agent.call("answer_ask", ask_id=item["id"], reply=REPLIES[ask["kind"]], answered_by="a script")
            assert taken["state"] == "answered"
            answered.append((ask["kind"], ask))
    return answered


@pytest.mark.nightly
def test_an_agent_drives_a_search_to_an_exported_kernel(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with up(home), over_stdio(home) as agent:
        search_id = agent.call("submit_search", op=scenario.OP, policy=POLICY, budget={"candidates": 4})["search"]["id"]
        answered = see_through(agent, search_id)
        assert [kind for kind, _ in answered] == ["ideate", "code", "repair"]
        assert "was not written" in answered[2][1]["messages"][-1]["content"], "a repair says what was wrong"

        tree = agent.call("read_tree", search_id=search_id)
        assert tree["search"]["state"] == "finished", tree
        [node] = [item for item in tree["nodes"] if item["seq"] == 1]
        assert (node["verdict"], node["repairs"], node["title"]) == ("accepted", 1, "one pass")
        read = agent.call("read_node", node_id=node["id"])
        assert scenario.LOOP in read["source"]
        assert read["feedback"].startswith("Correct.")

        [kernel] = tree["search"]["kernels"]
        assert kernel in tree["next"]
        exported = agent.call("export_kernel", kernel=kernel, directory=str(tmp_path / "exports"))
    assert re.fullmatch(r"warpsmith_scale_shift_\w+", exported["package"])
    program = [sys.executable, "-c", USE, exported["project"], exported["package"]]
    used = subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert used.stdout.split() == ["kernel:", "True"]
