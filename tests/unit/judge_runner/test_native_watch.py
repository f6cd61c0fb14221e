"""What native code leaves behind in its process is seen, and what it puts back is not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.kernels_db.runtime import cpp
from warpsmith.workers.judge.machine.native_watch import Finding, NativeWatch

SOURCE = """
#include <cfenv>
#include <cstdlib>
#include <xmmintrin.h>
int counts[4];
float table[100] = {1, 2, 3};
static const float constants[100] = {1, 2, 3};
namespace deep { template <class T> struct Store { static inline T kept = 3; }; }
extern "C" void nothing(float* x) { x[0] += constants[7]; }
extern "C" void counter(float* x) { static int calls; x[0] = ++calls; }
extern "C" void third(float* x) { counts[2] = (int)x[0] + 7; }
extern "C" void initialised(float* x) { table[50] = x[0] + 9; }
extern "C" void templated(float* x) { deep::Store<float>::kept = x[0] + 4; }
extern "C" void back(float* x) { static int calls; calls++; x[0] = calls; calls--; }
extern "C" void locks(float* x) {
    #pragma omp parallel for
    for (int i = 0; i < 100; i++) {
        #pragma omp critical(own)
        x[0] += 1;
    }
}
extern "C" void reset(float* x) { counts[2] = 0; table[50] = 0; deep::Store<float>::kept = 3; }
extern "C" void flush(float* x) { _mm_setcsr(_mm_getcsr() | 0x8040); }
extern "C" void upwards(float* x) { std::fesetround(FE_UPWARD); }
extern "C" void others(float* x) {
    #pragma omp parallel
    if (omp_get_thread_num() > 0) _mm_setcsr(_mm_getcsr() | 0x8000);
}
extern "C" void threads(float* x) {
    x[0] = 0;
    #pragma omp parallel
    #pragma omp atomic
    x[0] += 1;
}
extern "C" void inexact(float* x) { std::feclearexcept(FE_ALL_EXCEPT); x[0] = x[1] / 3.0f; }
extern "C" void flushes_for_itself(float* x) { const unsigned was = _mm_getcsr(); _mm_setcsr(was | 0x8040); x[0] *= 2; _mm_setcsr(was); }
extern "C" void leaves(float* x) { for (int size = 32; size <= 1 << 20; size *= 128) { volatile float* p = (volatile float*)std::malloc(size); for (int i = 4; i < size / 4; i++) p[i] = 4711; std::free((void*)p); } }
extern "C" void finds(float* x) {
    x[0] = 0;
    for (int size = 32; size <= 1 << 20; size *= 128) {
        volatile float* p = (volatile float*)std::malloc(size);
        for (int i = 4; i < size / 4; i++) x[0] += p[i] == 4711;
        std::free((void*)p);
    }
}
"""  # noqa: E501 - a function a line

Call = Callable[[str], Finding | None]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[NativeWatch, cpp.Kernels, ctypes.Array[ctypes.c_float]]:
    directory = tmp_path_factory.mktemp("cache")
    watch = NativeWatch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPSMITH_KERNEL_CACHE", str(directory))
        kernels = cpp.compile(SOURCE)
    watch.loaded(str(directory))
    return watch, kernels, (ctypes.c_float * 8)()


@pytest.fixture
def call(watched: tuple[NativeWatch, cpp.Kernels, ctypes.Array[ctypes.c_float]]) -> Call:
    watch, kernels, memory = watched

    def one(name: str) -> Finding | None:
        watch.begin()
        getattr(kernels, name)._pointer(memory)
        return watch.ended() or watch.ended_checked()

    return one


@pytest.mark.parametrize("name", ["nothing", "back", "locks", "inexact", "flushes_for_itself"])
def test_what_ends_as_it_began_passes(call: Call, name: str) -> None:
    assert [call(name) for _ in range(3)] == [None] * 3


@pytest.mark.parametrize(
    ("name", "variable"),
    [("third", "`counts`"), ("initialised", "`table`"), ("templated", "`deep::Store<float>::kept`")],
)
def test_a_variable_that_changed_is_named(call: Call, name: str, variable: str) -> None:
    found = call(name)
    assert found is not None
    assert (found.kind, found.found) == ("state", variable)
    assert call("reset") is None


@pytest.mark.parametrize(
    ("name", "where"), [("flush", "calling thread"), ("upwards", "calling thread"), ("others", "thread of OpenMP")]
)
def test_a_floating_point_environment_that_changed_is_seen_and_put_back(call: Call, name: str, where: str) -> None:
    found = call(name)
    assert found is not None
    assert found.kind == "floating_point_environment"
    assert where in found.message
    assert call("nothing") is None


def test_freed_memory_tells_nothing(
    call: Call, watched: tuple[NativeWatch, cpp.Kernels, ctypes.Array[ctypes.c_float]]
) -> None:
    _, kernels, memory = watched
    kernels.leaves._pointer(memory)
    kernels.finds._pointer(memory)
    assert memory[0] > 0, "this C library clears what it frees, so the rest would prove nothing"
    call("leaves")
    call("finds")
    assert memory[0] == 0


def test_regions_have_as_many_threads_as_they_are_told(
    watched: tuple[NativeWatch, cpp.Kernels, ctypes.Array[ctypes.c_float]],
) -> None:
    watch, kernels, memory = watched
    found = []
    kernels.threads._pointer(memory)
    usual = memory[0]
    for count in (1, 5, None):
        watch.use_threads(count)
        kernels.threads._pointer(memory)
        found.append(memory[0])
    assert found == [1, 5, usual]


def test_a_library_without_regions_is_told_its_threads_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no name but `omp_get_max_threads`, by which it may choose its code."""
    watch = NativeWatch()
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path))
    kernels = cpp.compile('extern "C" void most(float* x) { x[0] = omp_get_max_threads(); }')
    watch.loaded(str(tmp_path))
    memory = (ctypes.c_float * 1)()
    found = []
    kernels.most._pointer(memory)
    usual = memory[0]
    for count in (1, usual + 4, 0, None):
        watch.use_threads(None if count is None else int(count))
        watch.begin()
        kernels.most._pointer(memory)
        found.append(memory[0])
        assert watch.ended_checked() is None
    assert found == [1, usual + 4, usual, usual]


def test_a_counter_is_named_by_its_function(call: Call) -> None:
    """Last: nothing takes it back."""
    found = call("counter")
    assert found is not None
    assert found.found == "`counter::calls`"
    assert "scratch that `run` allocates" in found.message
