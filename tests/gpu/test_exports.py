"""Exported packages on a real GPU: verified in full, and watched by shadow mode outside of capture alone."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("pydantic", reason="op specs are read with pydantic")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

from benchmarks import dispatch
from benchmarks.op import CANDIDATE
from tests.exporting import shipped
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.library import entries
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.exports import verify_export
from warpsmith.workers.judging import machine

SOURCES = {"triton": dispatch.TRITON, "cuda": dispatch.CUDA}
EVERYWHERE = {"dynamic shapes", "CUDA graph", "eager", "compile", "build for the target"}


def exported(language: str, directory: Path, source: str | None = None) -> Path:
    """The op of `benchmarks.dispatch`, verified at two sizes on this GPU."""
    target = machine.gpus()[0].target
    kernel = dispatch.kernel(language, target, source or SOURCES[language])
    sizes = [{"id": f"n{n}", "role": "bench" if n == 4096 else "test", "axes": {"n": n}} for n in (4096, 16384)]
    op = parse_op({**kernel.spec, "workloads": sizes})
    workloads = [resolve_workload(op, workload) for workload in op.workloads_for(Target.parse(target))]
    rows = [{"id": size["id"], "role": "test", "error": {}, "time_us": {}, "speedup": {}, "ci95": {}} for size in sizes]
    return build(
        replace(
            kernel,
            spec=op.document(),
            envelope=build_envelope(op.digest, target, workloads, {}),
            evidence={**kernel.evidence, "workloads": rows},
        ),
        directory,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("language", SOURCES)
def test_a_package_passes_every_check(language: str, tmp_path: Path) -> None:
    report = verify_export(exported(language, tmp_path))
    assert report.passed, report.text()
    assert {row.check for row in report.rows if row.outcome == "passed"} >= EVERYWHERE, report.text()
    (overhead,) = [row for row in report.rows if row.check == "dispatch overhead"]
    assert "raw launch" in overhead.detail, "a figure, or that it cannot be told"


@pytest.mark.timeout(600)
def test_a_package_of_several_kernels_passes_every_check(tmp_path: Path) -> None:
    target = machine.gpus()[0].target
    on_cpu = dispatch.kernel("cpp", machine.cpu_target(), CANDIDATE)
    kernels = [dispatch.kernel(language, target, source) for language, source in SOURCES.items()]
    project = build(on_cpu, tmp_path, *kernels)
    report = verify_export(project)
    assert report.passed, report.text()
    rows = {row.check: row for row in report.rows}
    assert "3 workloads" in rows["eager"].detail, "each kernel by itself"
    assert rows["CUDA graph"].outcome == "passed", report.text()


# PyTorch's own, said once in a process where Inductor is imported: it failed where this was the first test to do so.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
# Of the empty graph that PyTorch captures for itself before a process's first.
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
def test_a_first_call_may_come_under_compiled_cuda_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the op remembers of a call holds no memory of the pool in which that call was recorded."""
    project = exported("cuda", tmp_path)
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    twice = torch.compile(lambda x: package.scale_shift(x) * 2, mode="reduce-overhead", fullgraph=True)
    x = torch.randn(4096, device="cuda")
    for _ in range(4):
        torch.testing.assert_close(twice(x), (x * 2 + 1) * 2)


def test_a_package_serves_the_cpu_and_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = dispatch.kernel("cpp", machine.cpu_target(), CANDIDATE)
    on_gpu = dispatch.kernel("cuda", machine.gpus()[0].target, dispatch.CUDA)
    project = build(on_cpu, tmp_path, on_gpu)
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    for device in ("cpu", "cuda"):
        x = torch.randn(4096, device=device)
        torch.testing.assert_close(package.scale_shift(x), x * 2 + 1)
    assert [each["served"] for each in package.status()["kernels"].values()] == [1, 1]


@pytest.mark.parametrize("math", ["ieee", "tf32"])
def test_comparisons_follow_the_specs_arithmetic(math: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"a": ["n", "n"], "b": ["n", "n"]}
    spec = {
        "schema_version": 1,
        "name": "product",
        "axes": {"n": {"kind": "var"}},
        "inputs": [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in sizes.items()],
        "outputs": [{"name": "c", "shape": ["n", "n"], "dtype": "float32"}],
        "reference": "def run(a, b):\n    return a @ b\n",
        "workloads": [{"id": "even", "role": "bench", "axes": {"n": 256}}],
        "math": math,
    }
    kernel = replace(dispatch.kernel("cuda", machine.gpus()[0].target, dispatch.CUDA), spec=spec)
    op = parse_op(spec)
    workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse(kernel.target))]
    project = build(replace(kernel, envelope=build_envelope(op.digest, kernel.target, workloads, {})), tmp_path)
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    compare, setting = (importlib.import_module(f"{package.__name__}.{name}") for name in ("_compare", "_math"))
    arguments = [torch.randn(256, 256, device="cuda") for _ in range(2)]
    with setting.setting():
        expected = compare.expected(arguments)
    compared = compare.compare(list(expected.eager), expected)
    assert (compared.pytorch_error > 1e-5) == (math == "tf32"), compared


def test_shadow_mode_stays_out_of_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dispatch.CUDA.replace("* 2.0f + 1.0f", "* 2.0f + 2.0f")
    project = exported("cuda", tmp_path, wrong)
    monkeypatch.setenv("WARPSMITH_SHADOW_DIR", str(tmp_path / "shadow"))
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    x = torch.randn(4096, device="cuda")
    package.watch(every=None)  # which checks first calls
    package.scale_shift(x)
    package.shadow(every=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        package.scale_shift(x)
    assert package.status()["shadow"]["checked"] == 0
    with pytest.warns(RuntimeWarning, match="shadow mode found a wrong result"):
        found = package.scale_shift(x)
    torch.testing.assert_close(found, x * 2 + 1)
    assert package.status()["shadow"]["mismatches"] == 1


@pytest.mark.parametrize("name", ["decode_attention", "paged_decode_attention"])
def test_inputs_that_lie_askew_are_served_on_aligned_copies(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's fused attention faults on such tensors or reads other values, so it cannot serve them."""
    entry = next(one for one in entries() if one.op.name == name)
    if entry.target != machine.gpus()[0].target:
        pytest.skip(f"the kernel is for {entry.target}")
    project = build(shipped(entry), tmp_path)
    monkeypatch.syspath_prepend(project)
    package = importlib.import_module(project.name)
    calls, verify, compare, spec = (
        importlib.import_module(f"{project.name}.{part}") for part in ("_calls", "verify", "_compare", "_spec")
    )
    _, arguments = calls.samples()[0]
    expected = compare.expected(arguments)
    for position, _ in spec.ALIGNMENTS:
        values = compare.clones(arguments)
        values[position] = calls.unaligned(values[position])
        assert package.explain(*values).endswith("on aligned copies)")
        for _ in range(5):  # by Python, recorded, by the plan
            assert compare.compare([getattr(package, name)(*values)], expected).agrees
    assert package.status()["served"]["pytorch"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # PyTorch serves inputs that are not contiguous, and it is said
        row = verify.run("strided inputs")
    assert (row["outcome"], row["detail"]) == ("passed", "strided, unaligned")
