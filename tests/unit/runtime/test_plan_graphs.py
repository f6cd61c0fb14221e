"""Plans of several launches as CUDA graphs, launched by a stand-in of CUDA's driver that runs them and counts."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import struct
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import REPOSITORY
from tests.stand_in_driver import Driver
from tests.support.plan_steps import (
    ALLOCATE,
    CALL,
    LAUNCH,
    MAP,
    STREAM,
    ZERO,
    new,
    number,
    pointer,
    step,
    table,
    torch,
)
from warpsmith.kernels_db.runtime import launch_plan, map_encoding, run_recording
from warpsmith.kernels_db.runtime.plan_source import SOURCE

SINGLY = ["cuCtxGetDevice", "cuLaunchKernelEx", "cuLaunchKernelEx", "cuLaunchKernelEx"]
ASKED = [SINGLY[0], "cuStreamIsCapturing", *SINGLY[1:]]
BUILT = [
    *("cuCtxGetDevice", "cuStreamIsCapturing", "cuGraphCreate"),
    *("cuGraphAddKernelNode",) * 3,
    *("cuGraphInstantiate", "cuGraphLaunch"),
]
UPDATED = [
    *("cuCtxGetDevice", "cuStreamIsCapturing"),
    *("cuGraphExecKernelNodeSetParams",) * 3,
    "cuGraphLaunch",
]
GONE = ["cuGraphExecDestroy", "cuGraphDestroy"]


@pytest.fixture(autouse=True)
def as_ever(driver: Driver) -> Iterator[None]:
    """A driver that refuses nothing, and no graph of another test."""
    driver.answer(device=0)
    driver.forget()
    yield
    for name in ("cuGraphAddKernelNode", "cuGraphExecKernelNodeSetParams", "cuGraphInstantiate", "cuGraphLaunch"):
        driver.refuse(name, 0)
    assert driver.live() == (0, 0), "graphs end with their plans"


def three(driver: Driver, *, blocks: int = 4, kernel: bool = False) -> tuple[Any, ...]:
    """Steps that compute 2x + 1 by three launches and two scratch tensors: argument 0, output 1, scratch 2 and 3."""
    n = number(64 * blocks, "q")
    launch: dict[str, Any] = {"grid": (blocks, 1, 1), "block": (64, 1, 1), "kernel": kernel}
    scale, shift = driver.kernel("scale"), driver.kernel("shift")
    return (
        step(ALLOCATE, 2),
        step(LAUNCH, function=scale, pieces=(pointer(0), pointer(2), n), **launch),
        step(ALLOCATE, 3),
        step(LAUNCH, function=shift, pieces=(pointer(2), pointer(3), number(0.5, "f"), n), **launch),
        step(LAUNCH, function=shift, pieces=(pointer(3), pointer(1), number(0.5, "f"), n), **launch),
    )


def planned(made: Any, driver: Driver, x: Any, **options: Any) -> Any:
    """Put the plan of `three` into a table."""
    n = x.numel()
    plan = made.plan((x,), 0, 0, 1, (new(n), new(n), new(n)), three(driver, blocks=n // 64, **options), None)
    made.add(plan)
    return plan


def with_handle(name: str, kernel: bool) -> list[str]:
    """A call as the stand-in notes it where a plan's functions are kernels."""
    return [name, "CUkernel"] if kernel and "KernelNode" in name else [name]


def right(made: Any, n: int = 256) -> bool:
    """Whether a call gives what the op does; its tensors lie where none of the last call do."""
    x = torch.randn(n)
    return torch.equal(made.call(x), x * 2 + 0.5 + 0.5)


@pytest.mark.parametrize("kernel", [False, True], ids=["function", "kernel"])
def test_the_fourth_call_and_later_ones_are_a_graph(extension: Any, driver: Driver, kernel: bool) -> None:
    made = table(extension, graphs_from=4)
    planned(made, driver, torch.zeros(256), kernel=kernel)
    seen, addresses = [], set()
    for _ in range(10):
        x = torch.randn(256)
        addresses.add(x.data_ptr())
        driver.forget()
        y = made.call(x)
        seen.append(driver.called())
        addresses.add(y.data_ptr())
        assert torch.equal(y, x * 2 + 0.5 + 0.5)
        held = x, y  # noqa: F841 - until the next call has addresses of its own
    with_handles = [[each for name in calls for each in with_handle(name, kernel)] for calls in (BUILT, UPDATED)]
    assert seen == [*[ASKED] * 3, with_handles[0], *[with_handles[1]] * 6]
    assert len(addresses) >= 4
    assert (made.graphs(), made.served(0), driver.live()) == ((4, 7, {}), 10, (1, 1))
    driver.forget()
    made.clear()
    assert driver.called() == GONE


def test_a_plan_is_compared_as_a_graph_that_was_given_new_addresses(
    extension: Any, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("candidate")

    def run(x: Any, y: Any) -> None:
        y.copy_(x * 2 + 0.5 + 0.5)

    def recorded(call: Any, arguments: list[Any], outputs: list[Any]) -> run_recording.Recorded:
        call(*arguments, *outputs)
        scratch = run_recording.Scratch((256,), (1,), torch.float32, torch.device("cpu"), False)
        return run_recording.Recorded(three(driver), (scratch, scratch), ())

    def copies() -> tuple[list[Any], list[Any]]:
        return [torch.ones(256)], [torch.empty(256)]

    vars(module)["run"] = run
    monkeypatch.setattr(run_recording, "record", recorded)
    monkeypatch.setattr(map_encoding, "DRIVER", str(driver.path))
    made = table(extension, graphs_from=4)
    driver.forget()
    made_of = launch_plan.make(made, module, 0, (torch.ones(256),), copies, torch.device("cuda", 0), ())
    assert made_of[1] == 3
    assert driver.called() == [*ASKED * 3, *BUILT, *UPDATED]


def test_without_graphs_a_call_is_its_launches_alone(extension: Any, driver: Driver) -> None:
    made = table(extension)
    planned(made, driver, torch.zeros(256))
    for _ in range(8):
        driver.forget()
        assert right(made)
        assert driver.called() == SINGLY
    assert made.graphs() == (0, 0, {})


def test_a_single_launch_is_no_graph(extension: Any, driver: Driver) -> None:
    made = table(extension, graphs_from=1)
    launch = three(driver)[1]
    made.add(made.plan((torch.zeros(256),), 0, 0, 1, (new(256), new(256)), (step(ALLOCATE, 2), launch), None))
    for _ in range(3):
        driver.forget()
        made.call(torch.zeros(256))
        assert driver.called() == SINGLY[:2]
    assert made.graphs() == (1, 0, {})


def test_the_graph_has_the_launches_options_and_tensor_maps(extension: Any, driver: Driver) -> None:
    made = table(extension, graphs_from=1)
    x, y = torch.zeros(8, 64), torch.zeros(16)
    template = map_encoding.encoded(x, "FLOAT32", (4, 32), None, 128, 256, str(driver.path))
    pieces = (pointer(1, 12), number(-7, "i"), number(1.5, "f"), number(True, "?"), (MAP, False, 0, 1024, 0, template))
    note = {"function": driver.kernel("note_five"), "pieces": pieces, "shared": 4096}
    launches = (
        step(LAUNCH, **note, grid=(6, 5, 4), block=(128, 2, 1), attributes=((4, 2, 1, 1), (2, 1, 0, 0))),
        step(LAUNCH, **note, grid=(7, 1, 1), block=(32, 1, 1)),
    )
    made.add(made.plan((x, y), 0, 3, 0, (), launches, None))
    driver.answer(device=3)
    for _ in range(3):
        x, y = torch.zeros(8, 64), torch.zeros(16)
        driver.forget()
        assert made.call(x, y) is None
        first, second = driver.launches(parameters=145)
        assert (first.grid, first.block, first.shared, first.stream) == ((6, 5, 4), (128, 2, 1), 4096, STREAM + 3)
        assert (second.grid, second.block, second.shared, second.attributes) == ((7, 1, 1), (32, 1, 1), 4096, ())
        assert first.attributes == (
            (4, struct.pack("<3I", 2, 1, 1).ljust(64, b"\0")),
            (2, struct.pack("<I", 1).ljust(64, b"\0")),
        )
        values = struct.pack("<Qif?Q", y.data_ptr() + 12, -7, 1.5, True, x.data_ptr() + 1024)
        assert first.parameters == second.parameters == values + template[8:]
    assert made.graphs() == (1, 3, {})


def test_a_captured_stream_gets_the_launches(extension: Any, driver: Driver) -> None:
    made = table(extension, graphs_from=1)
    planned(made, driver, torch.zeros(256))
    for status in (1, 2, 0):
        driver.capture(STREAM, status)
        driver.forget()
        assert right(made)
        assert driver.called() == (ASKED if status else BUILT)
    driver.refuse("cuStreamIsCapturing", 906)  # a legacy stream beside one that is captured
    driver.forget()
    assert right(made)
    assert driver.called() == ASKED
    driver.refuse("cuStreamIsCapturing", 0)
    assert made.graphs() == (1, 1, {})


def test_each_stream_has_a_graph_of_its_own(extension: Any, driver: Driver) -> None:
    now = [STREAM]
    made = table(extension, graphs_from=2, stream=lambda device: now[0])
    planned(made, driver, torch.zeros(256))
    for stream, calls in ((STREAM, ASKED), (STREAM, BUILT), (7, ASKED), (7, BUILT), (STREAM, UPDATED), (7, UPDATED)):
        now[0] = stream
        driver.forget()
        assert right(made)
        assert driver.called() == calls
        assert {each.stream for each in driver.launches(parameters=0)} == {stream}
    assert driver.live() == (2, 2)


def test_the_least_used_graph_makes_room(extension: Any, driver: Driver) -> None:
    """Two tables: graphs are counted for the whole process."""
    now = [0]
    one, other = (table(extension, graphs_from=1, stream=lambda device: now[0]) for _ in range(2))
    for made in (one, other):
        planned(made, driver, torch.zeros(64))
    for stream in range(128):
        now[0] = stream
        assert all(right(made, 64) for made in (one, other))
    assert driver.live() == (256, 256)
    now[0] = 0
    assert right(one, 64), "which is now its last use"
    now[0] = 1000
    driver.forget()
    assert right(one, 64)
    assert driver.called() == [*BUILT[:2], *GONE, *BUILT[2:]]
    for made, stream, calls in ((one, 0, UPDATED), (other, 0, [*BUILT[:2], *GONE, *BUILT[2:]])):
        now[0] = stream
        driver.forget()
        assert right(made, 64)
        assert driver.called() == calls
    assert driver.live() == (256, 256)


def test_a_launch_that_fails_raises_and_the_next_call_tries_again(extension: Any, driver: Driver) -> None:
    made = table(extension, graphs_from=2)
    planned(made, driver, torch.zeros(256))
    driver.answer(device=0, status=719)
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx: found status 719, expected 0"):
        made.call(torch.zeros(256))
    driver.answer(device=0)
    assert right(made)
    driver.refuse("cuGraphLaunch", 719)
    with pytest.raises(RuntimeError, match="cuGraphLaunch: found status 719, expected 0"):
        made.call(torch.zeros(256))
    driver.refuse("cuGraphLaunch", 0)
    assert right(made)
    assert (made.served(0), made.graphs()) == (2, (2, 2, {}))


@pytest.mark.parametrize(
    ("name", "tried", "freed"),
    [
        ("cuGraphAddKernelNode", BUILT[:4], GONE[1:]),
        ("cuGraphInstantiate", BUILT[:7], GONE[1:]),
        ("cuGraphExecKernelNodeSetParams", UPDATED[:3], GONE),
    ],
)
def test_a_plan_that_the_driver_refuses_is_launched_singly_from_then_on(
    extension: Any, driver: Driver, name: str, tried: list[str], freed: list[str]
) -> None:
    made = table(extension, graphs_from=1)
    planned(made, driver, torch.zeros(256))
    later = tried[-1] == UPDATED[2]
    assert not later or right(made)
    driver.refuse(name, 801)
    driver.forget()
    assert right(made), "this call as well"
    assert driver.called() == [*tried, *SINGLY[1:], *freed]
    driver.refuse(name, 0)
    for _ in range(3):
        driver.forget()
        assert right(made)
        assert driver.called() == SINGLY
    assert made.graphs() == (1, int(later), {f"{name}: found status 801, expected 0": 1})


def test_a_driver_without_graphs_launches_singly(extension: Any, driver: Driver, tmp_path: Path) -> None:
    older = driver.without("cuGraphExecKernelNodeSetParams_v2", tmp_path)
    assert extension.open_driver(str(older.path))
    made = table(extension, graphs_from=1)
    for n in (256, 512):
        planned(made, older, torch.zeros(n))
        for _ in range(2):
            older.forget()
            assert right(made, n)
            assert older.called() == SINGLY
    assert made.graphs() == (1, 0, {"CUDA's driver has no cuGraphExecKernelNodeSetParams_v2": 2})
    assert extension.open_driver(str(driver.path))


def c_function(name: str) -> int:
    return ctypes.cast(ctypes.CDLL(None)[name], ctypes.c_void_p).value or 0


def programmatic(steps: tuple[Any, ...]) -> tuple[Any, ...]:
    *before, last = steps
    return (*before, (*last[:6], ((6, 1, 0, 0),), *last[7:]))


UNFIT: dict[str, tuple[Callable[[tuple[Any, ...]], tuple[Any, ...]], str]] = {
    "programmatic": (programmatic, "a launch overlaps with the one before it (programmatic serialization)"),
    "zeros between": (
        lambda steps: (*steps[:4], step(ZERO, 2), steps[4]),
        "a plan sets memory to zero that an earlier launch of it was given",
    ),
    "a C function": (
        lambda steps: (*steps, step(CALL, function=c_function("labs"), pieces=(number(3, "q"),))),
        "a plan calls a C function",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_a_graph_does_not_hold_is_launched_singly(extension: Any, driver: Driver, case: str) -> None:
    change, why = UNFIT[case]
    made = table(extension, graphs_from=1)
    steps = change(three(driver))
    made.add(made.plan((torch.zeros(256),), 0, 0, 1, (new(256), new(256), new(256)), steps, None))
    for _ in range(2):
        driver.forget()
        assert right(made)
        assert driver.called() == SINGLY
    assert made.graphs() == (1, 0, {why: 1})


def test_zeros_that_no_launch_had_before_are_set_before_the_graph(extension: Any, driver: Driver) -> None:
    """In the plan they come between two launches: a scratch tensor and the output."""
    made = table(extension, graphs_from=1)
    steps = three(driver)
    steps = (*steps[:3], step(ZERO, 3), step(ZERO, 1), *steps[3:])
    made.add(made.plan((torch.zeros(256),), 0, 0, 1, (new(256), new(256), new(256)), steps, None))
    for calls in (BUILT, UPDATED):
        driver.forget()
        assert right(made)
        assert driver.called() == calls


def test_threads_on_one_stream_launch_with_their_own_addresses(extension: Any, driver: Driver) -> None:
    """The stand-in refuses an instance that two threads set before it is launched."""
    made = table(extension, graphs_from=4)
    planned(made, driver, torch.zeros(256))
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(call for call in range(200) if not right(made))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []
    assert (made.graphs(), made.served(0), driver.live()) == ((4, 797, {}), 800, (1, 1))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_uses_no_graph_of_its_parent(extension: Any, driver: Driver) -> None:
    made = table(extension, graphs_from=2)
    planned(made, driver, torch.zeros(256))
    assert all(right(made) for _ in range(3))
    child = os.fork()
    if child == 0:
        seen = []
        for _ in range(2):
            driver.forget()
            seen.append((right(made), driver.called()))
        made.clear()
        left = driver.live()
        os._exit(0 if seen == [(True, ASKED), (True, BUILT)] and left == (1, 1) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    driver.forget()
    assert right(made)
    assert driver.called() == UPDATED


AT_EXIT = """
import sys
from pathlib import Path

import torch
from tests.stand_in_driver import Driver
from tests.support.plan_steps import table
from tests.unit.runtime.test_plan_graphs import planned, right
from warpsmith.kernels_db.runtime import plan_build

plan_build.use(Path(sys.argv[1]))
driver = Driver(Path(sys.argv[2]), built=Path(sys.argv[3]).read_bytes())
extension = plan_build.extension()
extension.open_driver(str(driver.path))
made = table(extension, graphs_from=1)
planned(made, driver, torch.zeros(256))
assert right(made)
driver.library.tell_at_exit()
"""


def test_the_end_of_python_leaves_graphs_alone(extension: Any, driver: Driver, tmp_path: Path) -> None:
    """The kernels that they launch, and the device's context, may have gone before."""
    command = [sys.executable, "-c", AT_EXIT, str(extension.__file__), str(tmp_path), str(driver.path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100, cwd=REPOSITORY)
    assert (done.returncode, done.stdout.split()) == (0, BUILT), done.stderr


LAYOUT = r"""
#include <cuda.h>
#include <type_traits>
#define SAME(mine, its) static_assert(offsetof(Node, mine) == offsetof(CUDA_KERNEL_NODE_PARAMS_v2, its), #mine)
static_assert(sizeof(Node) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2), "");
SAME(function, func); SAME(grid, gridDimX); SAME(block, blockDimX); SAME(shared, sharedMemBytes);
SAME(parameters, kernelParams); SAME(extra, extra); SAME(kernel, kern); SAME(context, ctx);
static_assert(sizeof(Attribute) == sizeof(CUlaunchAttribute) && sizeof(Config) == sizeof(CUlaunchConfig), "");
static_assert(offsetof(Attribute, value) == offsetof(CUlaunchAttribute, value), "");
static_assert(sizeof(CUlaunchAttributeValue) == 64, "which a node's attribute is");
static_assert(COOPERATIVE == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && CLUSTER == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "");
static_assert(PROGRAMMATIC == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, "");
static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == 2 && CU_STREAM_CAPTURE_STATUS_NONE == 0, "");
template <class R, class... A> constexpr int count(R (*)(A...)) { return sizeof...(A); }
#define TAKES(mine, its) static_assert(count(decltype(graphs.mine)(nullptr)) == count(decltype(&its)(nullptr)), #its)
TAKES(capturing, cuStreamIsCapturing); TAKES(exchange_mode, cuThreadExchangeStreamCaptureMode);
TAKES(create, cuGraphCreate); TAKES(add, cuGraphAddKernelNode_v2); TAKES(set_attribute, cuGraphKernelNodeSetAttribute);
TAKES(instantiate, cuGraphInstantiateWithFlags); TAKES(set, cuGraphExecKernelNodeSetParams_v2);
TAKES(launch, cuGraphLaunch); TAKES(destroy_instance, cuGraphExecDestroy); TAKES(destroy, cuGraphDestroy);
"""


def test_layouts_and_functions_are_those_of_cuda_h(tmp_path: Path) -> None:
    triton = importlib.util.find_spec("triton")
    header = Path(str(triton and triton.origin)).parent / "backends" / "nvidia" / "include" / "cuda.h"
    if not header.is_file():
        pytest.skip("no cuda.h: Triton, which brings it, is not installed")
    python = sysconfig.get_paths()["include"]
    (tmp_path / "layout.cpp").write_text(SOURCE + LAYOUT)
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{python}", f"-I{header.parent}", str(tmp_path / "layout.cpp")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
