"""On a real GPU: kernels of a source share its variables, what they leave there is seen, and idle scratch is spoilt."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.gpu.building import compiled
from warpsmith.kernels_db.runtime import cuda
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.runner.device_state import GpuState, spoil_scratch
from warpsmith.workers.judge.runner.loading import import_file
from warpsmith.workers.judge.runner.outputs import ContractError
from warpsmith.workers.judge.runner.shared_memory import PATTERNS, spoil_shared

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

SHARED = r"""
__device__ int handed;
extern "C" __global__ void put(const int* from) { handed = *from; }
extern "C" __global__ void take(int* to) { *to = handed; }
extern "C" __global__ void clear() { handed = 0; }
"""
KEPT = r"""
#include <cassert>
__device__ int plain; static __device__ int hidden; namespace { __device__ double apart = 3.0; }
__managed__ int managed; __constant__ int fixed = 7; __device__ const int table[3] = {1, 2, 3};
extern "C" __global__ void touch(int which, int by) {
    static __device__ int inside;
    assert(which >= 0); if (which > 9) printf("%d\n", which);
    if (which == 1) plain += by; if (which == 2) hidden += by; if (which == 3) apart += by;
    if (which == 4) managed += by; if (which == 5) inside += by;
}
extern "C" __global__ void read(int* to) { *to = plain + hidden + int(apart) + managed + fixed + table[*to]; }
"""

UNWRITTEN = r"""
extern "C" __global__ void look(int* found) {
    __shared__ int own[10240];
    int least = own[threadIdx.x], most = least;
    for (int i = threadIdx.x; i < 10240; i += 32) { least = min(least, own[i]); most = max(most, own[i]); }
    found[blockIdx.x] = __reduce_min_sync(~0u, least); found[gridDim.x + blockIdx.x] = __reduce_max_sync(~0u, most);
}
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path_factory.getbasetemp() / "cache"))


def whole(value: int) -> torch.Tensor:
    return torch.full((1,), value, dtype=torch.int32, device="cuda")


def test_what_one_kernel_writes_another_of_the_source_reads() -> None:
    kernels, other = compiled(SHARED), cuda.compile(SHARED)
    to, from_other = whole(0), whole(5)
    kernels.put[1, 1](whole(41))
    kernels.take[1, 1](to)
    other.take[1, 1](from_other)
    assert (to.item(), from_other.item()) == (41, 0)  # another `compile` of the same text is another module


def test_threads_and_streams_share_the_module() -> None:
    kernels = compiled(SHARED)
    streams = [torch.cuda.Stream() for _ in range(4)]
    seen = [whole(0) for _ in streams]
    torch.cuda.synchronize()

    def put(stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            kernels.put[1, 1](source)

    def take(stream: torch.cuda.Stream, to: torch.Tensor) -> None:
        with torch.cuda.stream(stream):
            kernels.take[1, 1](to)

    source = whole(17)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, streams))
        torch.cuda.synchronize()
        list(pool.map(take, streams, seen))
    torch.cuda.synchronize()
    assert [to.item() for to in seen] == [17] * 4


def test_a_graph_replays_kernels_that_share_a_variable() -> None:
    kernels = compiled(SHARED)
    source, to = whole(1), whole(0)
    kernels.put[1, 1](source)  # loaded before the capture, as a package's own check has it
    kernels.take[1, 1](to)
    kernels.clear[1, 1]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels.put[1, 1](source)
        kernels.take[1, 1](to)
        kernels.clear[1, 1]()
    for value in (3, 4):
        source.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert to.item() == value


@pytest.mark.parametrize("which", [1, 2, 3, 4, 5])
def test_a_variable_of_every_kind_that_changes_is_named(which: int) -> None:
    kernels = compiled(KEPT)
    names = {1: "plain", 2: "hidden", 3: "apart", 4: "managed", 5: "inside"}
    state = GpuState("nvrtc")
    with state.unchanged():  # the first call, for which the module is loaded
        kernels.touch[1, 1](0, 1)
        torch.cuda.synchronize()
    with state.unchanged():
        kernels.touch[1, 1](which, 1)
        kernels.touch[1, 1](which, -1)
        torch.cuda.synchronize()
    state.begin()
    kernels.touch[1, 1](which, 1)
    torch.cuda.synchronize()
    with pytest.raises(ContractError, match=names[which]) as caught:
        state.end()
    assert caught.value.kind == "state"


def test_idle_scratch_is_spoilt_and_what_is_in_use_is_not() -> None:
    torch.cuda.empty_cache()
    held, given = torch.full((1 << 20,), 3.0, device="cuda"), torch.zeros(1 << 20, device="cuda")
    place = given.data_ptr()
    del given
    torch.cuda.synchronize()
    spoil_scratch(importlib.import_module("cuda.bindings.driver"))
    again = torch.empty(1 << 20, device="cuda")
    assert again.data_ptr() == place
    found = again.view(torch.uint8).unique().tolist()
    assert len(found) == 1
    assert found != [0]
    assert held.eq(3.0).all()


def test_shared_memory_is_spoilt_on_every_multiprocessor() -> None:
    kernels = compiled(UNWRITTEN)
    count = torch.cuda.get_device_properties(0).multi_processor_count
    found, bytes_seen = torch.zeros(2, 4 * count, dtype=torch.int32, device="cuda"), set()
    for _ in range(20):
        spoil_shared(importlib.import_module("cuda.bindings.driver"))
        kernels.look[4 * count, 32](found)
        torch.cuda.synchronize()
        least, most = found.tolist()
        assert least == most == [least[0]] * (4 * count)
        bytes_seen.add(least[0] & 0xFF)
    assert bytes_seen <= set(PATTERNS)
    assert len(bytes_seen) > 1


def test_a_triton_modules_variable_is_watched(tmp_path: Path) -> None:
    source = tmp_path / "counting.py"
    source.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef count(out):\n"
        "    seen = tl.inline_asm_elementwise(\n"
        '        "{ .global .align 4 .u32 kept; .reg .u32 one; mov.u32 one, 1;'
        ' atom.global.add.u32 $0, [kept], one; }",\n'
        '        "=r,r", [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1)\n    tl.store(out, seen)\n'
    )
    state = GpuState("triton")
    count = import_file(str(source)).count
    out = whole(0)
    state.begin()
    count[(1,)](out)
    torch.cuda.synchronize()
    with pytest.raises(ContractError, match="kept"):
        state.end()
