"""Make a launch plan of a kernel's `run`: what it launches for one signature, to be replayed without its Python.

The call is recorded twice, on copies of its arguments that lie elsewhere. Where both recordings agree, and a replay of
them gives the same bits as `run` itself, the extension (`plan_build`) has a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from . import map_encoding, plan_build, run_recording

LARGEST_RECORDED = {"cpu": 16 << 20, "cuda": 256 << 20}
"""Bytes of arguments and outputs up to which a call is recorded, since that copies them: the kernel of a larger one
takes far longer than the host.
"""
ALIGNED = 64
"""Bytes that the address of each tensor of a replayed call is a multiple of, as those of a recording are: Triton makes
another kernel for lesser ones, and so may `run`.
"""
GRAPHS_FROM = 4
"""The call of a plan of several launches on a stream from which they are one CUDA graph, where those are asked for: to
build one takes longer than a call. The first calls of a plan are those that compare it.
"""

Copies = Callable[[], tuple[list[Any], list[torch.Tensor]]]
"""Makes copies of a call's arguments, and outputs for it."""


def new_table(
    block: ContextVar[Any],
    tensors: Iterable[int],
    alignments: Mapping[int, int],
    mutated: Sequence[int],
    kernels: int,
    *,
    graphs: bool = False,
) -> Any:
    """Return a table for the plans of an op with so many kernels.

    block: while it holds something, no plan serves; tensors: positions of the arguments that are some; alignments: of
    their addresses, where more is asked than ALIGNED; mutated: positions of the arguments that are written to; graphs:
    whether several launches are to be one CUDA graph.

    Raises:
        RuntimeError: PyTorch has no DLPack functions for C. Others: as `plan_build.extension`.
    """
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if exchange is None:
        raise RuntimeError(f"PyTorch {torch.__version__} has no DLPack exchange functions for C")
    asked = dict.fromkeys(tensors, ALIGNED) | {place: max(size, ALIGNED) for place, size in alignments.items()}
    quiet = (
        (torch._C._len_torch_dispatch_stack, 0),
        (torch._C._len_torch_function_stack, 0),
        (torch._C._functorch.maybe_current_level, None),
        (torch._C._get_tracing_state, None),
        (torch.autograd._profiler_enabled, False),  # type: ignore[attr-defined]
    )
    return plan_build.extension().table(
        exchange,
        torch.Tensor,
        torch.nn.Parameter,
        block,
        torch.is_grad_enabled,
        torch.Tensor.is_neg,
        torch.autograd.graph.increment_version,
        getattr(torch._C, "_cuda_getCurrentRawStream", None),
        quiet,
        tuple(asked.items()),
        tuple(mutated),
        kernels,
        GRAPHS_FROM if graphs else 0,
    )


def oversized(tensors: Iterable[Any], device: torch.device) -> str | None:
    """Return why a call with these arguments and outputs is not recorded; None where it may be."""
    most = LARGEST_RECORDED[device.type]
    if sum(each.nbytes for each in tensors if isinstance(each, torch.Tensor)) > most:
        return f"its tensors have more than {most >> 20} MiB, and the kernel takes far longer than the host"
    return None


def make(
    table: Any,
    module: ModuleType,
    kernel: int,
    arguments: tuple[Any, ...],
    copies: Copies,
    device: torch.device,
    mutated: Sequence[int],
) -> tuple[Any, int] | str:
    """Return the plan of a call of the module's `run` and its launches; or why there is none.

    kernel: its number in the table.
    """
    driver = map_encoding.DRIVER
    if device.type == "cuda" and not plan_build.extension().open_driver(driver):
        return f"CUDA's driver {driver} has no cuLaunchKernelEx"
    if "storage_offset" in _names(vars(module).values()):
        return "the kernel's Python reads storage_offset, which is no part of a signature"
    calls = [copies() for _ in range(3)]  # all held: no address comes twice
    first, second = (run_recording.record(module.run, *call) for call in calls[:2])
    if isinstance(first, str) or isinstance(second, str):
        return first if isinstance(first, str) else str(second)
    if not first.same_as(second):
        return "two calls with the same shapes and numbers made different launches"
    outputs = calls[0][1]
    slots = [_slot(o.shape, None, o.dtype, o.device) for o in outputs]
    slots += [_slot(s.shape, s.strides, s.dtype, s.device, zeros=s.zeros) for s in first.scratch]
    index = device.index if device.type == "cuda" else -1
    plan = table.plan(arguments, kernel, index, len(outputs), tuple(slots), first.steps, module)
    launches = sum(step[0] >= run_recording.CALL for step in first.steps)
    graphs_from = table.graphs()[0] if launches > 1 and device.type == "cuda" else 0
    for _ in range(graphs_from):  # the last of these builds a graph, and the replay after them sets it new addresses
        if (why := _replayed(table, plan, calls, mutated)) is not None:
            return why
        calls[2] = copies()  # while the last are held: other addresses
    return _replayed(table, plan, calls, mutated) or (plan, launches)


def _names(values: Iterable[Any]) -> set[str]:
    """The names of attributes and globals that these functions use, and the functions inside them."""
    found: set[str] = set()
    codes = [value.__code__ for value in values if isinstance(value, FunctionType)]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found


def _replayed(
    table: Any, plan: Any, calls: list[tuple[list[Any], list[torch.Tensor]]], mutated: Sequence[int]
) -> str | None:
    """Do the last of these calls by the plan, and return why it is none for them."""
    arguments, outputs = calls[2]
    for right, output in zip(calls[1][1], outputs, strict=True):
        _bits(output).copy_(_bits(right).bitwise_not())  # memory that was freed may hold the right result already
    if not table.run(plan, tuple(arguments), tuple(outputs)):
        return "the plan does not fit the call that it was made of"
    return _differs(calls, mutated)


def _differs(calls: list[tuple[list[Any], list[torch.Tensor]]], mutated: Sequence[int]) -> str | None:
    """How a replay, the last of these calls, and `run`, the others, do not agree to the bit."""
    written = [[*outputs, *(arguments[position] for position in mutated)] for arguments, outputs in calls]
    bits = [[_bits(each) for each in one] for one in written]

    def same(one: int, other: int) -> bool:
        return all(torch.equal(a, b) for a, b in zip(bits[one], bits[other], strict=True))

    if not same(0, 1):
        return "two calls of run with the same values differ in their bits, so no replay can be compared with them"
    return None if same(1, 2) else "a replay gives other bits than run: run does something that was not seen"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor's bytes, in its own memory where it is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _slot(shape: Any, strides: Any, dtype: torch.dtype, device: torch.device, *, zeros: bool = False) -> Any:
    """What makes an output or scratch memory, and its argument: on a CPU the allocation of Inductor's code, which costs
    the host a third of `empty_like`, where PyTorch has it. On a GPU that goes by PyTorch's current device, which may be
    another than the driver's, by which a plan is chosen.
    """
    like = _without_memory(shape, strides, dtype, device)
    if zeros:
        return torch.zeros_like, like
    allocate = getattr(getattr(torch._C._dynamo, "guards", None), "_empty_strided_cpu", None)
    if allocate is None or device.type != "cpu":
        return torch.empty_like, like
    return allocate, (tuple(like.shape), like.stride(), dtype)


def _without_memory(shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor to allocate others like: `empty_like` of one with the right strides is the least that there is to do."""
    if strides is None:
        like = torch.empty(shape, dtype=dtype, device=device)
    else:
        like = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    like.untyped_storage().resize_(0)
    return like
