"""`warpsmith campaign` with the whole service: a model is profiled, searched from recorded replies, and faster.

The client is killed while the search runs, and goes on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import scenario
from tests.support.launching import PATIENCE_S, REPOSITORY, command, environment, up, warpsmith
from tests.support.waiting import wait_until
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.store.pool_file import dump_pool
from warpsmith.workers.judging import machine
from warpsmith.workers.search.policy import policy_document

torch = pytest.importorskip("torch", reason="models are run with torch, which is not installed")

pytestmark = [
    pytest.mark.skipif(bool(machine.missing_for_judge()), reason="this machine cannot judge"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.nightly,
    pytest.mark.alone,
]

MODEL = '''"""One region: two powers that come to one, which no compiler knows."""

import torch
from torch import nn


class Wave(nn.Module):
    def forward(self, x):
        lifted = x.abs() + 1
        return x * (lifted**0.3 * lifted**-0.3) * 2 + 1


def model():
    return Wave().eval()


def example_inputs():
    return torch.randn(1024, 256, generator=torch.Generator().manual_seed(1))
'''
KERNEL = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void wave(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
""")


def run(x, y):
    kernels.wave(x, y, x.numel())
'''
USE = """
import sys
sys.path[:0] = sys.argv[1:]
import torch, wave_file, wave_kernels
model, x = wave_file.model(), wave_file.example_inputs()
fast = wave_kernels.optimize(model)
with torch.no_grad():
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
print(fast.report())
assert not [name for name in sys.modules if name.split(".")[0] in ("warpsmith", "kernels_db")]
"""


def only_op(model: Path) -> Op:
    """The op of the model's one region, as `warpsmith profile` writes it."""
    from warpsmith.workers.optimize import contract, specs  # noqa: PLC0415 - needs torch
    from warpsmith.workers.optimize.traced import trace  # noqa: PLC0415 - as above

    torch._dynamo.reset()
    user = contract.load(model, torch.device("cpu"))
    graphs = trace(user.module, user.inputs.call)
    (kind,) = specs.kinds_of(graphs)
    specs.describe_all(graphs, [kind], Target.parse("cpu"), lambda _: None)
    assert kind.op is not None, kind.reason
    return kind.op


def write_pool(op: Op, path: Path) -> None:
    """Record one idea and its code."""
    record = scenario.Recorder(op, Target.parse("cpu"))
    (idea,) = record.ideas(None, "they come to one")
    record.code(None, idea, KERNEL)
    pool = record.pool()
    policy = policy_document(replace(scenario.POLICY, ideas=1, repairs=0, rounds=1, max_rounds=1))
    path.write_text(dump_pool(replace(pool, header=replace(pool.header, policy=policy))), encoding="utf-8")


def one_campaign(url: str) -> dict[str, Any]:
    (found,) = httpx.get(f"{url}/v1/campaigns").json()["items"]
    document: dict[str, Any] = httpx.get(f"{url}/v1/campaigns/{found['id']}").json()
    return document


@pytest.mark.timeout(900)
def test_a_model_is_made_faster_though_the_client_is_killed_on_the_way(tmp_path: Path) -> None:
    home, model, pools = tmp_path / "home", tmp_path / "wave_file.py", tmp_path / "pools"
    model.write_text(MODEL, encoding="utf-8")
    model = model.rename(tmp_path / "wave.py")
    pools.mkdir()
    write_pool(only_op(model), pools / "wave.cpu.jsonl")
    options = ("--output", str(tmp_path / "campaigns"), "--json")
    with up(home) as (_, document):
        url = document["url"].rstrip("/")
        first = subprocess.Popen(
            command(
                "campaign",
                str(model),
                "--model",
                f"replay:{pools}",
                "--budget",
                "candidates=4",
                "--time",
                "2",
                *options,
            ),
            env=environment(home),
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: bool(httpx.get(f"{url}/v1/searches").json()["items"]), 2 * PATIENCE_S)
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait()
        assert one_campaign(url)["state"] == "searching"

        final = json.loads(warpsmith(home, "campaign", str(model), "--resume", *options).stdout)
        assert final == one_campaign(url)
        (search,) = httpx.get(f"{url}/v1/searches").json()["items"]
        (region,) = final["progress"]["regions"]
        assert region["search_id"] == search["id"], "it was submitted once"
        assert (region["kept"], region["reason"], region["served"]) == (True, None, 1)
        assert region["budget"] == {"candidates": 4}
        assert region["beside"]["ci95"][0] > 1
        assert final["after_ms"] < final["compiled_ms"]
        assert [row["agrees"] for row in final["progress"]["variants"]] == [True] * 4
        shown = warpsmith(home, "campaigns", final["id"]).stdout
        assert "1 of 1 searches brought a kernel that stays" in shown
        assert final["id"] in warpsmith(home, "campaigns").stdout
        changed = warpsmith(home, "campaign", str(changed_copy(model)), "--resume", *options, code=2)
        assert f"changed since {final['id']} began" in changed.stderr
    (tmp_path / "wave_file.py").write_text(MODEL, encoding="utf-8")
    place = tmp_path / "campaigns" / final["id"]
    program = [sys.executable, "-W", "ignore", "-I", "-c", USE, str(place), str(tmp_path)]
    used = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert used.returncode == 0, used.stderr


def changed_copy(model: Path) -> Path:
    """A file of the same name with another content."""
    copy = model.parent / "changed" / model.name
    copy.parent.mkdir()
    copy.write_text(f"{MODEL}\n# changed\n", encoding="utf-8")
    return copy
