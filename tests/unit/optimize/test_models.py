"""The pure parts of `apply` and `ablate`, and of the file that a model is in: matches, exports, stand-ins."""

from __future__ import annotations

import copy
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="graphs are torch's, which is not installed")

import torch
from torch import nn

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize import applying, contract, packages
from warpsmith.workers.optimize.applied import comparing, match
from warpsmith.workers.optimize.applied.applying import Disagreement, apply, prepare
from warpsmith.workers.optimize.applied.graph import Captured, Inputs, NotExportable, capture

Function = Callable[..., Any]


class Plain(nn.Module):
    """A function with some weights as a model."""

    def __init__(self, run: Function, **weights: torch.Tensor) -> None:
        super().__init__()
        self._run = run
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._run(*tensors, **dict(self.named_parameters()))


def captured(run: Function, *inputs: torch.Tensor, **weights: torch.Tensor) -> Captured:
    return capture(Plain(run, **weights), Inputs(inputs))


def pattern(run: Function, *inputs: torch.Tensor) -> match.Pattern:
    return match.Pattern.of(capture(Plain(run), Inputs(inputs), dynamic=False).graph)


def test_a_pattern_is_found_at_other_sizes_and_with_other_orders_but_not_with_other_constants() -> None:
    def op(x: Any, y: Any) -> Any:
        return torch.relu(x + y).reshape(2, 6) * 0.5

    def run(x: Any, y: Any) -> Any:
        one = torch.relu(y + x).view(4, 10) * 0.5
        other = torch.relu(one + one).reshape(8, 5) * 0.25
        return other + 1

    wanted = pattern(op, torch.zeros(3, 4), torch.zeros(3, 4))
    found = match.find(wanted, captured(run, torch.randn(8, 5), torch.randn(8, 5)).graph)
    assert [[node.name for node in one.nodes] for one in found] == [["add", "relu", "view", "mul"]]


def test_a_constant_is_not_found_for_a_size() -> None:
    def op(x: Any) -> Any:
        return torch.relu(x * 16)

    found = captured(lambda x: torch.relu(x * x.shape[1]), torch.randn(8, 16))
    assert match.find(pattern(op, torch.zeros(3, 4)), found.graph) == []


def test_what_others_use_is_no_part_of_a_match() -> None:
    def op(x: Any) -> Any:
        return torch.relu(x) * 2

    def run(x: Any) -> Any:
        inner = torch.relu(x)
        return inner * 2, inner

    assert match.find(pattern(op, torch.zeros(3)), captured(run, torch.randn(5)).graph) == []


def test_a_graph_holds_for_other_batches_and_for_nothing_else() -> None:
    model = nn.Linear(4, 2)
    found = capture(model, Inputs((torch.randn(6, 4),)))
    assert found.dynamic
    assert found.holds((torch.randn(60, 4),), {})
    for other in (torch.randn(6, 5), torch.randn(6, 4, 4), torch.randn(6, 4).double(), torch.randn(1, 4), 3):
        assert not found.holds((other,), {}), other
    assert not found.holds((), {"input": torch.randn(6, 4)})


def test_an_export_that_is_refused_names_part_line_and_remedy() -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(NotExportable) as caught:
        capture(nn.Sequential(nn.Linear(4, 4), Gate()), Inputs((torch.ones(2, 4),)))
    assert caught.value.part == "'1' of the model"
    assert "test_models.py, line" in caught.value.where
    assert "x.sum() > 0" in caught.value.where
    assert "torch.where" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("import torch\nmodel = 3\n", "file.py: model", "a int"),
        ("import torch\n1 / 0\n", "MODEL.py", "ZeroDivisionError: division by zero (line 2)"),
        ("import torch\ndef model():\n    return torch.nn.Linear(2, 2)\n", "file.py: example_inputs", "nothing"),
        (
            "import torch\ndef model():\n    return torch.nn.Linear(2, 2)\ndef example_inputs():\n    return 3\n",
            "example_inputs()",
            "no tensor",
        ),
        (
            "import torch\ndef model():\n    return torch.nn.Linear(2, 2)\n"
            "def example_inputs():\n    return torch.ones(3)\n",
            "example_inputs()",
            "RuntimeError: ",
        ),
    ],
    ids=["no function", "raises", "no inputs", "no tensor", "wrong inputs"],
)
def test_a_file_without_the_contract_is_refused(text: str, field: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(contract.NoModel) as caught:
        contract.load(tmp_path / "file.py", torch.device("cpu"))
    assert caught.value.field == field
    assert caught.value.found.startswith(found)


def test_a_package_whose_files_were_changed_is_refused(tmp_path: Path) -> None:
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path)
    assert [each.module for each in packages.opened([project])] == [project.name]
    (project / project.name / "_reference.py").write_text("def run(x, y, m):\n    return x\n")
    with pytest.raises(packages.BadPackage, match=r"contents: _reference.py was changed"):
        packages.opened([project])


class Scaled(nn.Module):
    """A module that a kernel can be the whole of, with something to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8))
        self.note = "kept"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.5 * self.weight


def test_a_stand_in_keeps_state_and_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    spec = SCALED_ADD | {"reference": "def run(x, y, m):\n    return x + m * y\n"}
    usable, others = packages.kernels(packages.opened([build(exported(spec, SCALED_ADD_CPP), tmp_path)]))
    assert others == {}
    model = nn.Sequential(nn.Tanh(), Scaled(), nn.Tanh()).eval()
    original, keys, x = model[1], list(model.state_dict()), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        with apply(model, x, usable) as applied:
            assert [(place.kind, place.where, place.reason) for place in applied.places] == [("module", "1", None)]
            stand_in = model[1]
            assert stand_in is not original
            assert stand_in.note == "kept"
            assert list(model.state_dict()) == keys
            assert stand_in.weight is original.weight
            served = usable[0].package.status()["served"]["kernel"]
            torch.testing.assert_close(model(x), before)
            assert usable[0].package.status()["served"]["kernel"] == served + 1
            for copied in (copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="undo"):
                    copied(model)
            with pytest.raises(ValueError, match="applied to this model before"):
                apply(model, x, usable)
            compiled = torch.compile(model, backend="eager", fullgraph=True)
            torch.testing.assert_close(compiled(x), before)
            assert usable[0].package.status()["served"]["kernel"] == served + 2
            model.train()
            assert original.training, "the original follows, and computes while it trains"
            model.eval()
        assert model[1] is original
        assert torch.equal(model(x), before)
        applied.install()
        model[1] = nn.Identity()
        with pytest.raises(RuntimeError, match="1 was changed since"):
            applied.undo()


class Sums(nn.Module):
    """Two sums in a row, which no submodule is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8))
        self.register_buffer("offset", torch.randn(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.weight + 0.5 * x).add(self.offset)  # type: ignore[arg-type]


def test_a_graph_sees_new_values_of_weights_and_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    spec = SCALED_ADD | {"reference": "def run(x, y, m):\n    return x + m * y\n", "name": "scaled_add_2"}
    usable, _ = packages.kernels(packages.opened([build(exported(spec, SCALED_ADD_CPP), tmp_path)]))
    model, x = Sums(), torch.randn(3, 8)
    with torch.no_grad(), apply(model, x, usable) as applied:
        assert [(place.kind, place.reason) for place in applied.places] == [("region", None)]
        model.load_state_dict({name: 2 * value for name, value in model.state_dict().items()})
        found = model(x)
        assert applied.status()["calls"] == {"graph": 1, "model": 0}
        applied.undo()
        torch.testing.assert_close(found, model(x))


def kernels_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str = SCALED_ADD_CPP, **changed: Any) -> Any:
    """The kernel of x + 0.5 y in a package of the test's own: no other test has loaded it."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    spec = SCALED_ADD | {"name": f"added_{uuid.uuid4().hex[:8]}"} | changed
    usable, others = packages.kernels(packages.opened([build(exported(spec, source), tmp_path)]))
    assert others == {}
    return usable


class Remembers(nn.Module):
    """Writes into a buffer between what it reads of it, as a cache of keys does; and two sums on the way."""

    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8))
        self.register_buffer("cache", torch.zeros(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.cache.clone()
        self.cache.copy_(torch.tanh(x))
        return torch.tanh(x + 0.5 * self.weight) + before + self.cache


def test_a_graph_that_writes_in_place_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = kernels_of(tmp_path, monkeypatch)
    model, x = Remembers().eval(), torch.randn(3, 8)
    model.cache.fill_(3.0)
    applied = apply(model, x, usable)
    assert [place.kind for place in applied.places] == ["region"]
    assert "matters (aten.copy_" in str(applied.places[0].reason)
    assert bool((model.cache == 3.0).all()), "the calls that apply made are not seen"
    assert applied.kernels == []


class Pair(nn.Module):
    """A module that returns more than its sum."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, None]:
        return self.inner(x), None


class Calls(nn.Module):
    """Calls its submodule in a way of its own."""

    def __init__(self, inner: nn.Module, call: Function) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.call(self.inner, x))


@pytest.mark.parametrize(
    ("inner", "call", "where"),
    [
        (lambda: Pair(Scaled()), lambda inner, x: inner(x)[0], ("module", "inner.inner")),
        (Scaled, lambda inner, x: inner(x=x), ("region", "inner")),
        (lambda: Pair(Scaled()).inner, lambda inner, x: inner(torch.tanh(x)), ("module", "inner")),
        (lambda: Pair(Scaled()), lambda inner, x: inner.inner.forward(x), ("region", "inner.inner")),
    ],
    ids=["returns a pair", "called by name", "plainly", "not called itself"],
)
def test_a_module_is_replaced_where_it_is_called_with_one_tensor(
    inner: Callable[[], nn.Module],
    call: Function,
    where: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, x = Calls(inner(), call).eval(), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        with apply(model, x, kernels_of(tmp_path, monkeypatch)) as applied:
            (place,) = applied.places
            assert place.reason is None
            assert place.kind == where[0]
            assert place.kind == "region" or place.where == where[1]
            torch.testing.assert_close(model(x), before)


class Sized(nn.Module):
    """Computes something else for many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.inner = nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 5 or x.dtype is torch.float64:
            return self.inner(x - self.weight)
        return self.inner(x + 0.5 * self.weight.expand(x.shape))


def test_the_module_itself_serves_what_its_export_or_the_kernel_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = "def run(x, y, m):\n    return x + m * y.expand(x.shape)\n"
    inputs = [SCALED_ADD["inputs"][0], SCALED_ADD["inputs"][1] | {"shape": ["columns"]}, SCALED_ADD["inputs"][2]]  # type: ignore[index]
    source = SCALED_ADD_CPP.replace("m * y[i]", "m * y[i % 8]")
    usable = kernels_of(tmp_path, monkeypatch, source, reference=reference, inputs=inputs)
    package = usable[0].package
    model = nn.Sequential(nn.Tanh(), Sized()).eval()
    samples = {rows: torch.randn(rows, 8) for rows in (2, 3, 4, 7, 50)}
    with torch.no_grad():
        before = {rows: model(x) for rows, x in samples.items()}
        wide = model.double()(samples[3].double())
        model.float()
        with apply(model, samples[3], usable) as applied:
            assert [(place.kind, place.where, place.reason) for place in applied.places] == [("module", "1", None)]

            def kernel_serves(x: torch.Tensor, expected: torch.Tensor) -> bool:
                count = package.status()["served"]["kernel"]
                torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-6)
                return bool(package.status()["served"]["kernel"] > count)

            served = [rows for rows, x in samples.items() if kernel_serves(x, before[rows])]
            assert served == [3, 4], "2 is no verified size; from 6 on it is another op"
            model.double()
            torch.testing.assert_close(model(samples[3].double()), wide)
            model.float()
            assert kernel_serves(samples[3], before[3])
            compiled = torch.compile(model, backend="eager", fullgraph=True)
            for rows in (3, 7, 50):
                count = package.status()["served"]["kernel"]
                torch.testing.assert_close(compiled(samples[rows]), before[rows], rtol=1e-5, atol=1e-6)
                assert package.status()["served"]["kernel"] - count == (rows == 3)
            with torch.enable_grad():
                assert not kernel_serves(samples[3], before[3]), "gradients are the original's"
            with torch.autocast("cpu"):
                assert not kernel_serves(samples[3], before[3])
            inner = model.get_submodule("1.inner")
            inner.train()
            count = package.status()["served"]["kernel"]
            model(samples[3])
            assert package.status()["served"]["kernel"] == count, "a module in it drops out now"
            model.eval()
            hook = inner.register_forward_hook(lambda _m, _a, result: result * 0)
            assert not bool(model(samples[3]).any())
            hook.remove()
            assert kernel_serves(samples[3], before[3])


class Branch(nn.Module):
    """A region between modules, one of which drops out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8))
        self.first, self.dropout = nn.Tanh(), nn.Dropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.dropout(self.first(x) + 0.5 * self.weight))


def test_a_graph_serves_while_the_model_is_what_was_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = kernels_of(tmp_path, monkeypatch)
    model, x = Branch().eval(), torch.randn(3, 8)
    own = Branch.forward
    model.forward = lambda x: own(model, x)  # type: ignore[method-assign]
    with torch.no_grad(), apply(model, x, usable) as applied:

        def graph_serves() -> bool:
            served = applied.status()["calls"]["graph"]
            found = model(x)
            if not model.dropout.training:
                assert torch.allclose(found.float(), own(model, x).float(), atol=1e-2)
            return bool(applied.status()["calls"]["graph"] > served)

        assert graph_serves()
        with torch.enable_grad():
            assert not graph_serves()
        with torch.autocast("cpu"):
            assert not graph_serves()
        model.dropout.train()
        assert not graph_serves(), "one submodule trains, and forward is no method"
        model.eval()
        hook = model.first.register_forward_hook(lambda *_: None)
        assert not graph_serves()
        hook.remove()
        assert graph_serves()
        model.load_state_dict({"weight": torch.zeros(3, 8)}, assign=True)
        assert not graph_serves(), "another object"
        with pytest.raises(ValueError, match=r"names: found \['scaled'\], expected some of"):
            applied.install(["scaled"])
        with pytest.raises(ValueError, match="names: found"):
            applied.install(applied.kernels[0])
    assert "forward" in model.__dict__
    assert model(x) is not None


class Counts(nn.Module):
    """A sum of which the last bits decide."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 0.5 * self.weight).mul(1e9).to(torch.int64)


def test_apply_undoes_where_results_do_not_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is within the op's tolerance, and the model asks for bits that the op does not promise."""
    source = SCALED_ADD_CPP.replace("x[i] + m * y[i]", "(x[i] + m * y[i]) * 1.0000002f")
    usable = kernels_of(tmp_path, monkeypatch, source)
    model, x = Counts().eval(), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        assert [place.replaced for place in prepare(model, x, usable).places] == [True]
        with pytest.raises(Disagreement, match="the results do not agree") as caught:
            apply(model, x, usable)
        assert not caught.value.comparison.agrees
        assert "region the model" in caught.value.report
        assert "forward" not in model.__dict__
        assert torch.equal(model(x), before)


FILE = """
import torch
from torch import nn

class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 3).t() * 0.3)  # not contiguous

    def forward(self, x):
        return {result}

    def get_extra_state(self):
        return {{"no": "tensor"}}

    def set_extra_state(self, state):
        pass

def model():
    return nn.Sequential(nn.Tanh(), Sum()).eval()

def example_inputs():
    return torch.linspace(-1, 1, 24).view(3, 8)
"""


@pytest.mark.parametrize(
    ("result", "agrees"),
    [
        ("self.weight.contiguous() * 0.5 + x", True),
        ("((x + 0.5 * self.weight.contiguous()) * 1e9).to(torch.int64)", False),
    ],
)
def test_a_package_is_written_where_results_agree(
    result: str, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SCALED_ADD_CPP.replace("x[i] + m * y[i]", "(x[i] + m * y[i]) * 1.0000002f")
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    reference = "def run(x, y, m):\n    return x + m * y\n"
    spec = SCALED_ADD | {"name": f"written_{uuid.uuid4().hex[:8]}", "reference": reference}
    projects = packages.opened([build(exported(spec, source), tmp_path)])
    file = tmp_path / "sum.py"
    file.write_text(FILE.format(result=result))
    user = contract.load(file, torch.device("cpu"))
    found = applying.apply(user, projects, tmp_path, lambda _: None)
    assert [place["replaced"] for place in found["places"]] == [True]
    assert (found["agrees"], found["weights_untouched"], found["undone"]) == (agrees, True, True)
    made = packages.destination(file, tmp_path)
    assert found["package"] == (str(made) if agrees else None)
    assert made.exists() is agrees


def test_a_model_with_hooks_inside_is_left_alone(tmp_path: Path) -> None:
    usable, _ = packages.kernels(packages.opened([build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path)]))
    model = nn.Sequential(nn.Tanh(), Scaled())
    model[0].register_forward_hook(lambda *_: None)
    applied = apply(model, torch.randn(3, 8), usable)
    assert [place.reason for place in applied.places] == ["0 has forward hooks, which a kernel would pass by"]


def test_a_users_assertions_stay_in_the_graph() -> None:
    def run(x: Any) -> Any:
        torch._assert_async((x < 3).all())
        return torch.relu(x)

    found = captured(run, torch.zeros(4))
    assert [str(node.target) for node in found.graph.nodes if "assert" in str(node.target)] == [
        "aten._assert_async.default"
    ]


def test_an_op_in_place_stands_in_no_model(tmp_path: Path) -> None:
    _, others = packages.kernels(packages.opened([build(exported(IN_PLACE, IN_PLACE_CPP), tmp_path)]))
    assert ["works in place" in reason for reason in others.values()] == [True]


def test_results_are_held_against_float64() -> None:
    exact = torch.randn(50, 10, dtype=torch.float64)
    before = exact.float()
    assert comparing.compare(before, before + 1e-9, [exact]).agrees
    wrong = before.clone()
    wrong[3, 4] += 0.1
    found = comparing.compare(before, wrong, [exact])
    assert not found.agrees
    assert found.largest == pytest.approx(0.1, rel=1e-3)
    flipped = comparing.compare(before, -before, [exact])
    assert flipped.argmax is not None
    assert flipped.argmax < 0.5
    assert comparing.compare(before[:, :1], before[:, :1], None).argmax is None
    assert not comparing.compare(before, before[:5], None).agrees
    lost, zero = before.clone(), before.clone()
    lost[0, 0], zero[0, 0] = float("nan"), 0.0
    for one, other in ((before, lost), (lost, before), (zero, lost), (lost, zero)):
        for wide in ([exact], None):
            found = comparing.compare(one, other, wide)
            assert not found.agrees
            assert found.document()["largest_difference"] is None, "JSON has no infinity"
    assert comparing.compare(lost, lost, [exact]).agrees
    endless = before.clone()
    endless[0, 0] = float("inf")
    assert not comparing.compare(endless, -endless, [exact]).agrees
    assert not comparing.compare(endless, wrong, [exact]).agrees
    spoiled = endless.clone()
    spoiled[3, 4] += 0.1
    assert not comparing.compare(endless, spoiled, [exact]).agrees, "the model's own infinity allows nothing"


def test_each_result_is_held_against_its_own_limit() -> None:
    exact = torch.randn(50, dtype=torch.float64)
    rough, fine = exact.float() * 1.01, exact.float()
    found = comparing.compare((rough, fine), (rough, fine * 1.001), [exact, exact])
    assert not found.agrees, "that the first is wrong by itself allows the second nothing"
    assert comparing.compare((rough, fine), (rough, fine), [exact, exact]).agrees
    assert (found.reference, comparing.compare(rough, rough, None).reference) == ("float64", "none")
    assert not comparing.compare((fine, None), fine, None).agrees, "another nesting"
    assert not comparing.compare((fine, 3), (fine, 4), None).agrees
