"""The extension that replays plans: what C functions and a stand-in of CUDA's driver get, byte by byte."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import struct
import subprocess
import sys
from typing import Any

import pytest

from tests.stand_in_driver import Driver
from tests.support.plan_steps import (
    ALLOCATE,
    BLOCK,
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
)
from warpsmith.kernels_db.runtime import map_encoding

torch = pytest.importorskip("torch", reason="plans are of torch's tensors")
launch_plan = importlib.import_module("warpsmith.kernels_db.runtime.launch_plan")
C_SOURCE = r"""
#include <cstdint>
extern "C" void mixed(double* out, int8_t a, float b, uint16_t c, double d, int32_t e, bool f, int64_t g, uint64_t h,
                      float i, int16_t j, double k, float l, double m, float n, double o, float p, double q, float r,
                      int8_t s, float* t) {
  double all[] = {(double)a, b, (double)c, d, (double)e, (double)f, (double)g, (double)h, i,   (double)j,
                  k,         l, m,         n, o,         p,         q,         r,         (double)s, t[1]};
  for (int64_t x = 0; x < 20; ++x) out[x] = all[x];
}
extern "C" void add_one(float* x, int64_t n) { for (int64_t i = 0; i < n; ++i) x[i] += 1.0f; }
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    directory = tmp_path_factory.mktemp("functions")
    (directory / "f.cpp").write_text(C_SOURCE)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "f.cpp", "-o", "f.so"], check=True, cwd=directory, timeout=60)
    return ctypes.CDLL(str(directory / "f.so"))


def address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def test_a_c_function_gets_every_kind_of_number_in_registers_and_on_the_stack(
    extension: Any, functions: ctypes.CDLL
) -> None:
    """Eleven values of each class: more than any processor has registers for."""
    kinds = "bfHdi?qQfhdfdfdfdfb"
    values = [
        -3,
        1.5,
        65535,
        -2.25,
        -70000,
        True,
        -(1 << 40),
        1 << 63,
        0.1,
        -300,
        1e300,
        2.5,
        3.5,
        4.5,
        5.5,
        6.5,
        7.5,
        8.5,
        -9,
    ]
    last = torch.tensor([1.0, 42.0])
    pieces = (pointer(1), *(number(v, k) for v, k in zip(values, kinds, strict=True)), pointer(0))
    made = table(extension)
    plan = made.plan(
        (last,),
        0,
        -1,
        1,
        (new(20, dtype=torch.float64),),
        (step(CALL, function=address(functions, "mixed"), pieces=pieces),),
        None,
    )
    made.add(plan)
    expected = [struct.unpack(f"<{k}", struct.pack(f"<{k}", v))[0] for v, k in zip(values, kinds, strict=True)]
    assert made.call(last).tolist() == [*map(float, expected), 42.0]


def test_scratch_is_new_in_each_call_and_set_to_zero_where_it_is_to_be(extension: Any, functions: ctypes.CDLL) -> None:
    """Slots: an argument, an output, scratch of zeros that is made after the output was set to zero."""
    x = torch.zeros(4)
    add = address(functions, "add_one")
    steps = (
        step(ZERO, 1),
        step(ALLOCATE, 2),
        step(CALL, function=add, pieces=(pointer(1, 4), number(3, "q"))),
        step(CALL, function=add, pieces=(pointer(2), number(4, "q"))),
        step(CALL, function=add, pieces=(pointer(1), number(4, "q"))),
    )
    made = table(extension)
    slots = (new(4), (torch.zeros_like, torch.empty(4)))
    made.add(made.plan((x,), 0, -1, 1, slots, steps, None))
    for _ in range(3):
        assert made.call(x).tolist() == [1.0, 2.0, 2.0, 2.0]
    assert made.served(0) == 3


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda x: (torch.zeros(5), 1, 0.0), "shape"),
        (lambda x: (torch.zeros(8)[::2], 1, 0.0), "stride"),
        (lambda x: (torch.zeros(4, dtype=torch.int32), 1, 0.0), "dtype"),
        (lambda x: (torch.zeros(2, 2), 1, 0.0), "rank"),
        (lambda x: (x, 2, 0.0), "number"),
        (lambda x: (x, 1.0, 0.0), "an int for a float"),
        (lambda x: (x, True, 0.0), "a bool for an int"),
        (lambda x: (x, 1, -0.0), "the sign of zero"),
        (lambda x: (x, 1), "fewer arguments"),
        (lambda x: (x, 1, None), "none"),
        (lambda x: (x, 1 << 70, 0.0), "a long number"),
        (lambda x: (torch.zeros(4, device="meta"), 1, 0.0), "another device"),
        (lambda x: (x.clone().requires_grad_(), 1, 0.0), "a gradient"),
        (lambda x: (torch._neg_view(x), 1, 0.0), "a lazy negative"),
        (lambda x: (torch.zeros(5)[1:], 1, 0.0), "an address askew"),
        (lambda x: (torch.zeros(4).to_sparse(), 1, 0.0), "a layout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_call_that_differs_in_anything_is_declined(
    extension: Any, functions: ctypes.CDLL, other: Any, what: str
) -> None:
    x = torch.zeros(4)
    made = table(extension, alignments=((0, 64),))
    pieces = (pointer(0), number(4, "q"))
    made.add(
        made.plan((x, 1, 0.0), 0, -1, 0, (), (step(CALL, function=address(functions, "add_one"), pieces=pieces),), None)
    )
    assert made.call(x, 1, 0.0) is None
    assert made.call(*other(x)) is NotImplemented, what
    assert x.tolist() == [1.0] * 4


def test_what_stands_around_a_call_declines_it(extension: Any, functions: ctypes.CDLL) -> None:
    x = torch.zeros(4)
    made = table(extension)
    pieces = (pointer(0), number(4, "q"))
    plan = made.plan((x,), 0, -1, 0, (), (step(CALL, function=address(functions, "add_one"), pieces=pieces),), None)
    made.add(plan)
    token = BLOCK.set("switched")
    assert made.call(x) is made.inside(x) is NotImplemented
    BLOCK.reset(token)
    with importlib.import_module("torch.utils.flop_counter").FlopCounterMode(display=False):
        assert made.call(x) is NotImplemented
        assert made.inside(x) is None, "the mode saw the op already"
    made.grant(0, 1)
    assert [made.call(x), made.call(x)] == [None, NotImplemented], "one was granted"
    assert made.run(plan, (x,), ()), "which asks for no grant"
    made.grant(0, 1)
    made.revoke()
    assert made.call(x) is NotImplemented
    made.grant(0, 1)
    made.clear()
    assert (made.call(x), made.size()) == (NotImplemented, 0)


def test_memory_shared_with_what_is_written_declines(extension: Any, functions: ctypes.CDLL) -> None:
    room, y = torch.zeros(64), torch.zeros(16)
    made = table(extension, mutated=(0,))
    pieces = (pointer(0), number(16, "q"))
    x = room[:16]
    made.add(
        made.plan((x, y), 0, -1, 0, (), (step(CALL, function=address(functions, "add_one"), pieces=pieces),), None)
    )
    assert made.call(x, room[15:31]) is NotImplemented
    version = x._version
    assert made.call(x, room[16:32]) is None
    assert (x._version, room[:17].tolist()) == (version + 1, [1.0] * 16 + [0.0])


def test_plans_are_bounded(extension: Any, functions: ctypes.CDLL) -> None:
    x = torch.zeros(4)
    made = table(extension)
    pieces = (pointer(0), number(4, "q"))
    steps = (step(CALL, function=address(functions, "add_one"), pieces=pieces),)
    for value in range(1030):
        made.add(made.plan((x, value), 0, -1, 0, (), steps, None))
    assert made.size() == 6
    made.add(made.plan((x, 1029), 0, -1, 0, (), steps, None))
    assert made.size() == 6, "the same call, the same place"


def test_a_launch_reaches_the_driver_byte_by_byte(extension: Any, driver: Driver) -> None:
    made = table(extension)
    x, y = torch.zeros(8, 64), torch.zeros(16)
    template = map_encoding.encoded(x, "FLOAT32", (4, 32), None, 128, 256, str(driver.path))
    assert template[:8] == struct.pack("<Q", x.data_ptr())
    assert template[8:16] == struct.pack("<iI", 7, 2), "float32, two axes"
    assert struct.unpack_from("<2QQ2I2I4i", template, 16) == (64, 8, 256, 32, 4, 1, 1, 0, 3, 3, 0)
    pieces = (
        pointer(1, 12),
        number(-7, "i"),
        number(1.5, "f"),
        number(True, "?"),
        (MAP, False, 0, 1024, 0, template),
    )
    attributes = ((4, 2, 1, 1), (2, 1, 0, 0))
    launch = step(
        LAUNCH,
        function=driver.kernel("note_five"),
        pieces=pieces,
        grid=(6, 5, 4),
        block=(128, 2, 1),
        shared=4096,
        attributes=attributes,
    )
    made.add(made.plan((x, y), 0, 3, 0, (), (launch,), None))
    driver.answer(device=3)
    for _ in range(2):  # other tensors: other addresses
        x, y = torch.zeros(8, 64), torch.zeros(16)
        driver.forget()
        assert made.call(x, y) is None
        seen = driver.launched()
        assert (seen.grid, seen.block, seen.shared, seen.stream) == ((6, 5, 4), (128, 2, 1), 4096, STREAM + 3)
        assert seen.attributes == (
            (4, struct.pack("<3I", 2, 1, 1).ljust(64, b"\0")),
            (2, struct.pack("<I", 1).ljust(64, b"\0")),
        )
        assert seen.kernel == driver.kernel("note_five")
        values = struct.pack("<Qif?", y.data_ptr() + 12, -7, 1.5, True)
        assert seen.parameters == values + struct.pack("<Q", x.data_ptr() + 1024) + template[8:]


def test_another_current_device_declines_and_a_refused_launch_raises(extension: Any, driver: Driver) -> None:
    made = table(extension)
    x = torch.zeros(4)
    pieces = (pointer(0), pointer(0), number(4, "q"))
    launch = step(LAUNCH, function=driver.kernel("scale"), pieces=pieces, grid=(1, 1, 1), block=(32, 1, 1))
    plan = made.plan((x,), 0, 1, 0, (), (launch,), None)
    made.add(plan)
    for device in (0, -1):
        driver.answer(device=device)
        assert made.call(x) is NotImplemented, "no context, or that of another device"
        assert made.run(plan, (x,), ()) is False
    driver.answer(device=1, status=719)
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx: found status 719, expected 0"):
        made.call(x)
    assert made.served(0) == 0
    driver.answer(device=1)
    assert made.call(x) is None


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (tuple(number(1, "q") for _ in range(65)), "found more arguments of a launch than 64"),
        (tuple(number(1, "q") for _ in range(60)), "found a C function that cannot be called here"),
        ((pointer(1),), "found a slot that is none"),
        (((MAP, False, 0, 0, 0, b"short"),), "tensor maps: expected at most 8 of 128 bytes"),
        (((MAP, False, 0, 0, 0, bytes(128)),), "found a tensor map for a C function"),
    ],
)
def test_a_plan_that_cannot_be_replayed_is_refused(extension: Any, pieces: tuple[Any, ...], expected: str) -> None:
    made = table(extension)
    with pytest.raises(ValueError, match=expected):
        made.plan((torch.zeros(4),), 0, -1, 0, (), (step(CALL, function=1, pieces=pieces),), None)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
@pytest.mark.parametrize(("shape", "strides"), [((4, 3), None), ((), None), ((4, 3), (1, 4)), ((2, 5), (8, 1))])
def test_memory_of_a_plan_is_as_pytorchs_own(shape: Any, strides: Any, dtype: Any, zeros: bool) -> None:
    """An output that a plan makes is no other tensor than `empty_like` would make, in any mode."""

    def facts(made: Any) -> tuple[Any, ...]:
        own = made.requires_grad, made.is_inference(), made.is_leaf, made.storage_offset(), made.device, made.dtype
        return *own, tuple(made.shape), made.untyped_storage().data_ptr() % 64, made.is_neg(), type(made)

    make, given = launch_plan._slot(torch.Size(shape), strides, dtype, torch.device("cpu"), zeros=zeros)
    for mode in (torch.enable_grad(), torch.no_grad(), torch.inference_mode()):
        with mode:
            found = make(*given) if isinstance(given, tuple) else make(given)
            own = torch.empty_strided(shape, strides or torch.empty(shape).stride(), dtype=dtype)
            assert facts(found) == facts(own)
            if not zeros:
                assert found.stride() == own.stride()
            elif dtype is not torch.float8_e4m3fn:
                assert not found.any()
    assert isinstance(given, tuple) != zeros, "this PyTorch has the quick allocation"


@pytest.mark.parametrize("quick", [False, True])
def test_what_a_plan_holds_is_given_back(extension: Any, functions: ctypes.CDLL, quick: bool) -> None:
    """Ten thousand replays, and a thousand plans made and dropped, keep no reference to what they were given."""
    x, held = torch.zeros(4), object()
    made = table(extension)
    like: Any = torch.empty(4)
    make: Any = torch.empty_like
    if quick:
        make, like = launch_plan._slot(like.shape, None, like.dtype, like.device)
    pieces = (pointer(1), number(0, "q"))
    before = sys.getrefcount(held), sys.getrefcount(like), sys.getrefcount(x), sys.getrefcount(make)
    for _ in range(1000):
        steps = (step(CALL, function=address(functions, "add_one"), pieces=pieces),)
        plan = made.plan((x,), 0, -1, 1, ((make, like),), steps, held)
        made.add(plan)
    for _ in range(10_000):
        assert made.call(x) is not x
    made.clear()
    del plan
    assert (
        sys.getrefcount(held),
        sys.getrefcount(like),
        sys.getrefcount(x),
        sys.getrefcount(make),
    ) == before


def test_outputs_come_as_the_op_returns_them(extension: Any, functions: ctypes.CDLL) -> None:
    x = torch.zeros(4)
    made = table(extension)
    for count in range(3):
        pieces = (pointer(0), number(0, "q"))
        made.add(
            made.plan(
                (x, count),
                0,
                -1,
                count,
                tuple(itertools.repeat(new(2), count)),
                (step(CALL, function=address(functions, "add_one"), pieces=pieces),),
                None,
            )
        )
    none, one, two = (made.call(x, count) for count in range(3))
    assert none is None
    assert one.shape == (2,)
    assert isinstance(two, tuple)
    assert two[0].data_ptr() != two[1].data_ptr()
