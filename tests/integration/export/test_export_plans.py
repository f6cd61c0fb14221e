"""Launch plans of exported C++ packages: the same bits as without, and refused where they may not be.

Each package is imported here, under a name of its own.
"""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")

Importer = Callable[..., ModuleType]

HEAD, RUN = SCALED_ADD_CPP.split("def run")
RUN = "def run" + RUN
SEVERAL = '''import torch
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scale(const float* y, double m, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] += (float)m * y[i];
}
extern "C" void add(const float* x, const float* y, float* out, int64_t n, bool last) {
  for (int64_t i = 0; i < n; ++i) out[i] = last ? x[i] + y[i] : y[i];
}
""")


def run(x, y, m, out):
    n = out.numel()
    scratch = torch.empty((2, n + 3), dtype=torch.float32, device=x.device)
    kept = torch.zeros(n, dtype=x.dtype, device=x.device)
    row = scratch[1][3:]
    out.zero_()
    kernels.scale(y, m, kept, n)
    kernels.add(x, kept, row, n, False)
    kernels.add(x, row, out, n, True)
'''


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One kernel cache for all packages here: each source is compiled once, and the extension too."""
    return Path(with_plans(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def imported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Importer:
    """Export a kernel and import the package under the test's own name."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(cache))

    def use(source: str = SCALED_ADD_CPP, spec: dict[str, Any] = SCALED_ADD) -> ModuleType:
        kernel = exported(spec, source)
        project = build(replace(kernel, envelope=kernel.envelope | {"name": request.node.name}), tmp_path / "exports")
        monkeypatch.syspath_prepend(project)
        return importlib.import_module(project.name)

    return use


def tensors(rows: int = 40) -> tuple[Any, Any]:
    return torch.randn(rows, 8), torch.randn(rows, 8)


def planned(package: ModuleType, *arguments: Any) -> dict[str, Any]:
    """What is said of plans once a signature was called often enough for one."""
    for _ in range(5):
        package.scaled_add(*arguments)
    return plans(package)


def plans(package: ModuleType) -> dict[str, Any]:
    found: dict[str, Any] = package.status()["plans"]
    return found


def part(package: ModuleType, name: str) -> Any:
    return importlib.import_module(f"{package.__name__}.{name}")


def by_python(package: ModuleType, *arguments: Any) -> Any:
    """The op's result without any plan."""
    with part(package, "_plans").without():
        return package.scaled_add(*arguments)


@pytest.mark.parametrize("source", [SCALED_ADD_CPP, SEVERAL], ids=["one launch", "several launches and scratch"])
def test_a_plan_gives_the_bits_of_run_at_every_shape(imported: Importer, source: str) -> None:
    package = imported(source)
    for rows in (3, 4, 17, 40):
        planned(package, *tensors(rows), 0.5)
        before = plans(package)["replayed"]
        for _ in range(3):
            x, y = tensors(rows)
            replayed = package.scaled_add(x, y, 0.5)
            assert torch.equal(replayed, by_python(package, x, y, 0.5))
            assert replayed.is_contiguous()
        assert plans(package)["replayed"] >= before + 1, plans(package)
    found = plans(package)
    assert (found["for"], found["recorded"], found["held"], found["refused"]) == (["cpp"], 4, 4, {})
    assert package.status()["served"]["pytorch"] == 0


def test_calls_are_counted_once_whoever_serves_them(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    for _ in range(20):
        package.scaled_add(x, y, 0.5)
    status = package.status()
    assert (status["served"], status["plans"]["replayed"]) == ({"kernel": 20, "pytorch": 0}, 17)
    assert next(iter(status["kernels"].values()))["served"] == 20


def test_strided_inputs_have_plans_of_their_own(imported: Importer) -> None:
    """A stride that the spec declares reaches the launch, and another tensor lies between two rows."""
    inputs = [dict(each) for each in SCALED_ADD["inputs"]]  # type: ignore[attr-defined]
    inputs[0]["strides"] = [16, 1]
    source = SCALED_ADD_CPP.replace("x[i]", "x[i / 8 * s + i % 8]").replace("int64_t n)", "int64_t s, int64_t n)")
    package = imported(
        source.replace("out, out.numel())", "out, x.stride(0), out.numel())"), SCALED_ADD | {"inputs": inputs}
    )
    for rows in (3, 40):
        wide, y = torch.randn(rows, 16), torch.randn(rows, 8)
        found = planned(package, wide[:, :8], y, 0.5)
        assert torch.equal(package.scaled_add(wide[:, :8], y, 0.5), by_python(package, wide[:, :8], y, 0.5))
    assert (found["held"], found["refused"]) == (2, {})


def test_an_address_askew_is_left_to_the_guard(imported: Importer) -> None:
    package = imported()
    planned(package, *tensors(3), 0.5)
    room = torch.randn(100)
    askew, y = room[1:25].view(3, 8), torch.randn(3, 8)
    before = package.status()["served"]["kernel"]
    torch.testing.assert_close(package.scaled_add(askew, y, 0.5), askew + 0.5 * y)
    assert part(package, "_plans").table.call(askew, y, 0.5) is NotImplemented
    assert package.explain(askew, y, 0.5).endswith("on aligned copies)")
    assert package.status()["served"] == {"kernel": before + 1, "pytorch": 0}


def test_a_number_of_another_type_goes_through_the_op(imported: Importer) -> None:
    spec = SCALED_ADD | {
        "inputs": [*SCALED_ADD["inputs"][:2], SCALED_ADD["inputs"][2] | {"value": 1.0}],  # type: ignore[index]
    }
    package = imported(SCALED_ADD_CPP, spec)
    x, y = tensors()
    planned(package, x, y, 1.0)
    table = part(package, "_plans").table
    assert table.call(x, y, 1) is NotImplemented
    assert table.call(x, y, True) is NotImplemented
    assert torch.equal(table.call(x, y, 1.0), x + y)
    assert torch.equal(package.scaled_add(x, y, 1), x + y), "whose schema makes it a float"


def test_an_op_in_place_counts_versions_and_refuses_shared_memory(imported: Importer) -> None:
    package = imported(IN_PLACE_CPP, IN_PLACE)
    x, y = tensors()
    for _ in range(4):
        package.scaled_add_(x, y, 0.5)
    assert plans(package)["recorded"] == 1, plans(package)
    expected, version = x + 0.5 * y, x._version
    assert package.scaled_add_(x, y, 0.5) is None
    torch.testing.assert_close(x, expected)
    assert (x._version, plans(package)["replayed"]) == (version + 1, 2)
    with pytest.warns(RuntimeWarning, match="x shares memory with y"):
        package.scaled_add_(x, x, 0.5)
    torch.testing.assert_close(x, expected * 1.5)


def test_gradients_go_through_the_op(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    before = plans(package)["replayed"]
    learned = torch.nn.Parameter(x.clone())
    out = package.scaled_add(learned, y, 0.5)
    out.sum().backward()
    assert torch.equal(learned.grad, torch.ones_like(x))
    with torch.no_grad():
        assert not package.scaled_add(learned, y, 0.5).requires_grad
    assert plans(package)["replayed"] == before + 2, "inside the op, and without gradients around it"


def test_inference_mode_makes_inference_tensors(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    with torch.inference_mode():
        planned(package, x, y, 0.5)
        assert package.scaled_add(x, y, 0.5).is_inference()
    before = plans(package)["replayed"]
    out = package.scaled_add(x, y, 0.5)
    assert not out.is_inference()
    assert plans(package)["replayed"] == before + 1


def test_what_stands_around_a_call_sees_the_op(imported: Importer) -> None:
    class Seen(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    with Seen() as seen:
        package.scaled_add(x, y, 0.5)
    assert any("scaled_add_inference" in name for name in seen.names)
    with torch.profiler.profile() as profile:
        package.scaled_add(x, y, 0.5)
    assert any("scaled_add" in event.key for event in profile.key_averages())
    with torch.device("meta"):
        assert package.scaled_add(x, y, 0.5).device.type == "cpu"


def test_other_kinds_of_tensors_are_left_to_pytorch(imported: Importer) -> None:
    class Own(torch.Tensor):  # type: ignore[misc,name-defined]
        pass

    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    negative = torch._neg_view(x)
    torch.testing.assert_close(package.scaled_add(negative, y, 0.5), y * 0.5 - x)
    torch.testing.assert_close(package.scaled_add(x.as_subclass(Own), y, 0.5), x + 0.5 * y, check_dtype=False)
    several = torch.stack([x, y]), torch.stack([y, x])
    before = plans(package)["replayed"]
    mapped = torch.func.vmap(lambda a, b: package.scaled_add(a, b, 0.5))(*several)
    torch.testing.assert_close(mapped, several[0] + 0.5 * several[1])
    assert plans(package)["replayed"] == before + 2, "one of each, inside the op"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own of jit, and the fallback's
        _, tangent = torch.func.jvp(lambda a: package.scaled_add(a, y, 0.5), (x,), (y,))
    torch.testing.assert_close(tangent, y)


def test_compiled_code_replays_inside_the_op(imported: Importer) -> None:
    package = imported()
    compiled = torch.compile(lambda a, b: package.scaled_add(a, b, 0.5) * 2, fullgraph=True, backend="aot_eager")
    x, y = tensors()
    for _ in range(6):
        torch.testing.assert_close(compiled(x, y), 2 * (x + 0.5 * y))
    assert plans(package)["replayed"] == 3
    with torch.compiler.set_stance("fail_on_recompile"), package.disabled():
        torch.testing.assert_close(compiled(x, y), 2 * (x + 0.5 * y))
    assert package.status()["served"] == {"kernel": 6, "pytorch": 1}
    assert torch.equal(package.scaled_add(x, y, 0.5), by_python(package, x, y, 0.5))


def test_switches_take_effect_at_the_next_call(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    package.disable()
    package.scaled_add(x, y, 0.5)
    assert package.status()["served"]["pytorch"] == 1
    package.enable()
    with package.disabled():
        package.scaled_add(x, y, 0.5)
        package.scaled_add(x, y, 0.5)
    assert package.status()["served"]["pytorch"] == 3
    before = plans(package)["replayed"]
    for _ in range(3):
        package.scaled_add(x, y, 0.5)
    assert plans(package)["replayed"] == before + 2, "the first one was granted nothing yet"
    package.shadow(every=2)
    for _ in range(4):
        package.scaled_add(x, y, 0.5)
    status = package.status()
    assert (status["shadow"]["checked"], status["plans"]["replayed"]) == (2, before + 2)


CHANGES = SCALED_ADD_CPP.replace("for (int64_t", "static int calls = 0; ++calls;\n  for (int64_t").replace(
    "m * y[i];", "m * y[i] + (calls > 30);"
)


def test_the_watch_finds_a_kernel_that_changes_under_its_plan(imported: Importer) -> None:
    """The checks go to the plan as well: the call that is found wrong was made by it."""
    package = imported(CHANGES)
    package.watch(every=50)
    x, y = tensors()
    right = x + 0.5 * y
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [package.scaled_add(x, y, 0.5) for _ in range(60)]
    status = package.status()
    assert status["plans"]["replayed"] > 40
    assert "the watch found a wrong result" in str(status["given_up"])
    assert status["served"] == {"kernel": 51, "pytorch": 9}
    assert any("the watch found a wrong result" in str(each.message) for each in caught)
    assert all(torch.equal(each, right) for each in results[50:])


def test_every_due_call_is_checked(imported: Importer) -> None:
    package = imported()
    package.watch(every=10)
    x, y = tensors()
    for _ in range(45):
        package.scaled_add(x, y, 0.5)
    status = package.status()
    assert status["watch"]["checked"] == 3 + 4, "three at first, and calls 11, 21, 31 and 41"
    assert status["plans"]["replayed"] == 45 - 7


def test_threads_replay_at_once(imported: Importer) -> None:
    package = imported()
    wrong: list[str] = []

    def work(rows: int) -> None:
        for _ in range(200):
            x, y = tensors(rows)
            if not torch.equal(package.scaled_add(x, y, 0.5), torch.add(x, y, alpha=0.5)):
                wrong.append(f"{rows} rows")

    for rows in (3, 10, 20, 40):
        planned(package, *tensors(rows), 0.5)
    threads = [threading.Thread(target=work, args=(rows,)) for rows in (3, 10, 20, 40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert package.status()["served"] == {"kernel": 820, "pytorch": 0}
    assert plans(package)["replayed"] >= 800


def test_a_thread_has_the_context_of_its_tensors_before_anything_is_launched(
    imported: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = imported()
    done: list[Any] = []
    module = SimpleNamespace(run=lambda *given: done.append(given))
    admitted = SimpleNamespace(device=torch.device("cuda", 1), kernel=SimpleNamespace(module=module))
    monkeypatch.setattr(part(package, "_runtime.cuda_context"), "bind", done.append)
    monkeypatch.setattr(part(package, "_plans"), "run", lambda *_: done.append("a plan"))
    part(package, "_op")._start(admitted, ("x",), ["y"])
    assert done == [1, "a plan", ("x", "y")]
    admitted.device = torch.device("cpu")
    part(package, "_op")._start(admitted, ("x",), ["y"])
    assert done[3:] == ["a plan", ("x", "y")]


def test_a_fork_replays(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    expected, before = by_python(package, x, y, 0.5), plans(package)["replayed"]
    package.scaled_add(x, y, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        same = all(torch.equal(package.scaled_add(x, y, 0.5), expected) for _ in range(10))
        os._exit(0 if same and plans(package)["replayed"] >= before + 10 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


REFUSED = {
    "it computes": (
        RUN.replace("kernels.", "x = x + 0.0\n    kernels."),
        "run calls PyTorch's add, which a plan cannot repeat",
    ),
    "a read value": (
        RUN.replace("kernels.", "x[0, 0].item()\n    kernels."),
        "run calls PyTorch's _local_scalar_dense, which a plan cannot repeat",
    ),
    "memory of an earlier call": (
        "import torch\n\nkept = torch.empty(320)\n\n\n"
        + RUN.replace("m, out,", "m, kept[: x.numel()],")
        + "    out.copy_(kept[: x.numel()].view_as(out))\n",
        "run calls PyTorch's copy_, which a plan cannot repeat",
    ),
    "an unknown address": (
        "import torch\n\nones = torch.ones(320)\n\n\n" + RUN + "    kernels.scaled_add(x, y, m, ones, 1)\n",
        "scaled_add takes an address that belongs to no tensor of the call",
    ),
    "other values than zeros": (
        RUN.replace("kernels.", "out.fill_(1.0)\n    kernels."),
        "run fills a tensor with something other than zeros",
    ),
    "a part of a tensor": (
        RUN.replace("kernels.", "out[1:].zero_()\n    kernels."),
        "run fills a part of a tensor, or an argument",
    ),
    "no memory": (
        "import torch\n\n\n" + RUN.replace("kernels.", "torch.empty(0)\n    kernels."),
        "run allocates a tensor without memory of its own",
    ),
    "launches that vary": (
        "turns = []\n\n\n"
        + RUN.replace("kernels.", "turns.append(0)\n    kernels.")
        + "    if len(turns) % 2:\n        kernels.scaled_add(x, y, m, out, 1)\n",
        "two calls with the same shapes and numbers made different launches",
    ),
    "an address as a number": (
        "",
        "two calls with the same shapes and numbers made different launches",
    ),
    "a launch past the runtime": (
        RUN.replace("kernels.", "kernels.scaled_add(x, y, m, out, 1)\n    kernels.").replace(
            "    kernels.scaled_add(x, y, m, out, out.numel())",
            "    kernels.scaled_add._pointer(x.data_ptr(), y.data_ptr(), m, out.data_ptr(), out.numel())",
        ),
        "a replay gives other bits than run: run does something that was not seen",
    ),
    "an output that is written past the runtime": (
        RUN.replace("kernels.", "kernels.scaled_add(x, y, m, out, 0)\n    kernels.").replace(
            "    kernels.scaled_add(x, y, m, out, out.numel())",
            "    kernels.scaled_add._pointer(x.data_ptr(), y.data_ptr(), m, out.data_ptr(), out.numel())",
        ),
        "a replay gives other bits than run: run does something that was not seen",
    ),
    "no launch that is seen": (
        RUN.replace(
            "kernels.scaled_add(x, y, m, out, out.numel())",
            "kernels.scaled_add._pointer(x.data_ptr(), y.data_ptr(), m, out.data_ptr(), out.numel())",
        ),
        "run launches nothing that was seen",
    ),
    "an offset that no signature holds": (
        RUN.replace("out.numel())", "out.numel() + 0 * x.storage_offset())"),
        "the kernel's Python reads storage_offset, which is no part of a signature",
    ),
    "an error": (
        "turns = []\n\n\n" + RUN + "    turns.append(0)\n    if len(turns) == 4:\n        raise RuntimeError('so')\n",
        "recording raised RuntimeError: so",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_recording_cannot_explain_has_no_plan(imported: Importer, case: str) -> None:
    run, reason = REFUSED[case]
    source = HEAD + run
    if case == "an address as a number":
        source = SCALED_ADD_CPP.replace("int64_t n)", "int64_t n, int64_t)").replace(
            "out.numel())", "out.numel(), x.data_ptr())"
        )
    package = imported(source)
    x, y = tensors()
    found = planned(package, x, y, 0.5)
    assert (found["refused"], found["recorded"], found["replayed"]) == ({reason: 1}, 0, 0)
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    assert package.status()["served"] == {"kernel": 6, "pytorch": 0}, "the Python path serves"


def test_a_kernel_with_other_bits_each_time_has_no_plan(imported: Importer) -> None:
    package = imported(
        SCALED_ADD_CPP.replace("for (int64_t", "static int calls = 0; ++calls;\n  for (int64_t").replace(
            "m * y[i];", "m * y[i] + 1e-7f * (calls % 2);"
        )
    )
    reason = "two calls of run with the same values differ in their bits, so no replay can be compared with them"
    assert planned(package, *tensors(), 0.5)["refused"] == {reason: 1}


def test_large_tensors_are_not_copied_for_a_plan(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    package = imported()
    monkeypatch.setitem(part(package, "_runtime.launch_plan").LARGEST_RECORDED, "cpu", 3 << 10)
    (reason,) = planned(package, *tensors(), 0.5)["refused"]
    assert reason == "its tensors have more than 0 MiB, and the kernel takes far longer than the host"
    assert planned(package, *tensors(3), 0.5)["recorded"] == 1, "another signature"


@pytest.mark.parametrize("missing", ["compiler", "headers"])
def test_without_the_extension_the_python_path_serves(
    imported: Importer, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = imported()
    built = part(package, "_runtime.plan_build")
    if missing == "compiler":
        monkeypatch.setattr(built, "SOURCE", "#error here")
    else:
        monkeypatch.setattr(built, "SOURCE", built.SOURCE + "// another key")
        monkeypatch.setattr(built.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    x, y = tensors()
    found = planned(package, x, y, 0.5)
    said = "the compiler ended with status 1" if missing == "compiler" else "Python's headers are not installed"
    assert said in found["unavailable"]
    assert found["recorded"] == 0
    assert package.status()["served"] == {"kernel": 5, "pytorch": 0}


def test_single_calls_are_measured_beside_rounds(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    overhead = part(imported(), "overhead")
    monkeypatch.setattr(overhead, "ROUNDS", 1)
    monkeypatch.setattr(overhead, "ROUND_S", 1e-4)
    described = overhead._plans.described
    monkeypatch.setattr(overhead._plans, "described", lambda: described() | {"graphs": {"launched": 5}})
    found = overhead.measured(singly=True)
    assert (found.launches, found.graphs) == (1, 0), "graphs of other plans were launched before"
    assert set(found.singly) == set(found.microseconds) - {"overhead", "ratio"}
    between = pytest.approx(found.microseconds["overhead"], abs=0.05)
    assert found.between == (between, between), "of a single round"
    for each in found.singly.values():
        assert list(each) == ["p10", "p50", "p90", "p99"]
        assert 0 < each["p10"] <= each["p50"] <= each["p90"] <= each["p99"]
    assert overhead.measured().singly == {}


def test_the_environment_ends_plans(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_PLANS", "off")
    found = planned(imported(), *tensors(), 0.5)
    assert (found["for"], found["set_by"], found["recorded"], found["replayed"]) == ([], "WARPSMITH_PLANS", 0, 0)


def test_the_environment_is_read_strictly(imported: Importer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_PLANS", "yes")
    with pytest.raises(ValueError, match="WARPSMITH_PLANS: found 'yes', expected on or off"):
        imported()


def test_a_replay_that_raises_ends_plans(imported: Importer) -> None:
    package = imported()
    x, y = tensors()
    planned(package, x, y, 0.5)
    plan = part(package, "_plans")

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(table, name)

        def call(self, *arguments: Any) -> Any:
            raise RuntimeError("cuLaunchKernelEx: found status 1, expected 0")

    table, plan.table = plan.table, Broken()
    torch.testing.assert_close(package.scaled_add(x, y, 0.5), x + 0.5 * y)
    status = package.status()
    assert "a replay raised RuntimeError: cuLaunchKernelEx" in status["plans"]["unavailable"]
    assert status["served"] == {"kernel": 6, "pytorch": 0}


def test_of_several_kernels_each_call_goes_to_the_one_that_is_on(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(cache))
    first = exported(SCALED_ADD, SCALED_ADD_CPP, name="kn_a", times_us={"small": 1.0, "large": 1.0})
    second = exported(SCALED_ADD, SCALED_ADD_CPP.replace("= 0; i", "= 0L; i"), name="kn_b")
    project = build(replace(first, envelope=first.envelope | {"name": "several_plans"}), tmp_path, second)
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    x, y = tensors()

    def served() -> list[int]:
        return [each["served"] for each in package.status()["kernels"].values()]

    planned(package, x, y, 0.5)
    preferred = served().index(5)
    name = list(package.status()["kernels"])[preferred]
    package.disable(name)
    planned(package, x, y, 0.5)
    assert served() == [5, 5]
    package.enable(name)
    planned(package, x, y, 0.5)
    assert served()[preferred] == 10
    assert plans(package)["recorded"] == 2
