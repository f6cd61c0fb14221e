"""Kernels in models that `warpsmith.optimize` compiles: real packages in C++, and real code of Inductor's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import fx, nn

import warpsmith
from tests.exporting import IN_PLACE, IN_PLACE_CPP, exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.exports.project import NotAnExport
from warpsmith.workers.optimize.compiled import choice, inductor, match, places, rewriting, seams, trial
from warpsmith.workers.optimize.compiled.handle import Optimized
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.served import Served

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

NORM: dict[str, Any] = {
    "schema_version": 1,
    "name": "llama_norm",
    "description": "as Hugging Face's LlamaRMSNorm",
    "axes": {"tokens": {"kind": "var"}, "hidden": {"kind": "var"}},
    "inputs": [
        {"name": "x", "shape": ["tokens", "hidden"], "dtype": "float32"},
        {"name": "weight", "shape": ["hidden"], "dtype": "float32", "role": "weight"},
        {"name": "eps", "dtype": "float32", "value": 1e-5},
    ],
    "outputs": [{"name": "y", "shape": ["tokens", "hidden"], "dtype": "float32"}],
    "reference": "import torch\n\n\ndef run(x, weight, eps):\n    h = x.to(torch.float32)\n"
    "    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps))\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"tokens": 64, "hidden": 128}},
        {"id": "small", "role": "test", "axes": {"tokens": 1, "hidden": 16}, "inputs": {"eps": {"value": 1e-6}}},
        {"id": "odd", "role": "test", "axes": {"tokens": 7, "hidden": 36}},
    ],
}
NORM_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
#include <cmath>
extern "C" void norm(const float* x, const float* w, float eps, float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += double(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / n + eps);
    for (int64_t i = 0; i < n; ++i) y[i] = float(x[i] * scale * w[i]);
  }
}
""")


def run(x, weight, eps, y):
    n = weight.numel()
    kernels.norm(x, weight, eps, y, x.numel() // n, n)
'''
PAIRS: dict[str, Any] = {
    "schema_version": 1,
    "name": "pair_sum",
    "description": "the products of all pairs of a row's elements, summed: n squared terms where n do",
    "axes": {"rows": {"kind": "var"}, "n": {"kind": "var"}},
    "inputs": [{"name": "x", "shape": ["rows", "n"], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": ["rows"], "dtype": "float32"}],
    "reference": "def run(x):\n    return (x.unsqueeze(-1) * x.unsqueeze(-2)).sum((-2, -1))\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"rows": 8, "n": 1024}},
        {"id": "small", "role": "test", "axes": {"rows": 1, "n": 256}},
        {"id": "odd", "role": "test", "axes": {"rows": 3, "n": 260}},
    ],
}
PAIRS_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void pairs(const float* x, float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    y[row] = float(sum * sum);
  }
}
""")


def run(x, y):
    kernels.pairs(x, y, y.numel(), x.numel() // y.numel())
'''


NIBBLES: dict[str, Any] = {
    "schema_version": 1,
    "name": "nibbles",
    "description": "the lower half of each byte, scaled",
    "axes": {"rows": {"kind": "var"}, "n": {"kind": "var"}},
    "inputs": [
        {"name": "packed", "shape": ["rows", "n"], "dtype": "uint8", "dist": {"kind": "randint", "high": 256}},
        {"name": "scale", "shape": ["n"], "dtype": "float32"},
    ],
    "outputs": [{"name": "y", "shape": ["rows", "n"], "dtype": "float32"}],
    "reference": "import torch\n\n\ndef run(packed, scale):\n    return (packed & 15).to(torch.float32) * scale\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"rows": 64, "n": 128}},
        {"id": "small", "role": "test", "axes": {"rows": 1, "n": 16}},
        {"id": "odd", "role": "test", "axes": {"rows": 7, "n": 36}},
    ],
}
NIBBLES_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void nibbles(const uint8_t* packed, const float* scale, float* y, int64_t rows, int64_t n) {
  for (int64_t i = 0; i < rows * n; ++i) y[i] = (packed[i] & MASK) * scale[i % n];
}
""")


def run(packed, scale, y):
    kernels.nibbles(packed, scale, y, packed.shape[0], packed.shape[1])
'''


class Norm(nn.Module):
    """LlamaRMSNorm, as written there."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.randn(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class Stack(nn.Module):
    """Two layers behind norms, and a buffer that each call writes."""

    seen: torch.Tensor

    def __init__(self, width: int = 32, eps: Sequence[float] = (1e-5, 1e-6)) -> None:
        super().__init__()
        self.norms = nn.ModuleList(Norm(width, each) for each in eps)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in eps)
        self.register_buffer("seen", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + layer(norm(x))
        self.seen.add_(x.detach().mean((0, 1)))
        return x


class Running(nn.Module):
    """Two buffers that each call adds to: to both of what the first one was before."""

    total: torch.Tensor
    other: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(5, 8))
        self.register_buffer("other", torch.zeros(5, 8))

    def forward(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = torch.cos(self.total) * y
        self.total.add_(before, alpha=0.5)
        self.other.add_(before, alpha=0.5)
        return before, self.total * 2


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    wrong = NORM_CPP.replace("squares / n + eps", "squares / n + 0.5")
    directory = tmp_path_factory.mktemp("packages")
    made = {"norm": (NORM, NORM_CPP), "wrong": (NORM, wrong), "pairs": (PAIRS, PAIRS_CPP)}
    made["clips"] = (NORM, NORM_CPP.replace("x[i] * scale * w[i]", "std::fmin(x[i], 30.0f) * scale * w[i]"))
    made["in place"] = (IN_PLACE, IN_PLACE_CPP)
    made["drops NaN"] = (
        NORM,
        NORM_CPP.replace("squares += double(x[i]) * x[i]", "if (x[i] == x[i]) squares += double(x[i]) * x[i]"),
    )
    return {name: build(exported(spec, source), directory / name) for name, (spec, source) in made.items()}


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any region, and Inductor has compiled nothing."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)


def served(package: Path) -> int:
    """Calls that the kernel of a package served so far."""
    status = importlib.import_module(package.name).status()
    return int(status["served"]["kernel"])


def test_a_kernel_stands_at_its_places_with_the_numbers_of_each(packages: dict[str, Path]) -> None:
    model, x = Stack().eval(), torch.randn(2, 9, 32)
    kept = Stack().eval()
    kept.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = kept(x)
        fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
        before = served(packages["norm"])
        torch.testing.assert_close(fast(x), expected, rtol=1e-5, atol=1e-5)
        assert served(packages["norm"]) >= before + 2
        before = served(packages["norm"])
        torch.testing.assert_close(fast(x), kept(x), rtol=1e-5, atol=1e-5)
        assert served(packages["norm"]) == before + 2
    torch.testing.assert_close(model.seen, kept.seen, rtol=1e-5, atol=1e-5)
    head, *places = fast.report().splitlines()
    assert head.endswith("2 of 2 places of kernels taken")
    assert places[0].startswith(f"  llama_norm at norms: 0 and 1 more (2x9x32, 32): {packages['norm'].name}, ")
    assert len(places) == 1


@pytest.mark.nightly
def test_an_op_in_place_writes_where_the_model_does(packages: dict[str, Path]) -> None:
    """What reads the buffer as it was reads it before the op writes."""
    model, kept, y = Running().eval(), Running().eval(), torch.randn(5, 8)
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[packages["in place"]], keep="right")
        for _ in range(3):
            torch.testing.assert_close(fast(y), kept(y))
    torch.testing.assert_close((model.total, model.other), (kept.total, kept.other))
    assert "2 of 2 places of kernels taken" in fast.report(), fast.report()


def test_a_kernel_that_is_not_faster_stays_out(packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "ratio_with_interval", lambda *_: (0.5, (0.4, 0.6)))
    model, x = Stack().eval(), torch.randn(2, 9, 32)
    fast = warpsmith.optimize(model, kernels=[packages["norm"]])
    before = served(packages["norm"])
    with torch.no_grad():
        fast(x)
        while_choosing = served(packages["norm"])
        fast(x)
    assert served(packages["norm"]) == while_choosing > before
    assert "0 of 2 places of kernels taken" in fast.report()
    assert "Inductor's code stays: it is not surely faster than Inductor's code: 0.50x" in fast.report()


@pytest.mark.nightly
def test_a_kernel_that_is_faster_serves(packages: dict[str, Path]) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(-1) * x.unsqueeze(-2)).sum((-2, -1)) + 1

    x = torch.rand(2, 4, 1024)
    with torch.no_grad():
        expected = call(x)
        fast = warpsmith.optimize(call, kernels=[packages["pairs"], packages["norm"]])
        before = served(packages["pairs"])
        torch.testing.assert_close(fast(x), expected)
    assert served(packages["pairs"]) > before
    head, place, *rest = fast.report().splitlines()
    assert head.endswith("1 of 1 places of kernels taken"), place
    assert "pair_sum at" in place
    assert "(2x4x1024)" in place
    assert rest[0].startswith("  the graph as a whole: not told yet")
    with torch.no_grad():
        settle(fast, x)
        before = served(packages["pairs"])
        torch.testing.assert_close(fast(x), expected)
        assert served(packages["pairs"]) == before + 1
        torch._dynamo.reset()  # another process: what was found is known
        again = warpsmith.optimize(call, kernels=[packages["pairs"], packages["norm"]])
        again(x)
    assert "as fast with its kernels" in fast.report()
    assert again.graphs[0].trial is None
    assert "1 of 1 places of kernels taken" in again.report()


def settle(fast: Any, x: torch.Tensor) -> None:
    """Call until it is told whether the graph as a whole gains."""
    while not fast.settled:
        fast(x)


def test_kernels_that_gain_in_their_places_and_not_in_the_graph_are_dropped(
    packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found of a place may be wrong: here fast, and the graph slow. Buffers are written once a call."""
    monkeypatch.setattr(choice, "decide", lambda *_: choice.Decision("", "", True, 1.0, 2.0, (1.9, 2.1)))
    monkeypatch.setattr(trial, "ratio_with_interval", lambda *_: (0.5, (0.4, 0.6)))  # its clock has tests of its own
    model, kept, x = Stack().eval(), Stack().eval(), torch.randn(2, 9, 32)
    kept.load_state_dict(model.state_dict())
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[packages["norm"]])
        fast(x)
        settle(fast, x)
        whole = fast.graphs[0].trial
        assert whole is not None
        before, calls = served(packages["norm"]), whole._calls
        torch.testing.assert_close(fast(x), kept(x), rtol=1e-5, atol=1e-5)
        assert served(packages["norm"]) == before
        for _ in range(calls):
            kept(x)
        torch.testing.assert_close(model.seen, kept.seen, rtol=1e-4, atol=1e-4)
        torch._dynamo.reset()
        again = warpsmith.optimize(model, kernels=[packages["norm"]])
        again(x)
        assert served(packages["norm"]) == before
    for handle in (fast, again):
        assert "0 of 2 places of kernels taken" in handle.report()
        assert "stays: the graph as a whole is not surely faster with kernels: 0.50x" in handle.report()


def test_kernels_whose_gain_is_sure_are_compiled_alone(
    packages: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph is traced once and its places are found once, though Inductor's first attempt at it is given up."""
    monkeypatch.setattr(choice, "decide", lambda *_: choice.Decision("", "", True, 1.0, 2.0, (1.9, 2.1)))
    monkeypatch.setattr(seams, "gain", lambda *_: seams.Gain(9.0, 1.0))
    found, compiled = [], []
    find, compile_graph = places.find, inductor.compile_graph

    def seen(*given: Any) -> Any:
        found.append(find(*given))
        return found[-1]

    def compiling(graph: Any, inputs: Any, patches: Any, attempts: Any = None) -> Any:
        compiled.append(attempts)
        return compile_graph(graph, inputs, patches, attempts)

    monkeypatch.setattr(rewriting, "find", seen)
    monkeypatch.setattr(inductor, "compile_graph", compiling)
    model, x = Stack().eval(), torch.randn(2, 9, 32)
    reports = []
    with torch.no_grad():
        for loading in (2, 0):  # calls: two kinds of places, each once, where nothing is known of them
            torch._dynamo.reset()
            fast = warpsmith.optimize(model, kernels=[packages["norm"]])
            before = served(packages["norm"])
            fast(x)
            assert fast.settled
            assert served(packages["norm"]) == before + loading + 2
            reports.append(fast.report())
    assert len(found) == 1
    assert len([attempts for attempts in compiled if attempts is not None]) == 2, "once in each process"
    assert reports[0] == reports[1]
    assert "the graph as a whole: faster with its kernels, for they save at least 9 us" in reports[0]


def test_a_wrong_kernel_stays_out(packages: dict[str, Path]) -> None:
    model, x = Stack(eps=(1e-5,)).eval(), torch.randn(2, 9, 32)
    fast = warpsmith.optimize(model, kernels=[packages["wrong"]], keep="right")
    with torch.no_grad():
        expected = Stack.forward(model, x)
        torch.testing.assert_close(fast(x), expected)
    assert "Inductor's code stays: the kernel's result is wrong" in fast.report()


def place(project: Path, run: Any, *inputs: torch.Tensor) -> places.Region:
    """The one place of a package's kernel in what a function computes; Inductor compiles nothing of it."""
    (spec,) = project.rglob("_spec.py")
    (region,) = places.find(inductor.operators(run, list(inputs)), [Served(Kernel(spec.parent))]).regions
    return region


@pytest.mark.parametrize(("which", "inputs"), [("clips", "of up to "), ("drops NaN", "with a NaN")])
def test_a_kernel_that_is_wrong_on_rare_values_is_told_by_them(
    packages: dict[str, Path], which: str, inputs: str
) -> None:
    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))

    unfit = choice.compare(place(packages[which], run, torch.randn(2, 9, 32), torch.randn(32)))
    assert unfit is not None
    assert unfit.why.startswith("the kernel's result is wrong")
    assert f"(inputs {inputs}" in unfit.why


def test_a_number_that_was_not_verified_stays_out(packages: dict[str, Path]) -> None:
    model, x = Stack(eps=(1e-3,)).eval(), torch.randn(2, 9, 32)
    fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), Stack.forward(model, x))
    assert "Inductor's code stays: eps: found another value than was verified (1e-05 or 1e-06)" in fast.report()


@pytest.mark.nightly
def test_sizes_that_vary_are_served_inside_the_envelope_and_by_pytorch_outside(packages: dict[str, Path]) -> None:
    model = Stack(eps=(1e-5,)).eval()
    fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
    with torch.no_grad():
        for shape in ((2, 9, 32), (2, 5, 32), (3, 7, 32)):
            x = torch.randn(*shape)
            torch.testing.assert_close(fast(x), Stack.forward(model, x), rtol=1e-5, atol=1e-5)
        graphs, before = fast.report(), served(packages["norm"])
        x = torch.randn(4, 30, 32)  # 120 tokens: more than the 64 that were verified
        with pytest.warns(
            RuntimeWarning, match="PyTorch serves this call, because tokens is 120, verified from 1 to 64"
        ):
            torch.testing.assert_close(fast(x), Stack.forward(model, x), rtol=1e-5, atol=1e-5)
    assert fast.report() == graphs, "no graph is compiled for it"
    assert served(packages["norm"]) == before
    assert graphs.count("1 of 1 places of kernels taken") >= 2


@pytest.mark.parametrize("layout", ["permuted", "expanded", "copied"])
def test_tensors_that_lie_otherwise_are_laid_out_for_the_kernel(packages: dict[str, Path], layout: str) -> None:
    norm = Norm(32, 1e-5)

    def call(x: torch.Tensor) -> torch.Tensor:
        given = {"permuted": x.mT, "expanded": x[:1].mT.expand(3, -1, -1), "copied": x.mT.contiguous()}[layout]
        return norm(given)

    x = torch.randn(3, 32, 9)
    with torch.no_grad():
        fast = warpsmith.optimize(call, kernels=[packages["norm"]], keep="right")
        fast(x)
        before = served(packages["norm"])
        torch.testing.assert_close(fast(x), call(x))
    assert "1 of 1 places of kernels taken" in fast.report()
    assert served(packages["norm"]) == before + 1


@pytest.mark.parametrize(("top", "outcome"), [("1e30", None), ("5", "(inputs of up to ")])
def test_where_pytorch_itself_overflows_smaller_values_are_asked(tmp_path: Path, top: str, outcome: str | None) -> None:
    """A naive softmax is infinite over infinite on large values: a kernel that is not has no fault.

    One that takes what is beyond 5 for 5 has one, which normal values hardly show.
    """
    spec = NORM | {
        "name": "naive",
        "inputs": [NORM["inputs"][0]],
        "reference": "import torch\n\n\ndef run(x):\n    e = torch.exp(x)\n    return e / e.sum(-1, keepdim=True)\n",
        "workloads": [{key: value for key, value in each.items() if key != "inputs"} for each in NORM["workloads"]],
    }
    source = (
        NORM_CPP[: NORM_CPP.index("extern")]
        + f"static const float TOP = {top};"
        + '''
extern "C" void naive(const float* x, float* y, int64_t rows, int64_t n) {
  auto in = [](float a) { return a > TOP ? TOP : a; };
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    double top = x[0], sum = 0;
    for (int64_t i = 0; i < n; ++i) top = top < in(x[i]) || x[i] != x[i] ? in(x[i]) : top;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(in(x[i]) - top);
    for (int64_t i = 0; i < n; ++i) y[i] = float(std::exp(in(x[i]) - top) / sum);
  }
}
""")


def run(x, y):
    kernels.naive(x, y, x.shape[0], x.shape[1])
'''
    )
    # A name of its own: a process loads a package once.
    package = build(exported(spec | {"name": f"naive_{top}"}, source), tmp_path)

    def run(x: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)

    unfit = choice.compare(place(package, run, torch.randn(3, 9, 32)))
    assert (unfit is None) if outcome is None else (unfit is not None and outcome in unfit.why)


def test_one_tensor_for_two_inputs(tmp_path: Path) -> None:
    spec = NORM | {
        "name": "gated",
        "axes": {"n": {"kind": "var"}},
        "inputs": [{"name": name, "shape": ["n"], "dtype": "float32"} for name in ("x", "gate")],
        "outputs": [{"name": "y", "shape": ["n"], "dtype": "float32"}],
        "reference": "import torch\n\n\ndef run(x, gate):\n    return torch.relu(gate) * x\n",
        "workloads": [{"id": f"n{n}", "role": "bench", "axes": {"n": n}} for n in (64, 1, 7)],
    }
    source = (
        NORM_CPP[: NORM_CPP.index("#include")]
        + '''
extern "C" void gated(const float* x, const float* gate, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] <= 0 ? 0 * x[i] : gate[i] * x[i];
}
""")


def run(x, gate, y):
    kernels.gated(x, gate, y, y.numel())
'''
    )
    package = build(exported(spec, source), tmp_path)

    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * x

    x = torch.randn(3, 9)
    with torch.no_grad():
        fast = warpsmith.optimize(call, kernels=[package], keep="right")
        torch.testing.assert_close(fast(x), call(x))
    assert "1 of 1 places of kernels taken" in fast.report()


def test_gradients_are_pytorchs(packages: dict[str, Path]) -> None:
    model, x = Stack(eps=(1e-5,)), torch.randn(2, 9, 32)
    fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
    Stack.forward(model, x).square().sum().backward()  # type: ignore[no-untyped-call]
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    fast(x).square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected, rtol=1e-4, atol=1e-4)
    assert "no kernels: gradients are needed" in fast.report()


def test_what_became_of_each_place_is_told_where_inductors_cache_has_the_code(
    packages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = Stack(eps=(1e-5,)).eval(), torch.randn(2, 9, 32)
    said = []
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
            before = served(packages["norm"])
            fast(x)
            said.append((fast.report(), served(packages["norm"]) - before))
    assert said[0][0] == said[1][0]
    assert "1 of 1 places of kernels taken" in said[0][0]
    assert said[1][1] == 1, "nothing was compared or timed again"
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "moved" / "kernels"))
    torch._dynamo.reset()
    with torch.no_grad():
        fast = warpsmith.optimize(model, kernels=[packages["norm"]], keep="right")
        fast(x)
    assert "1 of 1 places of kernels taken" in fast.report(), "Inductor's cache alone is not enough"


class Renamed(nn.Module):
    """A stack whose modules have other names: to Inductor the same graph."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.before, self.after, self.mean = stack.norms, stack.layers, stack.seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.before, self.after, strict=True):
            x = x + layer(norm(x))
        self.mean.add_(x.detach().mean((0, 1)))
        return x


@pytest.mark.parametrize("other", ["a model of other names", "what was told is gone"])
def test_code_of_inductors_cache_is_taken_with_what_it_calls(
    packages: dict[str, Path], tmp_path: Path, other: str
) -> None:
    """As the kernels that ship, this one is imported where a place is found for it, and else by what is told."""
    stack, x = Stack(eps=(1e-5,)).eval(), torch.randn(2, 9, 32)

    def optimized(model: nn.Module) -> tuple[Kernel, str]:
        torch._dynamo.reset()
        (spec,) = packages["norm"].rglob("_spec.py")
        kernel = Kernel(spec.parent)
        fast = Optimized(model, None, None, lambda _: [Served(kernel)], "right")
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-5)
        return kernel, fast.report()

    _, said = optimized(stack)
    for file in (tmp_path / "choices").glob("*/*.json") if "gone" in other else ():
        file.unlink()
    for _ in range(2):
        kernel, told = optimized(stack if "gone" in other else Renamed(stack))
        assert told.replace("before: 0", "norms: 0") == said
        assert "call" in vars(kernel), "nobody imports what the code calls"


@pytest.mark.nightly
def test_of_two_kernels_for_a_place_the_one_that_saves_more_serves(packages: dict[str, Path]) -> None:
    whole = NORM | {
        "name": "norm_twice",
        "reference": NORM["reference"].replace("    return weight *", "    return 2 * weight *"),
    }
    both = build(exported(whole, NORM_CPP.replace("* w[i])", "* w[i] * 2)")), packages["norm"].parent / "both")
    norm = Norm(32, 1e-5)

    def call(x: torch.Tensor) -> torch.Tensor:
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return 2 * norm.weight * h

    x = torch.randn(2, 9, 32)
    with torch.no_grad():
        fast = warpsmith.optimize(call, kernels=[packages["norm"], both], keep="right")
        torch.testing.assert_close(fast(x), call(x))
    assert "norm_twice at" in fast.report()


def test_what_is_no_choice_is_refused_at_once(packages: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep: found 'fast', expected one of 'faster', 'right'"):
        warpsmith.optimize(Stack(), kernels=[packages["norm"]], keep="fast")  # type: ignore[arg-type]
    with pytest.raises(NotAnExport, match=r"holds 0 packages, expected one with a provenance\.json: the directory"):
        warpsmith.optimize(Stack(), kernels=[tmp_path])
    for given in (str(packages["norm"]), 3):
        with pytest.raises(TypeError, match=r"kernels: found .*, expected a sequence of directories"):
            warpsmith.optimize(Stack(), kernels=given)  # type: ignore[arg-type]


def test_a_kernel_that_is_switched_off_or_given_up_serves_again_later(packages: dict[str, Path]) -> None:
    """What one process switched off is nothing that the next ones are to believe of the place."""
    package = importlib.import_module(packages["norm"].name)
    model, x = Stack(eps=(1e-5,)).eval(), torch.randn(2, 9, 32)
    said = []
    with torch.no_grad():
        for switch in (package.disable, package.enable):
            switch()
            torch._dynamo.reset()
            fast = warpsmith.optimize(model, kernels=[packages["norm"]] * 2, keep="right")
            torch.testing.assert_close(fast(x), Stack.forward(model, x), rtol=1e-5, atol=1e-5)
            said.append(fast.report())
    assert f"  {package.__name__} has no place: " in said[0]
    assert "disable()" in said[0]
    assert "1 of 1 places of kernels taken" in said[1]


def test_a_kernel_without_a_place_says_why(packages: dict[str, Path]) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(-1) * x.unsqueeze(-2)).sum((-2, -1)) + 1

    given = [packages["norm"], packages["pairs"]]
    with torch.no_grad():
        fast = warpsmith.optimize(call, kernels=given, keep="right", dynamic=True)
        fast(torch.randn(2, 3, 32))
    assert "pair_sum at" in fast.report()
    assert "stays: sizes vary from call to call that are not those of its rows" in fast.report()
    assert f"  {packages['norm'].name} has no place: the graph does not compute this op" in fast.report()


def test_two_regions_that_wait_for_each_other_are_not_both_taken() -> None:
    """Each by itself has its inputs before it runs; as one operator each, both would need the other first."""
    graph = fx.Graph()
    x, y = (graph.placeholder(name) for name in "xy")
    sine, cosine = (graph.call_function(torch.ops.aten.sin.default, (given,)) for given in (x, y))
    both = [graph.call_function(torch.ops.aten.cos.default, (given,)) for given in (cosine, sine)]
    graph.output(tuple(both))
    one, other = ([sine, both[0]], [cosine, both[1]])
    regions = [places.Region(cast("Any", None), match.Match((), (), tuple(nodes))) for nodes in (one, other)]
    assert all(places.in_order(graph, [region]) for region in regions)
    assert not places.in_order(graph, regions)


def test_a_view_between_two_nodes_of_a_region_holds_it_up_no_more_than_they_do() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    sine = graph.call_function(torch.ops.aten.sin.default, (x,))
    view = graph.call_function(torch.ops.aten.view.default, (sine, [-1]))
    cosine = graph.call_function(torch.ops.aten.cos.default, (view,))
    graph.output(cosine)
    region = places.Region(cast("Any", None), match.Match((), (), (sine, view, cosine)))
    assert places.in_order(graph, [region])


def nibbles(name: str, mask: int, high: int, directory: Path) -> places.Region:
    """A place of an op of quantized weights, whose kernel takes the bits of `mask`."""
    packed, scale = NIBBLES["inputs"]
    spec = NIBBLES | {"name": name, "inputs": [packed | {"dist": {"kind": "randint", "high": high}}, scale]}
    project = build(exported(spec, NIBBLES_CPP.replace("MASK", str(mask))), directory)

    def run(given: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        return (given & 15).float() * factors

    graph = inductor.operators(run, [torch.zeros(5, 24, dtype=torch.uint8), torch.zeros(24)])
    (region,) = places.find(graph, [Served(Kernel(project / project.name))]).regions
    return region


def test_bytes_are_drawn_for_a_place_where_the_op_was_verified_with_all(tmp_path: Path) -> None:
    """They are no indices then, and there is none that a model must not have there."""
    region = nibbles("nibbles", 15, 256, tmp_path)
    drawn = region.integers(0, even=True)
    assert drawn is not None
    assert (drawn.dtype, drawn.shape) == (torch.uint8, (5, 24))
    assert int(drawn.max()) > 127
    assert choice.compare(region) is None
    wrong = choice.compare(nibbles("nibbles_that_are_whole", 255, 256, tmp_path))
    assert wrong is not None
    assert wrong.why.startswith("the kernel's result is wrong")


def test_bytes_are_not_drawn_for_a_place_where_the_op_was_verified_with_some(tmp_path: Path) -> None:
    assert nibbles("nibbles_of_seven_bits", 15, 128, tmp_path).integers(0, even=True) is None
