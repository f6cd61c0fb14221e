"""TileLang without a GPU: what its functions launch, read from their lowered code, and what is refused of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tilelang", reason="TileLang is not installed: pip install -e '.[tilelang]'")

from tests.stand_in_driver import Driver
from warpsmith import prompts
from warpsmith.kernels_db.candidate_import import provide_short_names
from warpsmith.kernels_db.runtime import CompileError, HostError, tilelang, tilelang_build
from warpsmith.kernels_db.runtime.cutedsl_build import Argument, TensorFacts
from warpsmith.kernels_db.runtime.cutedsl_host import Parameter
from warpsmith.kernels_db.runtime.tilelang_host import KernelLaunch, TensorMap
from warpsmith.workers.gate import allowed
from warpsmith.workers.judge.languages.cubin import resources
from warpsmith.workers.judge.machine.cubin_symbols import areas, own_variables

SOURCE = """
import tilelang.language as T
from kernels_db.runtime import tilelang

M, N, K = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")


@T.prim_func
def scaled(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32"), by: T.float32, rows: T.int32):
    with T.Kernel(T.ceildiv(N, 128), rows, threads=64) as (part, row):
        for j in T.Parallel(128):
            if part * 128 + j < N:
                y[row, part * 128 + j] = x[row, part * 128 + j] * by


@T.prim_func
def fixed(x: T.Tensor((4, N), "float16"), y: T.Tensor((4, N), "float16")):
    with T.Kernel(4, threads=64) as row:
        for j in T.Parallel(N):
            y[row, j] = x[row, j]


@T.prim_func
def unknown(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
    with T.Kernel(M, threads=64) as row:
        for j in T.Parallel(64):
            if j < K:
                y[row, j] = x[row, j]


@T.prim_func
def stateful(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
    with T.Kernel(M, threads=64) as row:
        kept = T.alloc_global((64,), "float32")
        for j in T.Parallel(64):
            kept[j] = x[row, j]
        for j in T.Parallel(64):
            y[row, j] = kept[j]


@T.prim_func
def foreign(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
    with T.Kernel(M, threads=64, prelude="__device__ int kept;") as row:
        for j in T.Parallel(64):
            y[row, j] = x[row, j]


@T.prim_func
def clustered(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32")):
    with T.Kernel(M, threads=64, cluster_dims=2) as row:
        for j in T.Parallel(64):
            y[row, j] = x[row, j]


@T.prim_func
def chosen(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32"), once: T.bool):
    with T.Kernel(M, threads=64) as row:
        for j in T.Parallel(64):
            y[row, j] = T.if_then_else(once, x[row, j], 0.0)


@T.prim_func
def halved(x: T.Tensor((M, N), "float32"), y: T.Tensor((M, N), "float32"), a: T.bfloat16, b: T.float16, c: T.float32):
    with T.Kernel(M, threads=64) as row:
        for j in T.Parallel(64):
            y[row, j] = x[row, j] * T.cast(a, "float32") * T.cast(b, "float32") * c


@T.macro
def helper(x):
    return x
"""
X = TensorFacts("float32", (6, 200), (200, 1), 16)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return imported(tmp_path_factory.mktemp("functions"), SOURCE)


def imported(directory: Path, source: str) -> ModuleType:
    provide_short_names()
    path = directory / "candidate.py"
    path.write_text(source)
    specification = importlib.util.spec_from_file_location("candidate", path)
    assert specification is not None
    assert specification.loader is not None
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


def test_a_launch_is_read_from_the_lowered_code_and_its_numbers_are_constants(module: ModuleType) -> None:
    source, (launch,) = tilelang_build.lowered(module.scaled, (X, X, 0.5, 5), "sm_90a")
    assert launch == KernelLaunch("scaled_kernel", (2, 5, 1), (64, 1, 1), 0, (0, 1)) or launch.parameters == (1, 0)
    assert (launch.grid, launch.block, launch.shared) == ((2, 5, 1), (64, 1, 1), 0)
    order = [source.index(f"{name}, " if name == "x" else name, source.index("__launch_bounds__")) for name in "xy"]
    assert launch.parameters == ((0, 1) if order[0] < order[1] else (1, 0)), "as the kernel's own signature says"
    assert "0x1p-1f" in source, "the number is in the kernel"
    made = tilelang.host_launch(launch, lambda one: b"")
    assert {one.words for one in made.parameters} == {((0, 0, 0),), ((0, 1, 0),)}


def test_numbers_fit_what_their_annotations_say(module: ModuleType) -> None:
    source, _ = tilelang_build.lowered(module.halved, (X, X, 0.5, 0.25, 0.125), "sm_90a")
    assert all(number in source for number in ("0x1p-1f", "0x1p-2f", "0x1p-3f"))
    assert tilelang_build.lowered(module.halved, (X, X, 1, 1, 2), "sm_90a")
    assert tilelang_build.lowered(module.chosen, (X, X, True), "sm_90a")


def test_copies_by_tma_are_maps_of_their_tensors(tmp_path: Path) -> None:
    module = imported(tmp_path, prompts.example("tilelang_product"))
    tensors = [TensorFacts("bfloat16", shape, (shape[1], 1), 16) for shape in ((200, 328), (136, 328), (200, 136))]
    source, (launch,) = tilelang_build.lowered(module.launch.function, tensors, "sm_90a")
    assert "wgmma" in source
    maps = [one for one in launch.parameters if isinstance(one, TensorMap)]
    assert [(one.argument, one.shape, one.strides) for one in maps] == [
        (1, (328, 136), (656,)),
        (0, (328, 200), (656,)),
    ]
    assert {one.box[0] for one in maps} == {64}
    assert [one for one in launch.parameters if not isinstance(one, TensorMap)] == [2]
    assert (launch.grid, launch.shared) == ((2, 2, 1), 3 * 2 * 128 * 64 * 2)
    odd = [TensorFacts("bfloat16", shape, (shape[1], 1), 16) for shape in ((200, 329), (136, 329), (200, 136))]
    _, (plain,) = tilelang_build.lowered(module.launch.function, odd, "sm_90a")
    assert not any(isinstance(one, TensorMap) for one in plain.parameters), "rows that TMA does not take"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("scaled", (X, X, 0.5), "takes 4 arguments, found 3"),
        ("scaled", (X, 1, 0.5, 5), "y: expected a tensor"),
        ("scaled", (X, X, X, 5), "by: expected a number"),
        ("scaled", (X, X, None, 5), "by: found None, expected a number"),
        ("scaled", (X, X, 0.5, 5.0), "rows: found 5.0, expected a whole number: its annotation says int32"),
        ("scaled", (X, X, 0.5, float("nan")), "rows: found nan, expected a whole number"),
        ("chosen", (X, X, 0.0), "once: found 0.0, expected a whole number: its annotation says bool"),
        ("scaled", (X, TensorFacts("float16", (6, 200), (200, 1), 16), 0.5, 5), "y: found a tensor of float16, expect"),
        ("scaled", (X, TensorFacts("float32", (6, 100), (100, 1), 16), 0.5, 5), "mismatched"),
        ("scaled", (X, TensorFacts("float32", (1200,), (1,), 16), 0.5, 5), r"y: found a tensor of \[1200\], expected"),
        ("scaled", (X, TensorFacts("float32", (6, 200), (1, 6), 16), 0.5, 5), "expected a contiguous tensor"),
        (
            "scaled",
            (X, TensorFacts("float32", (6, 200), (200, 1), 4), 0.5, 5),
            "multiple of 4 bytes alone, expected 16",
        ),
        ("fixed", (TensorFacts("float16", (5, 64), (64, 1), 16),) * 2, r"x: found a tensor of \[5, 64\], expected \(4"),
        ("unknown", (X, X), r"unknown variables \(k,\)"),
        ("stateful", (X, X), "expected"),
        ("clustered", (X, X), "expected grid, threads and shared memory"),
    ],
)
def test_what_does_not_fit_or_does_more_than_launch_is_refused(
    module: ModuleType, name: str, arguments: tuple[Argument, ...], said: str
) -> None:
    with pytest.raises(CompileError, match=said):
        tilelang_build.lowered(getattr(module, name), arguments, "sm_90a")


def test_source_of_others_is_not_compiled(module: ModuleType) -> None:
    source, _ = tilelang_build.lowered(module.foreign, (X, X), "sm_90a")
    assert "__device__ int kept" in source
    with pytest.raises(CompileError, match="the generated source has '__device__', expected kernels and TileLang's"):
        tilelang_build._compiled(source, "sm_90a")
    with pytest.raises(CompileError, match=r"the generated source has '#include <stdio.h>'"):
        tilelang_build._compiled("#include <stdio.h>\n", "sm_90a")


def test_without_libcuxx_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilelang_build, "include_paths", lambda: ("/nowhere",))
    with pytest.raises(HostError, match="pip install nvidia-cuda-cccl"):
        tilelang_build._toolkit()


@pytest.mark.nightly  # NVRTC reads CUTLASS: seconds
def test_a_function_is_compiled_once_for_the_same_facts(module: ModuleType, tmp_path: Path) -> None:
    arguments: tuple[Argument, ...] = (X, X, 0.5, 5)
    first = tilelang_build.build(module.scaled, arguments, "sm_90", cache_dir=tmp_path)
    again = tilelang_build.build(module.scaled, arguments, "sm_90", cache_dir=tmp_path)
    assert (first.build.cached, again.build.cached) == (False, True)
    assert (first.launches, first.build.path) == (again.launches, again.build.path)
    code = first.build.path.read_bytes()
    assert set(resources(code)) == {"scaled_kernel"}
    assert areas(code), "NVRTC makes variables of the headers' constants"
    assert own_variables(code) == []


def test_what_is_kept_of_launches_is_read_back() -> None:
    made = KernelLaunch(
        "add_kernel", (1, 2, 3), (32, 1, 1), 7, (1, TensorMap(0, 9, (8, 4), (16,), (8, 4), (1, 1), 3, 2))
    )
    text = tilelang_build._written((made,))
    assert tilelang_build._read(text) == (made,)


def test_a_map_is_encoded_by_the_driver_with_the_address_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpsmith.kernels_db.runtime.map_encoding.DRIVER", str(Driver(tmp_path).path))
    one = TensorMap(2, 9, (8, 4), (16,), (8, 4), (1, 1), 3, 2)
    made = tilelang.host_launch(KernelLaunch("k", (1, 1, 1), (32, 1, 1), 0, (one, 0)), tilelang._encoded)
    first, second = made.parameters
    assert (len(first.template), first.words) == (128, ((0, 2, 0),))
    assert int.from_bytes(first.template[8:12], "little") == 9
    assert second == Parameter(bytes(8), ((0, 0, 0),))


def test_every_name_that_the_gate_allows_is_tilelangs() -> None:
    import tilelang.language as tiles  # noqa: PLC0415 - where it is installed

    missing = []
    for dotted in sorted(allowed.KERNEL_NAMES["tilelang"] - allowed.MATH):
        found: Any = tiles
        for part in dotted.removeprefix("tilelang.language.").split("."):
            found = getattr(found, part, None)
        if found is None:
            missing.append(dotted)
    assert missing == []


def test_only_functions_of_tilelang_are_made_callable(module: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"found Macro, expected a @T\.prim_func"):
        tilelang.compile(module.helper)
    with pytest.raises(TypeError, match=r"found SimpleNamespace, expected a @T\.prim_func"):
        tilelang.compile(SimpleNamespace())
    assert tilelang.compile(module.scaled).name == "scaled"
