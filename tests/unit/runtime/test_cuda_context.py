"""The context of a thread that has made no call of CUDA's runtime, with a double for the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from warpsmith.kernels_db.runtime import cuda_build, cuda_context


class Driver:
    """CUDA's driver as far as contexts go: the primary context of device n has the address 1000 + n."""

    def __init__(self) -> None:
        self.current: dict[int, int] = {}  # by thread
        self.asked: list[str] = []
        self.status = 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802 - the driver's name
        self.asked.append("current")
        context._obj.value = self.current.get(threading.get_ident())
        return self.status

    def cuDeviceGet(self, device: Any, ordinal: ctypes.c_int) -> int:  # noqa: N802
        device._obj.value = ordinal.value
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:  # noqa: N802
        self.asked.append(f"retain {device.value}")
        context._obj.value = 1000 + device.value
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:  # noqa: N802
        self.current[threading.get_ident()] = context.value or 0
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr(cuda_context, "_driver", lambda: made)
    monkeypatch.setattr(cuda_context, "_thread", threading.local())
    cuda_context._primary.cache_clear()
    yield made
    cuda_context._primary.cache_clear()


def in_thread(device: int, driver: Driver, *, before: int | None = None) -> int | None:
    """The context of a new thread behind two calls for a device."""

    def run() -> int | None:
        me = threading.get_ident()
        driver.current.pop(me, None)
        if before is not None:
            driver.current[me] = before
        cuda_context.bind(device)
        cuda_context.bind(device)
        return driver.current.get(me)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def test_each_new_thread_gets_the_context_of_its_device_which_is_kept_once(driver: Driver) -> None:
    assert [in_thread(device, driver) for device in (1, 0, 1)] == [1001, 1000, 1001]
    assert driver.asked == ["current", "retain 1", "current", "retain 0", "current"], "once for each thread"


def test_a_context_that_is_there_stays(driver: Driver) -> None:
    assert in_thread(1, driver, before=7) == 7
    assert driver.asked == ["current"]


def test_a_driver_that_refuses_is_asked_again(driver: Driver) -> None:
    driver.status = 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cuCtxGetCurrent: found status 3, expected 0"):
            cuda_context.bind(0)
    driver.status = 0
    cuda_context.bind(0)
    assert driver.current[threading.get_ident()] == 1000


def test_cuda_core_is_imported_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    alone: list[bool] = []

    def imported(name: str) -> str:
        alone.append(cuda_build._importing.locked())
        return name

    def run() -> Any:
        both.wait(timeout=10)
        return cuda_build.core.__wrapped__()

    monkeypatch.setattr("importlib.import_module", imported)
    with ThreadPoolExecutor(2) as pool:
        assert [each.result() for each in [pool.submit(run) for _ in range(2)]] == ["cuda.core"] * 2
    assert alone == [True, True]
