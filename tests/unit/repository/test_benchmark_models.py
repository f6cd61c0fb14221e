"""The models of `python -m benchmarks.models`, and what becomes of its rows where one fails."""

from __future__ import annotations

import copy
import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import warpsmith
from benchmarks import dlrm, model_cases, models
from benchmarks.model_cases import CASES, PUBLISHED, Case
from benchmarks.rows import reason

pytestmark = [  # of other packages
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]
CPU = torch.device("cpu")
WARPSMITH = "warpsmith, default"
HOW: dict[str, Any] = {"modes": ["default"], "against": ["default"], "kernels": None, "seconds": 0.1}
HOW |= {"profiled": False}


@pytest.fixture(autouse=True)
def _nothing_of_other_tests_is_walked_through() -> None:
    """`release` collects garbage before each variant: a third of a second, with all that torch and others hold."""
    gc.freeze()


def test_the_dlrm_computes_what_is_published() -> None:
    session = model_cases.Session(case_of("dlrm"), CPU)
    made = session.model
    dense, _, indices = session._arguments
    with torch.no_grad():
        vectors = [made.bottom(dense)]
        vectors += [table.weight[indices[place]] for place, table in enumerate(made.tables)]  # bags of one row
        pairs = [(one * other).sum(-1) for n, one in enumerate(vectors) for other in vectors[n + 1 :]]
        expected = made.top(torch.cat([vectors[0], torch.stack(pairs, dim=1)], dim=1))
        assert dense.shape == (2048, made.sizes.dense)
        torch.testing.assert_close(session.call(made, None), expected)
    full = dlrm.Sizes()
    assert (full.tables, full.bottom[-1], full.top[0]) == (26, 128, 1024)


@pytest.mark.parametrize("kind", ["transformer", "recommender"])
def test_a_sample_is_called_as_its_file_says(kind: str) -> None:
    session = model_cases.Session(case_of(kind), CPU)
    with torch.no_grad():
        expected = model_cases.sample(kind).model()(*model_cases.sample(kind).example_inputs())
        assert torch.equal(session.call(session.model, None), expected)


def case_of(kind: str, **changed: Any) -> Case:
    return replace(next(case for case in CASES if case.kind == kind), **changed)


@pytest.mark.parametrize(("kind", "package"), [("qwen3_moe", "transformers"), ("unet", "diffusers")])
def test_a_published_model_is_captured_as_a_whole(kind: str, package: str) -> None:
    """Routing to experts and denoising break no graph; the graph is run as it is."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    session = model_cases.Session(case_of(kind, length=8, past=False), CPU)
    graphs = []

    def backend(graph: fx.GraphModule, _: list[torch.Tensor]) -> fx.GraphModule:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        found = session.call(torch.compile(session.model, backend=backend), None)
        assert torch.equal(found, session.call(session.model, None))
    assert len(graphs) == 1
    assert found.dtype is torch.bfloat16


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "package"), [("qwen3_moe", "transformers"), ("unet", "diffusers")])
def test_a_published_model_is_optimized_without_graph_breaks(kind: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    session = model_cases.Session(case_of(kind, length=8, past=False), CPU)
    fast = warpsmith.optimize(session.model)
    with torch.no_grad():
        exact = session.call(copy.deepcopy(session.model).to(torch.float32), None)
        found, eager = session.call(fast, None), session.call(session.model, None)
    assert len(fast.graphs) == 1
    assert fast.report().startswith("graph 1: ")
    assert 0 < models.error_of(found, exact.double()) <= 1.5 * models.error_of(eager, exact.double())


def test_a_case_that_fails_has_a_row_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose package is not here is left out, which is no failure; no file of a sample is."""
    monkeypatch.setitem(PUBLISHED, "unet", replace(PUBLISHED["unet"], package="no_such_package"))
    cases = [Case("no file", "no_such_sample"), case_of("unet"), Case("no file either", "no_such_sample")]
    monkeypatch.setattr(models, "CASES", cases)
    monkeypatch.setattr(models, "COPY_BYTES", 1 << 20)
    file = tmp_path / "rows.json"
    monkeypatch.setattr(sys, "argv", ["", "--json", str(file)])
    assert models.main() == 1
    rows = json.loads(file.read_text())
    assert [(row["case"], row["skipped"], row["ms"]) for row in rows] == [
        ("no file", False, None),
        ("SD-1.5 UNet, batch 2", True, None),
        ("no file either", False, None),
    ]
    assert rows[0]["why"].startswith("FileNotFoundError: ")
    assert rows[1]["why"] == "no_such_package is not installed: it is of the extra `diffusion`"
    out = capsys.readouterr().out
    assert out.count("the case failed: FileNotFoundError") == 2
    assert "the case is left out: no_such_package is not installed" in out
    monkeypatch.setattr(models, "CASES", [case_of("unet")])
    assert models.main() == 0


def test_a_reason_is_that_of_the_error_which_a_compiler_wrapped() -> None:
    def backend(*_: Any) -> Any:
        raise MemoryError("no room for 8 GiB\nand what else there is to say")

    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(torch.sin, backend=backend)(torch.ones(2))
    assert reason(caught.value) == "MemoryError: no room for 8 GiB"
    assert reason(KeyError()) == "KeyError"


def test_a_variant_whose_cache_has_no_room_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a call of it: the first variant, and one behind others."""
    case, asked = case_of("dlrm", rows=8), iter(range(9))

    def fresh(_: Any, __: Any) -> None:
        if next(asked) in (2, 3):  # behind the float64 model's and eager's own
            raise MemoryError("no room")

    monkeypatch.setattr(model_cases.Session, "fresh", fresh)
    monkeypatch.setattr(models, "variant", lambda model, *_: model)
    with torch.no_grad():
        rows = list(models.tried(case, CPU, **HOW))
    assert [(row.variant, row.why) for row in rows[:2]] == [
        ("eager", "MemoryError: no room"),
        ("default", "MemoryError: no room"),
    ]
    assert [row.variant for row in rows[2:]] == ["rewrites, default", WARPSMITH]
    assert [row.ratio for row in rows[2:]] == [None, None], "nothing of PyTorch's own ran"


@pytest.mark.nightly
def test_a_variant_that_fails_has_a_row_and_the_others_go_on() -> None:
    with torch.no_grad():
        rows = list(models.tried(case_of("recommender"), CPU, **HOW | {"against": ["no such mode", "default"]}))
    assert [row.variant for row in rows] == ["no such mode", "eager", "default", "rewrites, default", WARPSMITH]
    assert rows[0].why.startswith("RuntimeError: Unrecognized mode=no such mode")
    assert (rows[0].ms, rows[2].ratio) == (None, 1.0)
    assert not any(row.why for row in rows[1:])
