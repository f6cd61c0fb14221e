"""CuTe DSL without a GPU: what its host functions launch, read from their code, and what is refused of it."""

from __future__ import annotations

import importlib
import importlib.util
import math
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="CuTe DSL is not installed: pip install -e '.[cute]'")

from warpsmith import prompts
from warpsmith.kernels_db.candidate_import import provide_short_names
from warpsmith.kernels_db.runtime import CompileError, HostError, cutedsl, cutedsl_build, llvm_types
from warpsmith.kernels_db.runtime.cutedsl_build import Argument, Compiled, TensorFacts
from warpsmith.kernels_db.runtime.cutedsl_host import HostLaunch, Parameter
from warpsmith.workers.gate import allowed
from warpsmith.workers.judge.languages import cutedsl_child

SOURCE = """
import cutlass
import cutlass.cute as cute
from kernels_db.runtime import cutedsl


@cute.kernel
def scaled(x: cute.Tensor, y: cute.Tensor, by: cutlass.Float32, n: cutlass.Int64):
    thread, _, _ = cute.arch.thread_idx()
    if thread < n:
        y[thread] = x[thread] * by


@cute.jit
def plain(x: cute.Tensor, y: cute.Tensor, by: cutlass.Float32, n: cutlass.Int64, blocks: cutlass.Constexpr):
    scaled(x, y, by, n).launch(grid=[blocks, n, 1], block=[32, 2, 1], cluster=[2, 1, 1], smem=4096)


@cute.jit
def beyond(x: cute.Tensor, y: cute.Tensor):
    part = cute.make_tensor(x.iterator + 5, cute.make_layout(8))
    scaled(part, y, 1.0, 8).launch(grid=[1, 1, 1], block=[32, 1, 1])
    scaled(y, part, 2.0, 8).launch(grid=[3, 1, 1], block=[32, 1, 1], cooperative=True)


@cute.jit
def by_address(x: cute.Tensor, y: cute.Tensor):
    blocks = cutlass.Int32((x.iterator.toint() // 1024) % 7 + 1)
    scaled(x, y, 1.0, 8).launch(grid=[blocks, 1, 1], block=[32, 1, 1])


@cute.jit
def by_alignment(x: cute.Tensor, y: cute.Tensor):
    blocks = cutlass.Int32((x.iterator.toint() // 16) % 2 + 1)
    scaled(x, y, 1.0, 8).launch(grid=[blocks, 1, 1], block=[32, 1, 1])


@cute.jit
def address_as_number(x: cute.Tensor, y: cute.Tensor):
    scaled(x, y, 1.0, x.iterator.toint() * 2).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.jit
def reads_memory(x: cute.Tensor, y: cute.Tensor):
    scaled(x, y, x[0], 8).launch(grid=[1, 1, 1], block=[32, 1, 1])


system = cute.ffi(name="system", params_types=[cutlass.Int32], return_type=None)


@cute.jit
def calls_c(x: cute.Tensor, y: cute.Tensor):
    system(cutlass.Int32(1))
    scaled(x, y, 1.0, 8).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.jit
def launches_nothing(x: cute.Tensor, y: cute.Tensor):
    pass


@cute.jit
def wrong(x: cute.Tensor, y: cute.Tensor):
    scaled(x, y, 1.0, missing).launch(grid=[1, 1, 1], block=[32, 1, 1])
"""
X, Y = (TensorFacts("float32", (32,), (1,), 16), TensorFacts("float32", (32,), (1,), 4))
Building = Callable[..., Compiled]


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


@pytest.fixture
def build(module: ModuleType, tmp_path: Path) -> Building:
    def built(name: str, *arguments: Argument) -> Compiled:
        return cutedsl_build.build(getattr(module, name), arguments, "sm_90", cache_dir=tmp_path)

    return built


def test_a_launch_is_read_with_its_options_and_the_bytes_of_its_parameters(build: Building) -> None:
    compiled = build("plain", X, Y, 0.5, 7, 4)
    (launch,) = compiled.launches
    assert (launch.grid, launch.block, launch.shared) == ((4, 7, 1), (32, 2, 1), 4096)
    assert launch.attributes == ((4, 2, 1, 1),)
    assert launch.parameters == (
        Parameter(bytes(8), ((0, 0, 0),)),
        Parameter(bytes(8), ((0, 1, 0),)),
        Parameter(struct.pack("<f", 0.5)),
        Parameter((7).to_bytes(8, "little")),
    )
    assert "scaled" in launch.kernel
    assert launch.kernel.encode() in compiled.build.path.read_bytes()
    asked = cutedsl.requested(launch)
    assert (asked.cluster, asked.shared_bytes, asked.cooperative) == ((2, 1, 1), 4096, False)


def test_several_launches_keep_their_order_and_parts_of_tensors_their_place(build: Building) -> None:
    first, second = build("beyond", X, Y).launches
    assert [one.words for one in first.parameters[:2]] == [((0, 0, 20),), ((0, 1, 0),)]
    assert [one.words for one in second.parameters[:2]] == [((0, 1, 0),), ((0, 0, 20),)]
    assert first.grid == (1, 1, 1)
    assert second.grid == (3, 1, 1)
    assert cutedsl.requested(second).cooperative


def test_a_tma_atom_is_a_tensor_map_that_begins_with_the_address(tmp_path: Path) -> None:
    module = imported(tmp_path, prompts.example("cute_product"))
    tensors = [TensorFacts("bfloat16", shape, (shape[1], 1), 16) for shape in ((200, 328), (136, 328), (200, 136))]
    (launch,) = cutedsl_build.build(module.launch_product, tensors, "sm_90a", cache_dir=tmp_path / "cache").launches
    maps = [one for one in launch.parameters if len(one.template) == 128]
    assert [one.words for one in maps] == [((0, 0, 0),), ((0, 1, 0),)]
    assert launch.grid == (math.ceil(200 / 128), math.ceil(136 / 128), 1)
    assert struct.unpack_from("<2I", maps[0].template, 32) == (327, 199)  # the extents, less one


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("by_address", "depends on a tensor's address"),
        ("by_alignment", "depends on a tensor's address"),
        ("address_as_number", "depends on a tensor's address"),
        ("reads_memory", "reads or writes memory that is not its own"),
        ("calls_c", "calls system, expected launches of kernels alone"),
        ("launches_nothing", "launches no kernel"),
        ("wrong", "missing"),
    ],
)
def test_host_code_that_does_more_than_launch_is_refused(build: Building, name: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        build(name, X, Y)


def test_an_error_names_the_candidates_line(build: Building) -> None:
    with pytest.raises(CompileError) as raised:
        build("wrong", X, Y)
    line = SOURCE.splitlines().index("    scaled(x, y, 1.0, missing).launch(grid=[1, 1, 1], block=[32, 1, 1])") + 1
    assert raised.value.message.startswith(f"line {line}: ")
    assert "\x1b" not in raised.value.log


def test_a_function_is_compiled_once_for_the_same_facts(build: Building) -> None:
    first, again = build("beyond", X, Y), build("beyond", X, Y)
    assert (first.build.cached, again.build.cached) == (False, True)
    assert (first.launches, first.build.path) == (again.launches, again.build.path)
    other = build("beyond", X, TensorFacts("float32", (32,), (2,), 4))
    assert other.build.path != first.build.path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((TensorFacts("complex64", (8,), (1,), 8), Y), "dtype: found complex64, expected one of bfloat16"),
        ((X,), "y"),
    ],
)
def test_what_does_not_fit_a_function_is_a_compile_error(
    build: Building, arguments: tuple[Argument, ...], said: str
) -> None:
    with pytest.raises(CompileError, match=said):
        build("beyond", *arguments)


def test_what_a_launch_is_written_down_as_is_read_back() -> None:
    made = (HostLaunch("add", (1, 2, 3), (32, 1, 1), 7, ((4, 2, 1, 1),), (Parameter(b"\0" * 8, ((0, 1, 4),)),)),)
    assert cutedsl_build._read(cutedsl_build._written(made)) == made


@pytest.mark.parametrize(
    ("text", "size", "offsets"),
    [
        ("!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>", 56, [0, 12, 24, 32, 40, 48]),
        ("!llvm.struct<(ptr<1>, struct<(struct<()>, struct<()>)>)>", 8, [0, 8]),
        ("!llvm.array<2 x struct<(i32, array<4 x i8>, array<64 x i8>)>>", 144, [0, 72]),
        ("i1", 1, []),
    ],
)
def test_the_layout_of_a_type_is_llvms(text: str, size: int, offsets: list[int]) -> None:
    found = llvm_types.type_of(text)
    assert (found.size, [offset for offset, _ in found.elements]) == (size, offsets)


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(CompileError, match=r"vector<4xf32>"):
        llvm_types.type_of("vector<4xf32>")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a name that the DSL has moved is still there
def test_every_name_that_the_gate_allows_is_the_dsls() -> None:
    missing = []
    for dotted in sorted(allowed.KERNEL_NAMES["cute"] - allowed.MATH):
        parts = dotted.split(".")
        found: Any = importlib.import_module(parts[0])
        for number, part in enumerate(parts[1:], 2):
            if not hasattr(found, part):
                try:
                    found = importlib.import_module(".".join(parts[:number]))
                except ImportError:
                    missing.append(dotted)
                    break
            else:
                found = getattr(found, part)
    assert missing == []


def test_a_call_takes_tensors_of_the_gpu_and_numbers() -> None:
    torch = pytest.importorskip("torch", reason="tensors are torch's")
    function = cutedsl.Function(lambda x: None)
    with pytest.raises(TypeError, match="found a tensor on cpu, expected one on cuda"):
        function.facts([torch.empty(3)])
    with pytest.raises(TypeError, match="found str, expected a tensor or a number"):
        function.facts(["x"])
    assert function.facts([3, 0.5, True, None]) == (3, 0.5, True, None)
    assert [math.copysign(1, zero) for zero in function.facts([0.0, -0.0])] == [1, -1]
    keys = [function._described(number, []) for number in (0.0, -0.0, 0, False, math.nan, math.nan)]
    assert len(set(keys)) == 5, "each number and type is a constant of its own"
    with pytest.raises(TypeError, match=r"expected a @cute\.jit function"):
        cutedsl.compile("add")  # type: ignore[arg-type]


def test_a_compiler_that_cannot_be_imported_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise HostError("CuTe DSL cannot be imported: libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(cutedsl_build, "dsl", broken)
    monkeypatch.setattr(cutedsl.Function, "__call__", cutedsl.Function.__call__)  # the compiler replaces it
    answer = cutedsl_child.compile_candidate({"arch": "sm_90", "source": "", "workloads": [], "library": False})
    assert (answer["host"], answer["error"][:28]) == (True, "CuTe DSL cannot be imported:")
