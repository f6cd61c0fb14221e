"""What the CUDA driver says of a device and of a loaded kernel, and how a launch is refused."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import LaunchError
from .limits import Launch, Limits, Usage, of_architecture, problem, threads_by_registers


def opt_in(kernel: Any, device: int, attribute: str, value: int, asked: tuple[str, Launch]) -> None:
    """Set an attribute of the kernel without which the device refuses the launch. Raises LaunchError."""
    driver = importlib.import_module("cuda.bindings.driver")
    chosen = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
    (status,) = driver.cuKernelSetAttribute(chosen, value, kernel.handle, device)
    if int(status) != 0:
        raise refusal(*asked, kernel, device, status.name)


def refusal(name: str, asked: Launch, kernel: Any, device: int, said: object) -> LaunchError:
    """The error for a launch that the device refused, with the limit that it passes where one does."""
    try:
        limit = problem(asked, _usage(kernel, device), _limits(device))
    except (AttributeError, RuntimeError) as error:  # the device answers nothing any more
        limit = f"its limits cannot be read ({error})"
    shape = f"grid {asked.grid}, block {asked.block}"
    shape += f", cluster {asked.cluster}" if asked.cluster else ""
    shape += f", shared_bytes {asked.shared_bytes}" if asked.shared_bytes else ""
    return LaunchError(f"launch of {name!r} ({shape}): {limit or 'the device refused it'} [{said}]")


def _usage(kernel: Any, device: int) -> Usage:
    """What the loaded kernel uses, by the driver."""
    driver = importlib.import_module("cuda.bindings.driver")

    def attribute(name: str) -> int:
        chosen = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        status, value = driver.cuKernelGetAttribute(chosen, kernel.handle, device)
        if int(status) != 0:
            raise RuntimeError(status.name)
        return int(value)

    registers, most = attribute("NUM_REGS"), attribute("MAX_THREADS_PER_BLOCK")
    bounded = most < threads_by_registers(registers)  # else it is the registers that bound the threads
    return Usage(registers, attribute("SHARED_SIZE_BYTES"), most if bounded else None)


def _limits(device: int) -> Limits:
    """What the device has, by the driver."""
    driver = importlib.import_module("cuda.bindings.driver")

    def attribute(name: str) -> int:
        chosen = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        status, value = driver.cuDeviceGetAttribute(chosen, device)
        if int(status) != 0:
            raise RuntimeError(status.name)
        return int(value)

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    known = of_architecture(10 * major + minor)
    return Limits(
        f"sm_{major}{minor}",
        attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        attribute("MULTIPROCESSOR_COUNT"),
        known.cluster if known else 16,
        shared_unit=known.shared_unit if known else 128,
    )
