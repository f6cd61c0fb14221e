"""A package in use: switched on and off, shadowed against PyTorch, and held to its envelope.

Each package is imported here, under a name of its own: what is checked of it needs no fresh process.
"""

from __future__ import annotations

import importlib
import json
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported, in_fresh_process
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

Importer = Callable[..., ModuleType]
WRONG_ABOVE_100 = SCALED_ADD_CPP.replace("m * y[i];", "m * y[i] + (n > 100);")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel cache for all packages here: each source is compiled once."""
    return Path(with_plans(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def imported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Importer:
    """Export a kernel and import the package. Its name is the test's own: a process loads a name once."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(cache))
    monkeypatch.setenv("WARPSMITH_SHADOW_DIR", str(tmp_path / "shadow"))

    def use(spec: dict[str, Any] = SCALED_ADD, source: str = SCALED_ADD_CPP, **changes: Any) -> ModuleType:
        kernel = exported(spec, source)
        envelope = kernel.envelope | {"name": request.node.name, **changes.pop("envelope", {})}
        project = build(replace(kernel, envelope=envelope, **changes), tmp_path / "exports")
        monkeypatch.syspath_prepend(project)
        return importlib.import_module(project.name)

    return use


def tensors(rows: int = 40) -> tuple[Any, Any]:
    return torch.randn(rows, 8), torch.randn(rows, 8)


def test_every_call_is_counted_and_only_the_first_fallback_warns(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    package.scaled_add(x, y, 0.5)
    with pytest.warns(RuntimeWarning, match="PyTorch serves this call, because rows is 41, verified from 3 to 40"):
        package.scaled_add(torch.ones(41, 8), torch.ones(41, 8), 0.5)
    package.scaled_add(x.double(), y.double(), 0.5)
    status = package.status()
    assert status["served"] == {"kernel": 1, "pytorch": 2}
    assert status["fallbacks"] == {
        "rows is 41, verified from 3 to 40": 1,
        "x is torch.float64, verified for torch.float32": 1,
    }
    assert (status["kernel"], status["mode"], status["mode_set_by"]) == ("loaded", "on", "default")


def test_reasons_are_counted_apart_up_to_a_bound(imported: Importer) -> None:
    package = imported()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in range(41, 91):
            package.scaled_add(torch.ones(rows, 8), torch.ones(rows, 8), 0.5)
    fallbacks = package.status()["fallbacks"]
    assert len(fallbacks) == 33
    assert fallbacks["other reasons"] == 18


def test_switched_off_and_on(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    package.disable()
    assert package.explain(x, y, 0.5) == "PyTorch: the kernel is switched off by disable()"
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)  # and no warning: it was asked for
    with package.enabled():
        assert package.explain(x, y, 0.5).startswith("kernel")
    package.enable()
    with package.disabled():
        assert package.explain(x, y, 0.5) == "PyTorch: disabled() is in force"
        package.scaled_add(x, y, 0.5)
    assert package.explain(x, y, 0.5) == "kernel: inside the envelope (a verified shape)"
    assert package.status()["served"] == {"kernel": 0, "pytorch": 2}


def test_a_block_holds_for_its_own_thread(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    seen = []
    with package.disabled():
        other = threading.Thread(target=lambda: seen.append(package.explain(x, y, 0.5)))
        other.start()
        other.join()
    assert seen[0].startswith("kernel")


def test_a_switch_holds_in_compiled_code(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    compiled = torch.compile(lambda x, y: package.scaled_add(x, y, 0.5) * 2, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), 2 * (x + 0.5 * y))
    assert package.status()["served"] == {"kernel": 1, "pytorch": 0}
    with package.disabled(), torch.compiler.set_stance("fail_on_recompile"):
        torch.testing.assert_close(compiled(x, y), 2 * (x + 0.5 * y))
    assert package.status()["served"] == {"kernel": 1, "pytorch": 1}


@pytest.mark.parametrize("own", [True, False], ids=["one package", "every package"])
def test_the_environment_sets_the_mode(imported: Importer, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if own:
        probe = imported()
        monkeypatch.setenv("WARPSMITH_KERNELS", "on")
        monkeypatch.setenv(probe.__name__.upper(), "off")
        package = importlib.reload(importlib.import_module(f"{probe.__name__}._control"))
        assert (package.mode(), package.status(dict.fromkeys(package.NAMES, ""))["mode_set_by"]) == (
            "off",
            probe.__name__.upper(),
        )
        return
    monkeypatch.setenv("WARPSMITH_KERNELS", "off")
    status = imported().status()
    assert (status["mode"], status["mode_set_by"]) == ("off", "WARPSMITH_KERNELS")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("WARPSMITH_KERNELS", "of", "on, off, shadow"), ("WARPSMITH_SHADOW_EVERY", "0", "a number of calls, at least 1")],
)
def test_a_wrong_variable_is_named(
    imported: Importer, variable: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=f"{variable}: found '{value}', expected .*{expected}"):
        imported()


def test_shadow_mode_checks_the_first_call_and_then_one_in_n(imported: Importer) -> None:
    package = imported()
    package.shadow(every=3)
    x, y = tensors()
    for _ in range(7):
        package.scaled_add(x, y, 0.5)
    status = package.status()
    assert status["shadow"] == {"every": 3, "checked": 3, "mismatches": 0, "unchecked": 0}
    assert status["served"] == {"kernel": 7, "pytorch": 0}


def test_shadow_mode_checks_the_first_call_after_it_began(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    package.scaled_add(x, y, 0.5)
    package.shadow(every=3)
    package.scaled_add(x, y, 0.5)
    assert package.status()["shadow"]["checked"] == 1
    package.shadow()
    package.scaled_add(x, y, 0.5)
    assert package.status()["shadow"]["checked"] == 2


@pytest.mark.parametrize("step", ["clones", "compare"])
def test_a_check_that_fails_is_not_the_callers(imported: Importer, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = imported()
    package.shadow(every=1)

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no memory is left")

    monkeypatch.setattr(importlib.import_module(f"{package.__name__}._compare"), step, full)
    x, y = tensors()
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    status = package.status()
    assert status["shadow"] == {"every": 1, "checked": 0, "mismatches": 0, "unchecked": 1}
    assert status["served"] == {"kernel": 1, "pytorch": 0}
    assert status["notes"] == ["shadow mode could not check a call: OutOfMemoryError: no memory is left"]


def test_outputs_count_among_what_fills_the_memory(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    package = imported()
    package.shadow(every=1)
    x, y = tensors()
    monkeypatch.setattr(importlib.import_module(f"{package.__name__}._compare"), "LARGEST_BYTES", 2 * x.nbytes)
    package.scaled_add(x, y, 0.5)
    assert package.status()["shadow"] == {"every": 1, "checked": 0, "mismatches": 0, "unchecked": 1}


def test_shadow_mode_stays_out_of_tracing(imported: Importer) -> None:
    package = imported()
    package.shadow(every=1)
    with torch._subclasses.FakeTensorMode() as fakes:
        x, y = (fakes.from_tensor(tensor) for tensor in tensors())
        assert package.scaled_add(x, y, 0.5).shape == (40, 8)
    assert package.status()["shadow"]["checked"] == 0


def test_a_mismatch_gives_pytorchs_result_and_the_kernel_up(imported: Importer, tmp_path: Path) -> None:
    package = imported(source=WRONG_ABOVE_100)
    package.shadow(every=1)
    x, y = tensors(4)
    package.scaled_add(x, y, 0.5)
    assert package.status()["given_up"] is None
    x, y = tensors(40)
    with pytest.warns(RuntimeWarning, match="shadow mode found a wrong result at .*'rows': 40") as caught:
        found = package.scaled_add(x, y, 0.5)
    torch.testing.assert_close(found, x + 0.5 * y)
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert len(caught) == 1
    assert package.explain(*tensors(4), 0.5).startswith("PyTorch: shadow mode found a wrong result")
    package.shadow()
    assert package.status()["given_up"] is not None, "only enable() lifts it"
    package.enable()
    assert package.explain(*tensors(4), 0.5).startswith("kernel")

    (saved,) = (tmp_path / "shadow").iterdir()
    inputs = torch.load(saved / "inputs.pt", weights_only=True)
    assert torch.equal(inputs["x"], x)
    assert inputs["m"] == 0.5
    document = json.loads((saved / "workload.json").read_text())
    op = parse_op(SCALED_ADD | {"workloads": [*SCALED_ADD["workloads"], document["workload"]]})  # type: ignore[misc]
    resolved = resolve_workload(op, op.workload(Target.parse("cpu"), document["workload"]["id"]))
    assert resolved["axes"]["rows"] == 40
    assert resolved["inputs"][0]["dist"]["std"] == pytest.approx(float(x.double().std(correction=0)))
    assert resolved["inputs"][2]["value"] == 0.5


def test_a_mismatch_of_an_in_place_op_is_put_right(imported: Importer) -> None:
    package = imported(IN_PLACE, IN_PLACE_CPP.replace("m * y[i];", "m * y[i] + 1;"))
    package.shadow(every=1)
    x, y = tensors()
    before = x.clone()
    with pytest.warns(RuntimeWarning, match="wrong result"):
        package.scaled_add_(x, y, 0.5)
    torch.testing.assert_close(x, before + 0.5 * y)


def test_shadow_mode_knows_what_is_not_finite(imported: Importer) -> None:
    package = imported()
    package.shadow(every=1)
    x, y = tensors()
    x[0, 0], x[1, 1], y[2, 2] = float("nan"), float("inf"), float("-inf")
    package.scaled_add(x, y, 0.5)
    assert package.status()["shadow"]["checked"] == 1
    assert package.status()["given_up"] is None


def test_an_ops_own_tolerance_counts(imported: Importer) -> None:
    loose = [{**SCALED_ADD["outputs"][0], "tolerance": {"rtol": 0.0, "atol": 1.5}}]  # type: ignore[index]
    package = imported(SCALED_ADD | {"outputs": loose}, WRONG_ABOVE_100)
    package.shadow(every=1)
    package.scaled_add(*tensors(), 0.5)
    assert package.status()["shadow"] == {"every": 1, "checked": 1, "mismatches": 0, "unchecked": 0}


def test_an_exact_result_is_the_rounded_reference(imported: Importer) -> None:
    exact = [{**SCALED_ADD["outputs"][0], "tolerance": {"rtol": 0.0, "atol": 0.0}}]  # type: ignore[index]
    package = imported(SCALED_ADD | {"outputs": exact}, WRONG_ABOVE_100)
    package.shadow(every=1)
    x, y = tensors(4)
    x[0, 0], x[1, 1], y[1, 1], x[2, 2] = float("inf"), 3e38, 3e38, float("nan")  # the second overflows
    package.scaled_add(x, y, 0.5)
    assert package.status()["shadow"] == {"every": 1, "checked": 1, "mismatches": 0, "unchecked": 0}
    with pytest.warns(RuntimeWarning, match="shadow mode found a wrong result"):
        package.scaled_add(*tensors(40), 0.5)


def test_a_chunk_is_not_taken_for_contiguous(imported: Importer) -> None:
    package = imported()
    whole = torch.randn(40, 16)
    x, y = whole.chunk(2, dim=1)
    with pytest.warns(RuntimeWarning, match="x is strided \\(16, 1\\), verified for contiguous tensors"):
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)


def test_declared_strides_are_the_ones_that_are_served(imported: Importer) -> None:
    columns_first = {**SCALED_ADD["inputs"][0], "strides": [1, "rows"]}  # type: ignore[index]
    spec = SCALED_ADD | {"inputs": [columns_first, *SCALED_ADD["inputs"][1:]]}  # type: ignore[index]
    package = imported(spec, SCALED_ADD_CPP.replace("x[i]", "x[i % 8 * (n / 8) + i / 8]"))
    y = torch.randn(40, 8)
    x = torch.randn(8, 40).t()
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert package.explain(x, y, 0.5).startswith("kernel")
    assert package.explain(y, y, 0.5) == "PyTorch: x is strided (8, 1), verified for strides (1, 40)"


def test_a_tensor_that_lies_anywhere_is_copied_to_where_the_kernel_was_verified(imported: Importer) -> None:
    """As weights that are mapped from a file do: each starts where the one before it ends."""
    package = imported()
    x, y = torch.randn(329)[9:].view(40, 8), torch.randn(40, 8)
    assert x.data_ptr() % 64 == 36
    assert package.explain(x, y, 0.5) == "kernel: inside the envelope (a verified shape, on aligned copies)"
    before = x.clone()
    for _ in range(4):
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert torch.equal(x, before)
    torch.testing.assert_close(package.scaled_add(before, y, 0.5), x + 0.5 * y)
    assert package.status()["served"] == {"kernel": 5, "pytorch": 0}
    learned = torch.nn.Parameter(torch.randn(329))
    package.scaled_add(learned[9:].view(40, 8), y, 0.5).sum().backward()
    assert float(learned.grad.sum()) == 320


def test_what_may_be_copied_to_an_aligned_address(imported: Importer) -> None:
    """On a GPU PyTorch's own attention goes wrong on such tensors: a copy is right, up to a size. Checked on tensors
    without memory, since there need be no GPU here.
    """
    package = imported()
    guard = importlib.import_module(f"{package.__name__}._guard")
    largest = torch.empty(guard.LARGEST_COPIED // 4, device="meta")
    assert guard.may_be_copied(0, largest)
    assert not guard.may_be_copied(0, torch.empty(largest.numel() + 1, device="meta"))
    assert not guard.may_be_copied(0, torch.empty(8, 3, device="meta").t())


def test_what_a_kernel_writes_is_not_copied(imported: Importer) -> None:
    package = imported(IN_PLACE, IN_PLACE_CPP)
    x, y = torch.randn(321)[1:].view(40, 8), torch.randn(40, 8)
    assert package.explain(x, y, 0.5) == (
        "PyTorch: x does not start at a multiple of 64 bytes, as it did when it was verified"
    )
    expected = x + 0.5 * y
    with pytest.warns(RuntimeWarning, match="multiple of 64 bytes"):
        package.scaled_add_(x, y, 0.5)
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "cpu:aarch64"}, "the architecture is x86_64, verified on aarch64"),
        ({"target": "cuda:sm_90"}, "x is on cpu, verified on cuda"),
        ({"envelope": {"versions": {"torch": "1.13.1"}}}, f"torch is {torch.__version__}, verified with 1.13.1"),
    ],
    ids=["architecture", "device", "version"],
)
def test_another_machine_is_not_the_one_that_was_verified(
    imported: Importer, changes: dict[str, Any], reason: str
) -> None:
    if Target.parse("cpu").arch != "x86_64":
        pytest.skip("the case is written for x86-64")
    package = imported(**changes)
    x, y = tensors()
    assert package.explain(x, y, 0.5) == f"PyTorch: {reason}"
    with pytest.warns(RuntimeWarning):
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)


@pytest.mark.parametrize("kind", ["rank", "broadcast", "empty", "sparse", "flipped"])
def test_what_the_kernel_cannot_take_never_crashes(imported: Importer, kind: str) -> None:
    package = imported()
    x, y = tensors()
    calls = {
        "rank": (x[0], y[0]),
        "broadcast": (x, y[:1]),
        "empty": (x[:0], y[:0]),
        "sparse": (x.to_sparse(), x.to_sparse()),
        "flipped": (torch._neg_view(x), y),
    }
    x, y = calls[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = package.scaled_add(x, y, 0.5)
    expected = x + 0.5 * y
    torch.testing.assert_close(found.to_dense(), expected.to_dense())


def test_a_launch_that_raises_goes_to_pytorch(imported: Importer) -> None:
    package = imported(source=SCALED_ADD_CPP.replace("out.numel())", "2**63 if x.shape[0] > 30 else out.numel())"))
    x, y = tensors()
    with pytest.warns(RuntimeWarning, match="the kernel raised OverflowError"):
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert package.explain(*tensors(5), 0.5).startswith("kernel"), "only that call was refused"
    assert package.status()["served"] == {"kernel": 0, "pytorch": 1}, "one call is counted once"
    broken = imported(source=SCALED_ADD_CPP.replace("kernels.scaled_add", "kernels.absent"))
    with pytest.warns(RuntimeWarning, match="PyTorch serves every call from now on, because the kernel raised Attr"):
        torch.testing.assert_close(broken.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert "AttributeError" in broken.explain(x, y, 0.5)


def test_a_kernel_whose_every_launch_is_refused_is_not_called_right(imported: Importer) -> None:
    package = imported(source=SCALED_ADD_CPP.replace("out.numel())", "2**63)"))
    selfcheck, verify = (importlib.import_module(f"{package.__name__}.{name}") for name in ("selfcheck", "verify"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = selfcheck.check(selfcheck.workloads()[0], 1)
        with pytest.raises(verify.Failed, match="PyTorch served, expected the kernel"), verify.kernel_serves():
            package.scaled_add(*tensors(), 0.5)
    assert not row["agrees"]
    assert row["served_by"].startswith("PyTorch: the kernel raised OverflowError")


def test_inputs_and_weights_stay_as_they_are(imported: Importer) -> None:
    package = imported(
        SCALED_ADD | {"reference": "def run(x, y, m):\n    return x.view_as(x) if m == 0 else x + m * y\n"}
    )
    x, y = torch.nn.Parameter(torch.randn(40, 8)), torch.randn(40, 8)
    before = x.detach().clone(), y.clone()
    package.scaled_add(x, y, 0.5).sum().backward()
    with package.disabled(), torch.no_grad():
        package.scaled_add(x, y, 0.0).add_(1)
    assert torch.equal(x.detach(), before[0])
    assert torch.equal(y, before[1])


PRODUCT = SCALED_ADD | {"reference": "def run(x, y, m):\n    return m * x * x * y\n"}
PRODUCT_CPP = SCALED_ADD_CPP.replace("x[i] + m * y[i]", "m * x[i] * x[i] * y[i]")


def test_second_derivatives_are_those_of_the_reference(imported: Importer) -> None:
    package = imported(PRODUCT, PRODUCT_CPP)
    values = tensors()

    def second(run: Callable[..., Any], same: bool) -> list[Any]:
        x, y = (value.clone().requires_grad_() for value in values)
        first = torch.autograd.grad(run(x, x if same else y, 0.5).sum(), x, create_graph=True)[0]
        return list(torch.autograd.grad((first**2).sum(), [x] if same else [x, y]))

    for same in (False, True):
        found, wanted = (second(run, same) for run in (package.scaled_add, lambda x, y, m: m * x * x * y))
        torch.testing.assert_close(found, wanted)
    assert package.status()["served"] == {"kernel": 2, "pytorch": 0}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("in_place", [True, False], ids=["in_place", "returns"])
def test_forward_mode_derivatives_are_pytorchs(imported: Importer, grad: bool, in_place: bool) -> None:
    package = imported(IN_PLACE, IN_PLACE_CPP) if in_place else imported(PRODUCT, PRODUCT_CPP)
    x, y = tensors()

    def run(x: Any) -> Any:
        if not in_place:
            return package.scaled_add(x, y, 0.5)
        changed = x * 1
        package.scaled_add_(changed, y, 0.5)
        return changed

    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.simplefilter("ignore")
        _, found = torch.func.jvp(run, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(found, torch.ones_like(x) if in_place else x * y)
    assert package.status()["fallbacks"] == {"forward-mode derivatives are taken": 1}


def test_transforms_that_take_gradients_are_pytorchs(imported: Importer) -> None:
    package = imported(PRODUCT, PRODUCT_CPP)
    x, y = tensors()

    def total(x: Any) -> Any:
        return package.scaled_add(x, y, 0.5).sum()

    def right(x: Any) -> Any:
        return (0.5 * x * x * y).sum()

    func = torch.func
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for transform in (
            func.grad,
            func.jacrev,
            lambda f: lambda x: func.vjp(f, x)[1](torch.tensor(2.0)),
            lambda f: lambda x: func.vmap(func.grad(f))(torch.stack([x, 2 * x])),
            lambda f: func.grad(lambda x: func.vmap(f)(torch.stack([x, 2 * x])).sum()),
            lambda f: func.grad(lambda x: func.grad(f)(x).sum()),
        ):
            torch.testing.assert_close(transform(total)(x), transform(right)(x))
    assert set(package.status()["fallbacks"]) == {"torch.func takes gradients"}
    compiled = torch.compile(func.grad(total), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), func.grad(right)(x))


BY_VALUE = SCALED_ADD | {
    "inputs": [
        {"name": "x", "shape": ["rows", "columns"], "dtype": "float32"},
        {"name": "bounds", "shape": ["two"], "dtype": "int64", "dist": {"kind": "indptr", "total": "rows"}},
    ],
    "axes": {
        "rows": {"kind": "var"},
        "columns": {"kind": "const", "value": 8},
        "two": {"kind": "const", "value": 2},
    },
}
REFERENCES_BY_VALUE = {
    "a branch": """
    y = torch.zeros_like(x)
    start, end = bounds.tolist()
    if start < end:
        y[start:end] = 2 * x[start:end]
    return y
""",
    "sizes of the result": """
    start, end = bounds.tolist()
    return torch.cat([0 * x[:start], 2 * x[start:end], 0 * x[end:]])
""",
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("reference", REFERENCES_BY_VALUE)
def test_a_compiled_op_is_opaque_whatever_its_reference_does(
    imported: Importer, reference: str, dynamic: bool | None
) -> None:
    """Values decide what the reference does, and tracing has none: the spec says what comes out."""
    source = SCALED_ADD_CPP.replace("const float* y, float m", "const int64_t* b, int64_t c").replace(
        "x[i] + m * y[i]", "i >= b[0] * c && i < b[1] * c ? 2 * x[i] : 0"
    )
    source = source.replace("run(x, y, m, out)", "run(x, bounds, out)").replace(
        "(x, y, m, out, out.numel())", "(x, bounds, out.shape[1], out, out.numel())"
    )
    torch._dynamo.reset()
    package = imported(
        BY_VALUE | {"reference": f"import torch\n\ndef run(x, bounds):{REFERENCES_BY_VALUE[reference]}"}, source
    )
    compiled = torch.compile(
        lambda *a: package.scaled_add(*a) + 1, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    for rows in (3, 40):
        x, bounds = torch.randn(rows, 8), torch.tensor([0, rows])
        torch.testing.assert_close(compiled(x, bounds), 2 * x + 1)
    assert package.status()["served"] == {"kernel": 2, "pytorch": 0}


def test_a_program_is_broken_down_to_pytorchs_own_operators(imported: Importer) -> None:
    """As the exporter to ONNX does, which looks for its own operators in the table of all that are registered."""
    package = imported()
    x, y = tensors()

    class Adding(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return package.scaled_add(x, y, 0.5)

    program = torch.export.export(Adding(), (x, y))
    assert any("scaled_add" in str(node.target) for node in program.graph.nodes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own
        table = torch.export.default_decompositions()
        for operator, reference in torch._decomp.decomposition_table.items():
            if "warpsmith" in str(operator):
                table[operator] = reference
        plain = program.run_decompositions(table)
    called = {str(node.target) for node in plain.graph.nodes if node.op == "call_function"}
    assert called == {"aten.mul.Tensor", "aten.add.Tensor"}
    torch.testing.assert_close(plain.module()(x, y), x + 0.5 * y)


def test_pytorch_itself_is_not_changed(imported: Importer) -> None:
    places = (torch, torch.nn.functional, torch.Tensor, torch.nn.Module, torch.ops.aten)
    before = [dict(vars(place)) for place in places]
    package = imported()
    package.scaled_add(*tensors(), 0.5)
    for place, names in zip(places, before, strict=True):
        changed = [name for name, value in names.items() if vars(place).get(name) is not value]
        assert not changed, place


def test_two_exports_of_one_op_keep_apart_when_compiled_together(imported: Importer) -> None:
    right, other = imported(), imported(source=SCALED_ADD_CPP.replace("m * y[i];", "m * y[i] + 1;"))
    assert right.__name__ != other.__name__
    other.watch(every=None)
    x, y = tensors()
    both = torch.compile(
        lambda x, y: (right.scaled_add(x, y, 0.5), other.scaled_add(x, y, 0.5)), fullgraph=True, backend="aot_eager"
    )
    first, second = both(x, y)
    torch.testing.assert_close(first, x + 0.5 * y)
    torch.testing.assert_close(second, x + 0.5 * y + 1)


def test_autocast_has_no_say_inside_the_op(imported: Importer) -> None:
    package = imported(SCALED_ADD | {"reference": "def run(x, y, m):\n    return x + m * y.mm(y.new_ones(8, 8))\n"})
    x, y = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16), package.disabled():
        assert package.scaled_add(x, y, 0.5).dtype is torch.float32


def test_shadow_mode_compares_outside_of_autocast(imported: Importer) -> None:
    package = imported(
        SCALED_ADD
        | {"reference": "import torch\n\n\ndef run(x, y, m):\n    return (x + m * y).mm(torch.eye(8).to(y))\n"}
    )
    package.shadow(every=1)
    x, y = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert package.status()["shadow"] == {"every": 1, "checked": 1, "mismatches": 0, "unchecked": 0}


def test_the_reference_gives_the_functions_defaults(imported: Importer) -> None:
    package = imported(SCALED_ADD | {"reference": "def run(x, y, m=0.5, more=1):\n    return x + m * y\n"})
    x, y = tensors()
    torch.testing.assert_close(package.scaled_add(x, y), x + 0.5 * y)
    assert package.explain(x, y).startswith("kernel")


TUNED = """import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def scaled(x, y, out, m, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + m * tl.load(y + i, mask=inside), mask=inside)


def run(x, y, m, out):
    n = out.numel()
    scaled[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, m, n)
"""
USE_TUNED = """
import warnings
import torch
import {module} as package

x, y = torch.randn(40, 8), torch.randn(40, 8)
torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
assert package.status()["served"] == {{"kernel": 1, "pytorch": 0}}, package.status()
assert len(package._load.KERNELS[0].module.scaled.configs) == 1
print(package.status()["notes"])
"""


@pytest.mark.nightly
def test_no_configuration_is_ever_tuned_at_run_time(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="a Triton kernel needs Triton, which is not installed")
    project = build(exported(SCALED_ADD, TUNED, "triton"), tmp_path / "out")
    script = USE_TUNED.format(module=project.name)
    done = in_fresh_process(project, "-c", script, home=tmp_path, variables={"TRITON_INTERPRET": "1"})
    assert "scaled: frozen to the first of 2 configurations (BLOCK: 64" in done.stdout, done.stderr
    quiet = f"import warnings\nwarnings.simplefilter('ignore')\n{script}"
    done = in_fresh_process(project, "-c", quiet, home=tmp_path)
    assert "set TRITON_INTERPRET=1" in done.stderr, "without a GPU and the interpreter PyTorch serves"


USE_TIMED = """
import torch
import {module} as package

for rows in (4, 6, 36):
    x, y = torch.randn(rows, 8), torch.randn(rows, 8)
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    print(rows, package._load.KERNELS[0].module.scaled.best_config.kwargs)
assert package.status()["served"] == {{"kernel": 3, "pytorch": 0}}, package.status()
assert package.status()["notes"] == [], package.status()["notes"]
"""


@pytest.mark.nightly
def test_a_call_takes_the_configuration_that_was_timed_nearest_to_its_size(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="a Triton kernel needs Triton, which is not installed")
    kernel = exported(SCALED_ADD, TUNED, "triton")
    common = {"num_warps": 4, "num_ctas": 1, "num_stages": 3}
    for row, (n, block) in zip(kernel.evidence["workloads"], [(32, 128), (320, 64)], strict=False):
        row["configurations"] = [{"kernel": "scaled", "key": [n], "configuration": {"BLOCK": block, **common}}]
    project = build(kernel, tmp_path / "out")
    assert "A call takes the configuration that was timed" in (project / "README.md").read_text()
    script = USE_TIMED.format(module=project.name)
    done = in_fresh_process(project, "-c", script, home=tmp_path, variables={"TRITON_INTERPRET": "1"})
    assert done.stdout.splitlines() == ["4 {'BLOCK': 128}", "6 {'BLOCK': 128}", "36 {'BLOCK': 64}"], done.stderr


def test_a_cache_that_cannot_be_written(imported: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "taken"
    file.write_text("no directory")  # a mode would not keep root from writing
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(file / "cache"))
    package = imported()
    x, y = tensors()
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    status = package.status()
    assert status["served"] == {"kernel": 1, "pytorch": 0}
    assert "cannot be written" in status["notes"][0]
    assert "WARPSMITH_KERNEL_CACHE" in status["notes"][0]


def test_the_packages_own_checks_find_a_wrong_kernel(imported: Importer) -> None:
    package = imported(source=WRONG_ABOVE_100)
    verify = importlib.import_module(f"{package.__name__}.verify")
    row = verify.run("eager")
    assert row["outcome"] == "failed"
    assert row["detail"].startswith("large: error ")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert verify.run("control")["outcome"] == "passed", "the smallest workload is right"


def test_the_packages_own_checks_draw_values_that_the_ops_text_makes(imported: Importer) -> None:
    made = "import torch\n\ndef make(shape, dtype, generator):\n    return torch.full(shape, 3.0, dtype=dtype)\n"
    inputs = [SCALED_ADD["inputs"][0] | {"dist": {"kind": "code", "source": made}}, *SCALED_ADD["inputs"][1:]]  # type: ignore[index]
    package = imported(SCALED_ADD | {"inputs": inputs})
    selfcheck = importlib.import_module(f"{package.__name__}.selfcheck")
    workload = selfcheck.workloads()[0]
    assert torch.equal(selfcheck.draw(workload, 1)[0], torch.full((3, 8), 3.0))
    assert selfcheck.check(workload, 1)["agrees"]


FORKED = """
import os
import warnings
import torch
import {module} as package
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
torch.set_num_threads(1)
x, y = torch.ones(3, 8), torch.ones(3, 8)
def serve():
    for _ in range(6):
        assert torch.equal(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    status = package.status()
    return status["served"], status["plans"]["recorded"]
for _ in range(2):
    child = os.fork()
    if child == 0:
        print("child", *serve(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent", *serve(), flush=True)
"""


def test_a_fork_before_the_first_call_and_after_it(tmp_path: Path) -> None:
    """The package has no threads, and holds no lock between calls: a child serves by itself."""
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path / "exports")
    done = in_fresh_process(project, "-c", FORKED.format(module=project.name), home=tmp_path)
    assert done.stdout.splitlines() == [
        f"{who} {{'kernel': {calls}, 'pytorch': 0}} 1"
        for who, calls in (("child", 6), ("parent", 6), ("child", 12), ("parent", 12))
    ], done.stderr


def test_the_packages_own_checks_lay_arguments_askew(imported: Importer) -> None:
    package = imported()
    verify = importlib.import_module(f"{package.__name__}.verify")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = verify.run("strided inputs")
    assert (row["outcome"], row["detail"]) == ("passed", "strided, unaligned")
    assert not any("multiple of 64" in reason for reason in package.status()["fallbacks"])


def test_the_packages_own_checks_lay_broadcast_arguments_askew(imported: Importer) -> None:
    repeated = {**SCALED_ADD["inputs"][0], "strides": [0, 1]}  # type: ignore[index]
    spec = SCALED_ADD | {"inputs": [repeated, *SCALED_ADD["inputs"][1:]]}  # type: ignore[index]
    package = imported(spec, SCALED_ADD_CPP.replace("x[i]", "x[i % 8]"))
    verify = importlib.import_module(f"{package.__name__}.verify")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = verify.run("strided inputs")
    assert row["outcome"] == "passed", row["detail"]


TWO_AXES = SCALED_ADD | {"axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}}}


@pytest.mark.parametrize(
    ("sizes", "outcome", "detail"),
    [
        ([(3, 8), (40, 8)], "passed", "one compilation for 2 shapes"),
        ([(1, 8), (40, 8)], "passed", "one compilation for 3 shapes"),
        ([(1, 8), (1, 16)], "skipped", "no two shapes with every size above 1"),
        ([(1, 1), (1, 16)], "skipped", "no two shapes with every size above 1"),
    ],
    ids=["ordinary", "one of size 1", "all of size 1", "each of size 1"],
)
def test_the_packages_own_check_of_dynamic_shapes(
    imported: Importer, sizes: list[tuple[int, int]], outcome: str, detail: str
) -> None:
    workloads = [
        {"id": f"w{number}", "role": "bench", "axes": {"rows": rows, "columns": columns}}
        for number, (rows, columns) in enumerate(sizes)
    ]
    package = imported(TWO_AXES | {"workloads": workloads})
    verify = importlib.import_module(f"{package.__name__}.verify")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = verify.run("dynamic shapes")
    assert row["outcome"] == outcome, row
    assert detail in row["detail"]


def test_views_of_one_buffer_that_share_no_byte_are_served(imported: Importer) -> None:
    package = imported(IN_PLACE, IN_PLACE_CPP)
    buffer = torch.randn(80, 8)
    x, y = buffer[:40], buffer[40:]
    assert package.explain(x, y, 0.5).startswith("kernel")
    x, y = buffer[:40], buffer[38:78]
    assert package.explain(x, y, 0.5) == "PyTorch: x shares memory with y"


def test_memory_of_another_storage_is_shared_all_the_same(imported: Importer) -> None:
    package = imported(IN_PLACE, IN_PLACE_CPP)
    x = torch.randn(40, 8)
    y = torch.from_numpy(x.numpy()[32:]).as_strided((8, 8), (8, 1))
    assert x.untyped_storage().data_ptr() != y.untyped_storage().data_ptr()
    assert package.explain(x[:8], y, 0.5).startswith("kernel")
    assert package.explain(x[32:], y, 0.5) == "PyTorch: x shares memory with y"


def test_nothing_is_measured_while_the_kernel_is_switched_off(imported: Importer) -> None:
    package = imported()
    overhead = importlib.import_module(f"{package.__name__}.overhead")
    with package.disabled(), pytest.raises(RuntimeError, match="disabled\\(\\) is in force"):
        overhead.measure()


@pytest.mark.parametrize(
    ("over", "between", "launches", "outcome", "detail"),
    [
        (3.0, (1.0, 4.0), 0, "passed", "3.0 us over the raw launch, which takes 1487.2 us"),
        (
            -237.1,
            (-300.0, 20.0),
            1,
            "skipped",
            "cannot be told here: below what the clock can tell on this machine beside a raw launch of 1487.2 us "
            "(half of the rounds found -300.0 to 20.0 us)",
        ),
        (3.0, (-1.0, 4.0), 1, "skipped", "cannot be told here: "),
        (-237.1, (-300.0, -100.0), 0, "skipped", "cannot be told here: "),
        (
            -2.5,
            (-3.0, -2.0),
            1,
            "passed",
            "none: 2.5 us less than the raw launch, which takes 1487.2 us; replayed by a plan of 1 launch",
        ),
    ],
)
def test_an_overhead_that_the_rounds_do_not_agree_on_is_no_measurement(
    over: float,
    between: tuple[float, float],
    launches: int,
    outcome: str,
    detail: str,
    imported: Importer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = imported()
    verify = importlib.import_module(f"{package.__name__}.verify")
    found = verify.overhead.Measured({"overhead": over, "raw": 1487.2}, launches, 0, {}, between)
    monkeypatch.setattr(verify.overhead, "measured", lambda: found)
    row = verify.run("dispatch overhead")
    assert row["outcome"] == outcome, row
    assert row["detail"].startswith(detail), row


def test_help_measures_nothing(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    package = imported()
    overhead = importlib.import_module(f"{package.__name__}.overhead")
    monkeypatch.setattr("sys.argv", ["overhead", "--help"])
    with package.disabled(), pytest.raises(SystemExit) as ended:  # measuring would raise something else
        overhead.main()
    assert ended.value.code == 0


# The watch


def test_the_watch_checks_the_first_calls_and_then_one_in_many(imported: Importer) -> None:
    package = imported()
    package.watch(every=10)
    x, y = tensors()
    for _ in range(25):
        package.scaled_add(x, y, 0.5)
    status = package.status()
    assert status["watch"] == {"every": 10, "checked": 3 + 2, "mismatches": 0, "unchecked": 0}
    assert status["shadow"]["checked"] == 0
    assert (status["mode"], status["served"]["kernel"]) == ("on", 25)


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_the_watch_can_be_switched_off(imported: Importer, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "variable":
        monkeypatch.setenv("WARPSMITH_WATCH", "off")
    package = imported()
    if how == "argument":
        assert package.status()["watch"]["every"] == 10_000
        package.watch(every=None)
    package.scaled_add(*tensors(), 0.5)
    assert package.status()["watch"] == {"every": None, "checked": 0, "mismatches": 0, "unchecked": 0}


@pytest.mark.parametrize("saves", [True, False])
def test_a_kernel_that_changes_after_many_calls_is_found(
    imported: Importer, saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the calls of any verification. Inputs are saved where somebody said so alone."""
    if not saves:
        monkeypatch.delenv("WARPSMITH_SHADOW_DIR", raising=False)
    counts = "static int64_t calls = 0; calls++;\n  for"
    bomb = SCALED_ADD_CPP.replace("for", counts, 1).replace("m * y[i];", "m * y[i] + (calls > 25);")
    package = imported(source=bomb)
    package.watch(every=20)
    x, y = tensors()
    with pytest.warns(RuntimeWarning, match="the watch found a wrong result at .*'rows': 40"):
        found = [package.scaled_add(x, y, 0.5) for _ in range(41)]
    torch.testing.assert_close(found[-1], x + 0.5 * y)
    assert package.explain(x, y, 0.5).startswith("PyTorch: the watch found a wrong result")
    assert package.status()["watch"]["mismatches"] == 1
    assert (tmp_path / "shadow").exists() == saves


def test_the_watch_leaves_large_calls_and_tracing_alone(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    package = imported()
    with torch._subclasses.FakeTensorMode() as fakes:
        package.scaled_add(*(fakes.from_tensor(tensor) for tensor in tensors()), 0.5)
    assert package.status()["watch"]["checked"] == 0
    x, y = tensors()
    monkeypatch.setattr(importlib.import_module(f"{package.__name__}._shadow"), "LARGEST_WATCHED", 2 * x.nbytes)
    for _ in range(4):
        package.scaled_add(x, y, 0.5)
    assert package.status()["watch"] == {"every": 10_000, "checked": 0, "mismatches": 0, "unchecked": 3}
