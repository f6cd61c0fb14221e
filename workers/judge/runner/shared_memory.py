"""Spoils the shared memory of a GPU's multiprocessors, so that what a kernel reads of it unwritten is seen.

Shared memory begins as the last kernel on that multiprocessor left it: often zeros, or the same sums of the call
before, with which a kernel that reads what none of its warps wrote is right by luck. No sanitizer sees such a read
(initcheck looks at global memory). Runs in the runner, before a call that is checked and outside of what is timed.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import torch

PATTERNS = (0xFF, 0x7F, 0xFE)
"""Bytes that shared memory is filled with, one a call at random.

NaN in every float type; 3.4e38 in float32 and bfloat16, which a maximum that drops NaN shows; -1.7e38, for a minimum.
"""

THREADS = 256
BLOCKS_A_MULTIPROCESSOR = 2
"""One lies on each at a time: it takes all that a block may have. The second finds those that an early end left out."""

PTX = """
.version 7.0
.target sm_70
.address_size 64
.extern .shared .align 16 .b8 all[];
.visible .entry fill(.param .u32 word, .param .u32 size)
{
    .reg .pred %end;
    .reg .u32 %word, %size, %at, %step, %base, %to;
    ld.param.u32 %word, [word];
    ld.param.u32 %size, [size];
    mov.u32 %at, %tid.x;
    shl.b32 %at, %at, 2;
    mov.u32 %step, %ntid.x;
    shl.b32 %step, %step, 2;
    mov.u32 %base, all;
next:
    setp.ge.u32 %end, %at, %size;
    @%end bra done;
    add.u32 %to, %base, %at;
    st.volatile.shared.u32 [%to], %word;
    add.u32 %at, %at, %step;
    bra next;
done:
    ret;
}
"""
"""Each block writes a word over all of its dynamic shared memory; the driver translates it for the device at hand."""


def spoil_shared(driver: Any) -> None:
    """Fill the shared memory of the present device and wait.

    `driver`: `cuda.bindings.driver`. Raises RuntimeError where the driver refuses.
    """
    kernel, blocks, size = _kernel(driver, torch.cuda.current_device())
    byte = PATTERNS[os.urandom(1)[0] % len(PATTERNS)]
    given = ((byte * 0x01010101, size), (ctypes.c_uint32, ctypes.c_uint32))
    launch = (blocks, 1, 1, THREADS, 1, 1, size, torch.cuda.current_stream().cuda_stream, given, 0)
    _done(driver.cuLaunchKernel(kernel, *launch), "cuLaunchKernel")
    torch.cuda.synchronize()


@functools.cache
def _kernel(driver: Any, device: int) -> tuple[Any, int, int]:
    """Return the loaded kernel, its blocks, and bytes of shared memory that a block may have."""
    of = driver.CUdevice_attribute
    size = _done(driver.cuDeviceGetAttribute(of.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device), "size")
    count = torch.cuda.get_device_properties(device).multi_processor_count
    module = _done(driver.cuModuleLoadData(PTX.encode()), "cuModuleLoadData")
    kernel = _done(driver.cuModuleGetFunction(module, b"fill"), "cuModuleGetFunction")
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _done(driver.cuFuncSetAttribute(kernel, limit, size), "cuFuncSetAttribute")
    return kernel, BLOCKS_A_MULTIPROCESSOR * count, int(size)


def _done(answer: tuple[Any, ...], call: str) -> Any:
    """Return what a call of the driver gives beside its status."""
    status, *given = answer
    if int(status) != 0:
        raise RuntimeError(f"{call} for shared memory: {status.name}")
    return given[0] if given else None
