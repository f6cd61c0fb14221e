"""Plans of CUDA and Triton kernels without a GPU: recorded from `run`, replayed to a stand-in of CUDA's driver.

The tensors are the CPU's and the stand-in's kernels are C functions, so that what a replay computes can be compared;
the package's own recorder, runtime and extension are at work. What a real driver makes of it is for `tests/gpu`.
"""

from __future__ import annotations

import ctypes
import importlib
import re
import struct
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import dispatch
from tests.stand_in_driver import Driver, map_maker
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build

torch = pytest.importorskip("torch", reason="exports are used with torch, which is not installed")
TMA = '''from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void note_five(float* y, int n, float by, bool last, const __grid_constant__ CUtensorMap map) {}
""")


def run(x, y):
    map = cuda.tensor_map(x.view(64, 64), (32, 16), swizzle=64)
    kernels.note_five.launch((4, 2), 128, y, x.numel(), 0.5, True, map, shared_bytes=1024, cluster=2, cooperative=True)
'''


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(with_plans(tmp_path_factory.mktemp("cache")))


class Package:
    """A package's parts, its CUDA launches sent to the stand-in in place of cuda-core."""

    def __init__(self, module: ModuleType, driver: Driver) -> None:
        self.name, self.driver = module.__name__, driver
        self.recording, self.plans = self.part("_runtime.run_recording"), self.part("_plans")
        self.extension = self.part("_runtime.plan_build").extension()
        assert self.extension.open_driver(str(driver.path))

    def part(self, name: str) -> Any:
        return importlib.import_module(f"{self.name}.{name}")

    def record(self, run: Any, x: Any, y: Any) -> Any:
        return self.recording.record(run, (x,), (y,))

    def plan(self, recorded: Any, x: Any, y: Any) -> tuple[Any, Any]:
        """A table and its only plan: as `_plans` makes it, with the launches on device 0."""
        made = self.plans._new_table()
        slots = [(torch.empty_like, torch.empty_like(y))]
        slots += [(torch.empty_like, torch.empty(s.shape, dtype=s.dtype)) for s in recorded.scratch]
        return made, made.plan((x,), 0, 0, 1, tuple(slots), recorded.steps, None)


@pytest.fixture
def package(
    request: pytest.FixtureRequest, driver: Driver, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Package:
    """The package of the test's source, imported as if there were a GPU that the stand-in drives."""
    source, language = request.param
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(cache))
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77 + device, raising=False)
    kernel = dispatch.kernel(language, "cuda:sm_90", source)
    project = build(replace(kernel, envelope=kernel.envelope | {"name": request.node.name}), tmp_path / "exports")
    monkeypatch.syspath_prepend(project)
    made = Package(importlib.import_module(project.name), driver)
    driver.answer(device=0)
    driver.takes()
    driver.forget()
    cuda = made.part("_runtime.cuda")
    converter = cuda.converter

    def launch(stream: Any, config: Any, handle: Any, *values: Any) -> None:
        typed = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in values]
        typed = [value.room if isinstance(value, TensorMapDescriptor) else value for value in typed]
        driver.launch(int(handle.handle), config["grid"], config["block"], *typed)

    core = SimpleNamespace(
        LaunchConfig=lambda **options: options, Stream=SimpleNamespace(from_handle=lambda handle: handle)
    )
    monkeypatch.setattr(cuda, "converter", lambda name, parameter, device: converter(name, parameter, "cpu"))
    monkeypatch.setattr(cuda, "core", lambda: core)
    monkeypatch.setattr(cuda, "errors", lambda: (OSError,))
    monkeypatch.setattr(cuda, "_functions", lambda: (lambda: 0, lambda device: 77, launch, (OSError,)))
    monkeypatch.setattr(cuda, "opt_in", lambda *asked: None)
    monkeypatch.setattr(cuda.Program, "kernel", lambda self, name, device: SimpleNamespace(handle=driver.kernel(name)))
    return made


@pytest.mark.parametrize(
    ("package", "compiler"),
    [
        ((dispatch.CUTE, "cute"), "cutlass"),
        pytest.param((dispatch.TILELANG, "tilelang"), "tilelang", marks=pytest.mark.nightly),
    ],
    indirect=["package"],
    ids=["cute", "tilelang"],
)
def test_launches_of_functions_are_recorded_and_replayed(
    package: Package, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(compiler, reason="it compiles without a GPU, and is not installed")
    cutedsl, address = package.part("_runtime.cutedsl"), package.driver.kernel("cute_scale_shift")
    loaded = []

    class Library:
        def __init__(self, cubin: Path) -> None:
            loaded.append(cubin.read_bytes())

        def kernel(self, name: str) -> Any:
            assert name.encode() in loaded[-1]
            return SimpleNamespace(handle=address)

    def launch(launched: Any, handle: int, parameters: int, extra: int) -> tuple[int]:
        values = (ctypes.c_void_p * 2).from_address(parameters)
        typed = [ctypes.c_void_p.from_address(value) for value in values if value]
        package.driver.launch(handle, launched.grid, launched.block, *typed)
        return (0,)

    described = cutedsl.Function._described

    def as_on_a_gpu(function: Any, argument: Any, addresses: list[int]) -> Any:
        if isinstance(argument, torch.Tensor):
            facts = {name: getattr(argument, name) for name in ("data_ptr", "dtype", "shape", "stride")}
            argument = SimpleNamespace(is_cuda=True, **facts)
        return described(function, argument, addresses)

    gpu = SimpleNamespace(set_current=lambda: None, arch="90")
    monkeypatch.setattr(cutedsl.Function, "_described", as_on_a_gpu)
    monkeypatch.setattr(cutedsl, "_functions", lambda: (lambda: 0, lambda device: 77))
    monkeypatch.setattr(cutedsl, "core", lambda: SimpleNamespace(Device=lambda device: gpu))
    monkeypatch.setattr(cutedsl, "Library", Library)
    monkeypatch.setattr(cutedsl, "_driver", lambda: SimpleNamespace(cuLaunchKernelEx=launch))
    monkeypatch.setattr(cutedsl, "_configuration", lambda launched, stream: launched)
    monkeypatch.setattr(package.part("_runtime.map_encoding"), "DRIVER", str(package.driver.path))
    package.driver.takes(8, 8)
    run = package.part("_kernel").run
    calls = [(torch.randn(4096), torch.empty(4096)) for _ in range(3)]
    first, second = (package.record(run, *call) for call in calls[:2])
    assert first.same_as(second), "nothing but addresses differs"
    assert torch.equal(calls[0][1], calls[0][0] * 2 + 1)
    assert len(loaded) == 1, "the second call finds what the first made ready"
    (step,) = first.steps
    assert (step[3], step[4], step[5]) == ((16, 1, 1), (256, 1, 1), 0)
    table, plan = package.plan(first, *calls[0])
    x, y = calls[2]
    assert table.run(plan, (x,), (y,))
    assert torch.equal(y, x * 2 + 1)
    package.driver.takes(8)
    with pytest.raises(RuntimeError, match="takes parameters of 8 bytes, recorded with 8, 8"):
        run(torch.randn(2048), torch.empty(2048))


class TensorMapDescriptor:
    """By its name cuda-core's; it holds zeros, so what a plan launches with must come from elsewhere."""

    def __init__(self) -> None:
        self.room = (ctypes.c_uint8 * 128)()


@pytest.mark.parametrize(
    ("package", "launches"), [((dispatch.CUDA, "cuda"), 1), ((dispatch.CUDA_THREE, "cuda"), 3)], indirect=["package"]
)
def test_cuda_launches_are_replayed_to_the_same_bits(package: Package, launches: int) -> None:
    run = package.part("_kernel").run
    calls = [(torch.randn(4096), torch.empty(4096)) for _ in range(3)]
    first, second = (package.record(run, *call) for call in calls[:2])
    assert first.same_as(second), "nothing but addresses differs"
    assert [step[0] for step in first.steps].count(package.recording.LAUNCH) == launches
    assert all(step[-2] for step in first.steps if step[0] == package.recording.LAUNCH), "handles of kernels"
    table, plan = package.plan(first, *calls[0])
    x, y = calls[2]
    assert table.run(plan, (x,), (y,))
    torch.testing.assert_close(y, x * 2 + 1)
    again = torch.empty(4096)
    run(x, again)
    assert torch.equal(y, again)


@pytest.mark.parametrize("package", [(dispatch.CUDA_THREE, "cuda")], indirect=True)
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
def test_a_plan_is_compared_as_the_graph_that_it_will_be(
    package: Package, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package.part("_runtime.map_encoding"), "DRIVER", str(package.driver.path))
    monkeypatch.setattr(package.recording, "mismatch", lambda launch: None)  # it has one answer for all
    plans, run = importlib.reload(package.plans), package.part("_kernel")
    table, x = plans._new_table(), torch.randn(4096)

    def copies() -> tuple[list[Any], list[Any]]:
        return [x.clone()], [torch.empty(4096)]

    package.driver.forget_the_last(wrong)
    try:
        made = package.part("_runtime.launch_plan").make(table, run, 0, (x,), copies, torch.device("cuda", 0), ())
    finally:
        package.driver.forget_the_last(False)
    assert table.graphs() == (4, 1 if wrong else 2, {}), "as it is built, and with other addresses"
    if wrong:
        assert made == "a replay gives other bits than run: run does something that was not seen"
        return
    plan, launches = made
    assert launches == 3
    package.driver.forget()
    (x,), (y,) = copies()
    assert table.run(plan, (x,), (y,))
    torch.testing.assert_close(y, x * 2 + 1)
    assert package.driver.called()[-1] == "cuGraphLaunch", "the next call on this stream is one as well"
    monkeypatch.setattr(plans, "table", table)
    assert plans.described()["graphs"] == {"asked": True, "launched": 3, "refused": {}}


@pytest.mark.parametrize("package", [(dispatch.CUDA, "cuda")], indirect=True)
def test_graphs_are_asked_for_strictly(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    assert package.plans.described()["graphs"] == {"asked": True, "launched": 0, "refused": {}}
    monkeypatch.setenv("WARPSMITH_PLAN_GRAPHS", "0")
    assert importlib.reload(package.plans).described()["graphs"]["asked"] is False
    monkeypatch.setenv("WARPSMITH_PLAN_GRAPHS", "on")
    with pytest.raises(ValueError, match="WARPSMITH_PLAN_GRAPHS: found 'on', expected 0 or 1"):
        importlib.reload(package.plans)


@pytest.mark.parametrize("package", [(TMA, "cuda")], indirect=True)
def test_a_cuda_launch_with_a_tensor_map_and_every_option(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = package.part("_runtime.tensor_maps")
    made = SimpleNamespace(as_tensor_map=lambda **options: TensorMapDescriptor())
    names = SimpleNamespace(**{name: name for name in ("FLOAT32", "SWIZZLE_64B", "NONE")})
    core = SimpleNamespace(
        _tensor_map=SimpleNamespace(TensorMapDataType=names, TensorMapSwizzle=names, TensorMapL2Promotion=names),
        utils=SimpleNamespace(StridedMemoryView=SimpleNamespace(from_any_interface=lambda tensor, stream_ptr: made)),
    )
    monkeypatch.setattr(maps, "core", lambda: core)
    monkeypatch.setattr(maps, "check_tensor_map", lambda *asked: None)
    package.driver.takes(8, 4, 4, 1, 128)
    monkeypatch.setattr(package.part("_runtime.map_encoding"), "DRIVER", str(package.driver.path))
    run = package.part("_kernel").run
    calls = [(torch.randn(4096), torch.empty(4096)) for _ in range(3)]
    first, second = (package.record(run, *call) for call in calls[:2])
    assert first.same_as(second), "the map's address is no part of the comparison"
    table, plan = package.plan(first, *calls[0])
    x, y = calls[2]
    package.driver.forget()
    assert table.run(plan, (x,), (y,))
    seen = package.driver.launched()
    assert (seen.grid, seen.block, seen.shared, seen.stream) == ((4, 2, 1), (128, 1, 1), 1024, 77)
    assert [number for number, _ in seen.attributes] == [2, 4], "cooperative, cluster"
    assert seen.attributes[1][1][:12] == bytes([2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0])
    tensor_map = seen.parameters[17:]
    assert seen.parameters[:8] == y.data_ptr().to_bytes(8, "little")
    assert tensor_map[:8] == x.data_ptr().to_bytes(8, "little")
    expected = package.part("_runtime.map_encoding").encoded(x.view(64, 64), "FLOAT32", (32, 16), None, 64, 0)
    assert tensor_map == expected


@pytest.mark.parametrize("package", [(dispatch.CUDA, "cuda")], indirect=True)
@pytest.mark.parametrize(
    ("takes", "reason"),
    [
        ((8, 8, 8), None),
        ((8, 8, 4), "scale_shift takes parameters of 8, 8, 4 bytes, recorded with 8, 8, 8"),
        ((8, 8), "scale_shift takes parameters of 8, 8 bytes, recorded with 8, 8, 8"),
        ((8, 8, 8, 8), "scale_shift takes parameters of 8, 8, 8, 8 bytes, recorded with 8, 8, 8"),
    ],
)
def test_parameters_are_held_against_the_drivers(
    package: Package, takes: tuple[int, ...], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package.part("_runtime.map_encoding"), "DRIVER", str(package.driver.path))
    package.driver.takes(*takes)
    found = package.record(package.part("_kernel").run, torch.randn(4096), torch.empty(4096))
    assert found == reason if reason else found.steps


def compiled_for_hopper(kernel: Any) -> Any:
    """Triton's compiled kernel, not loaded: its metadata, its signature, its PTX."""
    triton = pytest.importorskip("triton", reason="Triton compiles without a GPU, and is not installed")
    compiler = importlib.import_module("triton.compiler")
    backend = importlib.import_module("triton.backends.compiler")
    made = importlib.import_module("triton.experimental.gluon._runtime").GluonASTSource
    source = (made if kernel.is_gluon() else compiler.ASTSource)(
        fn=kernel,
        signature={"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 1024},
    )
    return triton.compile(source, target=backend.GPUTarget("cuda", 90, 32))


@pytest.mark.parametrize("package", [(dispatch.TRITON, "triton"), (dispatch.GLUON, "gluon")], indirect=True)
def test_a_minor_version_of_triton_is_another_for_gluon_alone(package: Package) -> None:
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    (kernel,) = package.part("_load").KERNELS
    major, minor = triton.__version__.split(".")[:2]
    other = f"{major}.{int(minor) + 1}.0"
    refused = f"triton is {triton.__version__}, verified with {other}" if kernel.language == "gluon" else None
    for verified, expected in ((f"{major}.{minor}.99", None), (other, refused)):
        kernel.versions["triton"] = verified
        assert package.part("_guard").other_version(kernel) == expected


@pytest.mark.parametrize("package", [(dispatch.TRITON, "triton"), (dispatch.GLUON, "gluon")], indirect=True)
def test_triton_launches_are_recorded_from_the_compiled_kernel(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton", reason="Triton compiles without a GPU, and is not installed")
    kernel = compiled_for_hopper(package.part("_kernel").scale_shift)
    address = package.driver.kernel("triton_scale_shift")
    kernel._init_handles = lambda: None
    kernel.function = address

    def run(x: Any, y: Any) -> None:
        n, grid = x.numel(), (4,)
        kernel.launch_metadata(grid, 77, x, y, n, 1024)  # as JITFunction.run does before it launches
        values = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int32(n))
        package.driver.launch(address, (4, 1, 1), (128, 1, 1), *values, ctypes.c_void_p(0), ctypes.c_void_p(0))

    calls = [(torch.randn(4096), torch.empty(4096)) for _ in range(3)]
    first, second = (package.record(run, *call) for call in calls[:2])
    assert first.same_as(second)
    (step,) = first.steps
    assert (step[3], step[4], step[5]) == ((4, 1, 1), (32 * kernel.metadata.num_warps, 1, 1), kernel.metadata.shared)
    assert step[-2] is False, "a handle of a function"
    declared: list[str] = re.findall(r"\.param \.(\w+)", kernel.asm["ptx"].split(".entry")[1].split(")")[0])
    assert declared == ["u64", "u64", "u32", "u64", "u64"], "what Triton's kernel takes, its own scratch at the end"
    assert len(step[-1]) == len(declared)
    monkeypatch.setattr(package.part("_runtime.map_encoding"), "DRIVER", str(package.driver.path))
    sizes = [int(kind[1:]) // 8 for kind in declared]
    for takes, fits in ((sizes, True), (sizes[:3], True), (sizes[:2], False), ([8, 8, 8], False)):
        package.driver.takes(*takes)
        assert isinstance(package.record(run, *calls[0]), str) is not fits, takes
    table, plan = package.plan(first, *calls[0])
    x, y = calls[2]
    assert table.run(plan, (x,), (y,))
    assert torch.equal(y, x * 2 + 1)
    assert kernel.launch_metadata.__func__ is type(kernel).launch_metadata
    assert type(kernel).launch_metadata.__module__ == "triton.compiler.compiler", "put back"


DESCRIBED = """import triton
import triton.language as tl


@triton.jit
def described(x, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS
    x.store([row, 0], x.load([row, 0]) * 2.0)


def run(x, y):
    pass
"""


@pytest.mark.parametrize("package", [(DESCRIBED, "triton")], indirect=True)
def test_triton_tensor_descriptors_become_tensor_maps(
    package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton = pytest.importorskip("triton", reason="Triton compiles without a GPU, and is not installed")
    encoding, make = package.part("_runtime.map_encoding"), map_maker(tmp_path)
    monkeypatch.setattr(encoding, "DRIVER", str(package.driver.path))
    descriptors = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
    signature = {"x": "tensordesc<fp32[16,64]>", "ROWS": "constexpr"}
    source = importlib.import_module("triton.compiler").ASTSource(
        fn=package.part("_kernel").described, signature=signature, constexprs={"ROWS": 16}
    )
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernel = triton.compile(source, target=target)
    address = package.driver.kernel("described")
    monkeypatch.setattr(kernel, "_init_handles", lambda: None)
    kernel.function = address

    def encoded(descriptor: Any, facts: Any) -> list[Any]:  # as Triton's, which needs its own driver for the bytes
        bytes_ = encoding.encoded(descriptor.base, "FLOAT32", facts["block_size"], None, 128, 128)
        return [make(bytes_), *descriptor.shape, *descriptor.strides]

    monkeypatch.setattr(importlib.import_module("triton.backends.nvidia.driver"), "make_tensordesc_arg", encoded)
    declared = kernel.asm["ptx"].split(".entry")[1].split(")")[0]
    sizes = [128 if "b8" in each else int(re.findall(r"\.u(\d+)", each)[0]) // 8 for each in declared.split(",\n")]
    assert sizes == [128, 4, 4, 8, 8, 8, 8]
    package.driver.takes(*sizes)

    def run(x: Any, y: Any) -> None:
        kernel.launch_metadata((4,), 77, descriptors.from_tensor(x.view(64, 64), [16, 64]), 16)

    calls = [(torch.randn(4096), torch.empty(4096)) for _ in range(3)]
    first, second = (package.record(run, *call) for call in calls[:2])
    assert first.same_as(second)
    table, plan = package.plan(first, *calls[0])
    x, y = calls[2]
    package.driver.forget()
    assert table.run(plan, (x,), (y,))
    expected = encoding.encoded(x.view(64, 64), "FLOAT32", (16, 32), None, 128, 128)
    assert package.driver.launched().parameters == expected + struct.pack("<2i2q", 64, 64, 64, 1)
    monkeypatch.setattr(
        importlib.import_module("triton.backends.nvidia.driver"),
        "make_tensordesc_arg",
        lambda descriptor, facts: [make(bytes(128)), *descriptor.shape, *descriptor.strides],
    )
    said = package.record(run, *calls[0])
    assert said == "described: a tensor descriptor is not made as this version of the recorder knows it"


TRITON_REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "clusters": ({"num_ctas": 2}, {}, "it runs in clusters of Triton's"),
    "scratch of Triton's": ({"global_scratch_size": 128}, {}, "Triton allocates scratch memory for it"),
    "a descriptor": ({}, {"x": "tensordesc<fp32[64,64]>"}, "a tensor descriptor is no tensor map here"),
    "a tuple": ({}, {"n": ("i32", "i32")}, "argument n is of Triton's type ('i32', 'i32')"),
    "a half": ({}, {"n": "fp16"}, "argument n is of Triton's type fp16"),
    "a hook": ({}, {}, "a launch hook of Triton's is set"),
}


@pytest.mark.parametrize("package", [(dispatch.TRITON, "triton")], indirect=True)
def test_triton_launches_that_plans_do_not_hold(package: Package) -> None:
    knobs = pytest.importorskip("triton", reason="Triton is not installed").knobs.runtime
    noted = package.part("_runtime.triton_recording").note
    recorder = package.part("_runtime.recording").Recorder
    for name, (facts, types, reason) in TRITON_REFUSED.items():
        metadata = {"num_warps": 4, "num_ctas": 1, "shared": 0, "global_scratch_size": 0} | facts
        signature = {"x": "*fp32", "n": "i32"} | types
        kernel = SimpleNamespace(
            name="k",
            metadata=SimpleNamespace(**metadata),
            function=1,
            src=SimpleNamespace(signature=signature),
            _init_handles=lambda: None,
        )
        hook = lambda metadata: None  # noqa: E731
        found = recorder()
        if name == "a hook":
            knobs.launch_enter_hook.add(hook)
        try:
            noted(found, kernel, (1,), (torch.zeros(4), 4))
        finally:
            if name == "a hook":
                knobs.launch_enter_hook.remove(hook)
        assert reason in str(found.refusal), name
        assert found.events == []


@pytest.mark.parametrize("package", [(dispatch.CUDA, "cuda")], indirect=True)
@pytest.mark.parametrize(("asked", "served"), [("", True), ("on", True), ("off", False)])
def test_plans_are_on_unless_switched_off(
    package: Package, asked: str, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPSMITH_PLANS", asked)
    plans = importlib.reload(package.plans)
    assert plans.wanted() == served
