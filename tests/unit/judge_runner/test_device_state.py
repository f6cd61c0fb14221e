"""What a candidate keeps in device memory: read from real cubins, and seen in a device of bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.kernels_db.runtime import cuda
from warpsmith.workers.judge.languages import cubin
from warpsmith.workers.judge.machine.cubin_symbols import areas, imports
from warpsmith.workers.judge.runner.device_state import DeviceState, idle_blocks
from warpsmith.workers.judge.runner.outputs import ContractError

SOURCE = r"""
__device__ int counter; static __device__ float kept[100]; namespace { __device__ double hidden = 3.0; }
__constant__ float table[4] = {1, 2, 3, 4};
extern "C" __global__ void a(float* x, int n) {
    static __device__ int inner;
    counter++; kept[n] += table[n]; hidden += n; inner++; x[0] = kept[1] + inner;
}
"""
ALLOCATES = r"""
extern "C" __global__ void a(float* x, int n) { int* p = new int[n]; x[0] = p[n - 1]; delete[] p; }
"""
SAYS = r"""
#include <cassert>
extern "C" __global__ void a(float* x, int n) { assert(n > 0); printf("%d", n); x[0] = n; }
"""
PLAIN = 'extern "C" __global__ void a(float* x, int n) { x[0] = n; }'
BASES = {".nv.global": 0x1000, ".nv.global.init": 0x5000, ".nv.constant3": 0x9000}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    cache = tmp_path_factory.mktemp("cubins")
    return lambda source: cuda.build(source, "sm_90", cache_dir=cache).path.read_bytes()


class Device:
    """Memory in which the sections of one module lie apart."""

    def __init__(self, raw: bytes, *, lost: str = "") -> None:
        self.memory = bytearray(0x10000)
        self.places = {
            one.name: BASES[area.name] + one.offset for area in areas(raw) for one in area.variables if one.name != lost
        }
        self.state = DeviceState(lambda address, size: bytes(self.memory[address : address + size]))
        self.state.watch(1, raw, self.places.get)

    def write(self, name: str, offset: int = 0) -> None:
        self.memory[self.places[name] + offset] ^= 0xFF


def test_every_variable_of_a_module_is_found(built: Callable[[str], bytes]) -> None:
    found = {area.name: {one.name: one.size for one in area.variables} for area in areas(built(SOURCE))}
    assert {"counter": 4, "kept": 400}.items() <= found[".nv.global"].items()
    assert found[".nv.constant3"] == {"table": 16}
    assert any("hidden" in name for name in found[".nv.global.init"])
    assert any("inner" in name for name in found[".nv.global"])
    assert areas(built(PLAIN)) == []


def test_a_variable_that_is_not_as_it_was_is_named(built: Callable[[str], bytes]) -> None:
    raw = built(SOURCE)
    for name in Device(raw).places:
        device = Device(raw)
        assert device.state.changed() is None
        device.write(name)
        assert device.state.changed() == name
        device.write(name)
        assert device.state.changed() is None
        device.write(name)
        device.state.remember()
        assert device.state.changed() is None


def test_what_lies_between_variables_is_watched(built: Callable[[str], bytes]) -> None:
    raw = built(
        "__device__ __align__(256) char small; __device__ __align__(256) char large;"
        + PLAIN.replace("x[0] = n", "x[0] = small++ + large++")
    )
    device, (area,) = Device(raw), areas(raw)
    taken = {at for one in area.variables for at in range(one.offset, one.offset + one.size)}
    device.memory[BASES[".nv.global"] + min(set(range(area.size)) - taken)] = 1
    assert device.state.changed() == "memory between its variables"


def test_a_module_is_watched_from_when_it_is_first_seen(built: Callable[[str], bytes]) -> None:
    raw = built(SOURCE)
    device = Device(raw)
    device.write("counter")
    device.state.watch(1, raw, device.places.get)
    assert device.state.changed() == "counter"


def test_a_variable_elsewhere_is_watched_alone_and_a_lost_one_refused(built: Callable[[str], bytes]) -> None:
    raw = built(SOURCE)
    assert Device(raw, lost="kept").state.changed() is None  # its section is read whole
    apart = Device(raw)
    apart.places["kept"] = 0xF000
    state = DeviceState(lambda address, size: bytes(apart.memory[address : address + size]))
    state.watch(1, raw, apart.places.get)
    apart.write("kept", 399)
    assert state.changed() == "kept"
    with pytest.raises(ContractError, match=r"'counter' cannot be read back") as caught:
        state.watch(2, raw, {**apart.places, "counter": None}.get)
    assert caught.value.kind == "state"


def test_the_devices_allocator_is_refused_by_what_was_compiled(built: Callable[[str], bytes]) -> None:
    assert imports(built(ALLOCATES)) == ["free", "malloc"]
    assert "calls free, malloc: expected none of the device's own allocator" in str(cubin.refusal(built(ALLOCATES)))
    renamed = '#define GET(n) ma##n(8)\nextern "C" __global__ void a(long* x, int n) { x[0] = *(long*)GET(lloc); }'
    assert "calls malloc" in str(cubin.refusal(built(renamed)))
    assert imports(built(SAYS)) == ["__assertfail", "vprintf"]
    assert [cubin.refusal(built(source)) for source in (SAYS, SOURCE, PLAIN)] == [None] * 3


def test_more_variables_than_can_be_looked_at_are_refused(built: Callable[[str], bytes]) -> None:
    large = "__device__ float kept[1 << 25];" + PLAIN.replace("x[0] = n", "x[0] = kept[n]++")
    assert "have 134217728 bytes of device variables, expected at most 67108864" in str(cubin.refusal(built(large)))


@given(st.binary(max_size=300), st.data())
@settings(max_examples=200, deadline=None)
def test_anything_else_is_refused_or_read(tmp_cubin: bytes, noise: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(tmp_cubin)))
    for raw in (noise, tmp_cubin[:at], tmp_cubin[:at] + noise + tmp_cubin[at + len(noise) :]):
        try:
            areas(raw), imports(raw)
        except ValueError:
            continue


@pytest.fixture(scope="module")
def tmp_cubin(built: Callable[[str], bytes]) -> bytes:
    return built(SOURCE)


def test_idle_blocks_of_the_allocator_are_those_that_nobody_has() -> None:
    blocks = [
        {"size": 512, "state": "active_allocated"},
        {"size": 1024, "state": "inactive"},
        {"size": 2048, "state": "active_pending_free"},
        {"size": 4096, "state": "inactive", "address": 0x9000},
    ]
    assert idle_blocks({"address": 0x1000, "blocks": blocks}) == [(0x1200, 1024), (0x9000, 4096)]


def test_the_handle_of_a_file_is_read_when_it_is_watched(built: Callable[[str], bytes], tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes(built(SOURCE))
    device = Device(built(SOURCE))
    state = DeviceState(lambda address, size: bytes(device.memory[address : address + size]))
    state.watch(1, tmp_path / "a.cubin", device.places.get)
    device.write("counter")
    assert state.changed() == "counter"
