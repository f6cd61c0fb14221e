"""The PyTorch op: a kernel inside its envelope, PyTorch everywhere else.

Dispatch happens inside the op, so `torch.compile` sees one op whatever the shapes are. Nothing here patches PyTorch:
removing the package removes the op.
"""

from __future__ import annotations

import inspect
import os
from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.autograd import forward_ad

from . import _compare, _control, _guard, _load, _plans, _shadow, _spec
from ._runtime import cuda_context
from ._runtime.errors import CacheError

_ONE_CALL = (TypeError, OverflowError, ValueError)
"""What a launch raises for an argument of this call; whatever else it raises would come again."""


def admitted_call(arguments: tuple[Any, ...]) -> _guard.Admitted | str:
    """Which kernel is to serve and what it is to do, otherwise why none can."""
    out = _control.out()
    if out and len(out) == len(_control.NAMES):
        return _unavailable(_load.KERNELS)
    found = _guard.admit(arguments)
    if isinstance(found, str):
        return found
    for admitted in found:
        if admitted.kernel.name not in out and admitted.kernel.ready():
            return admitted
    return _unavailable([admitted.kernel for admitted in found])


def _unavailable(kernels: list[_load.Kernel]) -> str:
    """Why none of these kernels, which are out or did not load, serves."""
    reasons = {kernel.name: _unable(kernel) or kernel.described() for kernel in kernels}
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _unable(kernel: _load.Kernel) -> str | None:
    """Why this kernel serves no call at all, as far as that is known."""
    return _control.refusal(kernel.name) if kernel.name in _control.out() else kernel.failure


def _run(*arguments: Any) -> Any:
    replayed = _plans.inside(arguments)
    if replayed is not NotImplemented:
        return replayed
    admitted = admitted_call(arguments)
    if isinstance(admitted, str):
        return _fallback(arguments, admitted)
    if admitted.copies:
        arguments = _guard.aligned(arguments)
    kernel = admitted.kernel
    outputs = admitted.allocate()
    shadow = _shadow.begin(arguments, outputs, admitted) if _control.due(kernel.name) else None
    try:
        _launch(admitted, arguments, outputs)
    except Exception as error:
        which = "the kernel" if len(_load.KERNELS) == 1 else f"the kernel {kernel.name}"
        reason = f"{which} raised {type(error).__name__}: {error}"
        if not isinstance(error, _ONE_CALL):
            _control.trip(kernel.name, reason)
        if _spec.MUTATED:
            raise  # it may have written part of what it changes in place
        return _fallback(arguments, reason)
    _control.hit(kernel.name)
    if shadow is not None:
        outputs = shadow.settle(outputs)
    if kernel.name not in _control.out():
        _plans.after(admitted, arguments)
    if not outputs:
        return None
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _launch(admitted: _guard.Admitted, arguments: tuple[Any, ...], outputs: list[torch.Tensor]) -> None:
    """Run the kernel, which is loaded, on the device of its tensors, which need not be the current one."""
    if admitted.one_device or admitted.device.index == torch.cuda.current_device():
        _start(admitted, arguments, outputs)
        return
    with torch.cuda.device(admitted.device):
        _start(admitted, arguments, outputs)


def _start(admitted: _guard.Admitted, arguments: tuple[Any, ...], outputs: list[torch.Tensor]) -> None:
    if admitted.device.type == "cuda":
        cuda_context.bind(admitted.device.index)
    if _plans.run(admitted, arguments, outputs):
        return
    kernel = admitted.kernel
    try:
        kernel.module.run(*arguments, *outputs)
    except CacheError as error:  # CUDA is compiled at the first launch
        _load.build_elsewhere(error)
        kernel.module.run(*arguments, *outputs)


def _fallback(arguments: tuple[Any, ...], reason: str) -> Any:
    _control.fallback(reason)
    return _own(_compare.plain(arguments), arguments)


def _own(result: Any, arguments: tuple[Any, ...]) -> Any:
    """`result` as the kernel's outputs are: contiguous, and in storage of their own."""
    if result is None:
        return None
    taken = {_storage(a) for a in arguments if isinstance(a, torch.Tensor)} - {None}
    owned = []
    for output in result if isinstance(result, tuple | list) else (result,):
        if output.layout is not torch.strided:
            owned.append(output.clone())
            continue
        mine = output.contiguous()
        if _storage(mine) in taken:
            mine = mine.clone(memory_format=torch.contiguous_format)
        taken |= {_storage(mine)} - {None}
        owned.append(mine)
    return owned[0] if len(owned) == 1 else tuple(owned)


def _storage(tensor: torch.Tensor) -> int | None:
    """Where a tensor's memory starts; None for one that has none of its own."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and tensor.numel() else None


def _fake(*arguments: Any) -> Any:
    """Shapes and dtypes without data, for tracing: PyTorch's own, made contiguous as the kernel's outputs are."""
    if not _spec.OUTPUTS:
        return None
    call = _call_of(arguments)
    made = _FAKES.get(call)
    if made is None:
        made, kept = _traced(arguments)
        if call is not None and kept:
            if len(_FAKES) >= MOST_FAKES:
                _FAKES.clear()
            _FAKES[call] = made
    given = next(a for a in arguments if isinstance(a, torch.Tensor))
    fakes = tuple(given.new_empty(shape, dtype=dtype, device=device) for shape, dtype, device in made)
    return fakes[0] if len(fakes) == 1 else fakes


_Outputs = list[tuple[tuple[Any, ...], torch.dtype, torch.device]]
"""Shape, dtype and device of each output of a traced call."""


def _traced(arguments: tuple[Any, ...]) -> tuple[_Outputs, bool]:
    """The outputs of the reference, and whether they are the same for every such call. Where the values of the inputs
    decide what it does, tracing cannot follow: the outputs are those that the spec declares.
    """
    from torch.fx.experimental import symbolic_shapes  # which costs seconds: it is there where PyTorch traces sizes

    untraceable = (
        DataDependentOutputException,
        DynamicOutputShapeException,
        symbolic_shapes.GuardOnDataDependentSymNode,
    )
    shapes = next((a.fake_mode.shape_env for a in arguments if isinstance(a, FakeTensor)), None)
    try:
        with nullcontext() if shapes is None else shapes.ignore_fresh_unbacked_symbols():
            outputs = _compare.outputs_of(_compare.plain(arguments))
    except untraceable:
        declared = _declared(arguments)
        if declared is None:
            raise
        return declared, True
    if any(symbolic_shapes.free_unbacked_symbols(o.shape) for o in outputs):
        declared = _declared(arguments)
        if declared is not None:
            return declared, True
    return [(o.shape, o.dtype, o.device) for o in outputs], all(o.layout is torch.strided for o in outputs)


def _declared(arguments: tuple[Any, ...]) -> _Outputs | None:
    """The outputs of a call as the spec declares them; None for one of other shapes or dtypes, of which it says
    nothing.
    """
    given = [a for a, each in zip(arguments, _spec.PARAMETERS, strict=True) if each["rank"] is not None]
    if not all(isinstance(a, torch.Tensor) for a in given):
        return None
    dtypes = [a.dtype for a in given]
    outputs = next((kernel.outputs for kernel in _load.KERNELS if _dtypes(kernel) == dtypes), None)
    axes = _spec.bind_axes(*arguments)
    if outputs is None or isinstance(axes, str):
        return None
    shapes = _spec.output_shapes(axes)
    return [(shape, dtype, given[0].device) for shape, dtype in zip(shapes, outputs, strict=True)]


def _dtypes(kernel: _load.Kernel) -> list[torch.dtype]:
    """Those of the tensors among its parameters."""
    return [dtype for dtype, each in zip(kernel.dtypes, _spec.PARAMETERS, strict=True) if each["rank"] is not None]


_FAKES: dict[Any, _Outputs] = {}
"""The outputs of calls that were traced: a model has the op in each of its layers, and a compiler asks each time."""

MOST_FAKES = 256
"""Calls that are remembered at most: beyond, all are forgotten, or a process that traces ever new shapes would grow."""


def _call_of(arguments: tuple[Any, ...]) -> Any:
    """All that decides the shapes of a call's outputs; None where a size varies, or a tensor is of another kind."""
    facts: list[Any] = [torch.get_default_dtype()]
    for argument in arguments:
        if not isinstance(argument, torch.Tensor):
            facts.append((type(argument), argument))
            continue
        if argument.layout is not torch.strided:
            return None
        sizes = (*argument.shape, *argument.stride())
        if not all(type(size) is int for size in sizes):
            return None
        facts.append((argument.dim(), sizes, argument.dtype, argument.device))
    return tuple(facts)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*(a for a in inputs if isinstance(a, torch.Tensor)))
    ctx.scalars = [None if isinstance(a, torch.Tensor) else a for a in inputs]
    ctx.is_tensor = [isinstance(a, torch.Tensor) for a in inputs]


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    """Gradients by recomputation through the PyTorch reference: no backward kernel was searched for. Where they are to
    be differentiated themselves (`create_graph`), they stay joined to the arguments.
    """
    again = torch.is_grad_enabled()
    saved = iter(ctx.saved_tensors)
    arguments = [
        _leaf(next(saved), needed, again) if tensor else scalar
        for tensor, scalar, needed in zip(ctx.is_tensor, ctx.scalars, ctx.needs_input_grad, strict=True)
    ]
    wanted = [a for a, needed in zip(arguments, ctx.needs_input_grad, strict=True) if needed]
    with torch.enable_grad():
        result = _compare.plain(arguments)
        outputs = result if isinstance(result, tuple | list) else (result,)
        pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None and o.requires_grad]
        found = iter(
            torch.autograd.grad(
                [o for o, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True, create_graph=again
            )
            if pairs
            else [None] * len(wanted)
        )
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


def _leaf(saved: torch.Tensor, needed: bool, again: bool) -> torch.Tensor:
    """An argument to differentiate by: a tensor of its own, because one tensor may be given for two arguments."""
    if again and needed:
        return saved.view_as(saved)
    return saved.detach().requires_grad_(needed)


def _free(name: str) -> str:
    """`name`, or `name_2` and so on where another copy of this package, loaded under another name, has registered it:
    registering it again would change the op of that copy.
    """
    there = getattr(torch.ops, _spec.NAMESPACE)
    found, count = name, 1
    while hasattr(there, found):
        count += 1
        found = f"{name}_{count}"
    return found


# PyTorch asks `inspect` for the module that registers an op, and `inspect` looks among all modules of the process, for
# 15 ms where PyTorch's compiler is loaded and several times an op, unless it has the file in this table.
inspect.modulesbyfile[os.path.normcase(os.path.abspath(__file__))] = __name__
op = torch.library.custom_op(
    f"{_spec.NAMESPACE}::{_free(_spec.NAME)}",
    _run,
    mutates_args=[_spec.PARAMETERS[i]["name"] for i in _spec.MUTATED],
    schema=_spec.SCHEMA,
)
op.register_fake(_fake)
if not _spec.MUTATED:
    op.register_autograd(_backward, setup_context=_setup_context)


def _layout() -> list[Any]:
    """How Inductor is to lay tensors out for the op: otherwise it takes a copy that was made contiguous for one that
    may lie as its source does, and the kernel does not serve.
    """
    if _spec.STRIDED:
        return []
    return [getattr(torch.Tag, "needs_contiguous_strides", torch.Tag.needs_fixed_stride_order)]


def _define_inference() -> Any:
    """The same op for calls without gradients. `custom_op` passes through several layers of Python for the sake of
    gradients and mutation; this one has a single layer, and costs a third.
    """
    name = _free(f"{_spec.NAME}_inference")
    _library.define(f"{name}{_spec.SCHEMA}", tags=(torch.Tag.pt2_compliant_tag, *_layout()))
    _library.impl(name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_spec.NAMESPACE}::{name}", _fake, lib=_library)
    return getattr(getattr(torch.ops, _spec.NAMESPACE), name).default


_library = torch.library.Library(_spec.NAMESPACE, "FRAGMENT")
inference_op = op if _spec.MUTATED else _define_inference()
if not _spec.MUTATED:
    # Who breaks a program down to PyTorch's own operators, as the exporter to ONNX does, finds the reference. Tracing
    # with symbolic sizes would take it as well, unless the table of shape functions has the op.
    torch._decomp.register_decomposition([*{op._opoverload, inference_op}])(
        lambda *arguments: _compare.plain(arguments)
    )
    torch._decomp.register_decomposition([*{op._opoverload, inference_op}], type="meta")(_fake)


def _transformed() -> bool:
    """Whether `torch.func` has no rule for the op in this call: it has one for a batch of calls (`vmap`), and none for
    gradients. While a call is traced nothing says which of them is applied.
    """
    if not torch._C._are_functorch_transforms_active():
        return False
    if torch.compiler.is_compiling():
        return True
    levels = torch._C._functorch.get_interpreter_stack() or ()
    return any(level.key() == torch._C._functorch.TransformType.Grad for level in levels)


def _needs_gradients(arguments: tuple[Any, ...]) -> bool:
    """Whether autograd is to see this call."""
    if not torch.is_grad_enabled():
        return False
    for value in arguments:  # noqa: SIM110 - `any` over a generator costs a microsecond more
        if isinstance(value, torch.Tensor) and value.requires_grad:
            return True
    return False


def call(*arguments: Any) -> Any:
    """Call the op. What it has no derivative or rule for goes to PyTorch: forward-mode derivatives, with gradients
    enabled or not, gradients of an in-place op or of `torch.func`, and an export to ONNX.
    """
    if forward_ad._current_level >= 0:
        return _by_pytorch(arguments, "forward-mode derivatives are taken")
    if not torch.compiler.is_compiling():
        table = _plans.table
        if table is not None:
            try:
                replayed = table.call(*arguments)
            except Exception as error:  # noqa: BLE001 - the Python path meets it again and knows what to do
                _plans.failed(error)
            else:
                if replayed is not NotImplemented:
                    return replayed
        if torch.jit.is_tracing() and torch.onnx.is_in_onnx_export():
            return _by_pytorch(arguments, "it is exported to ONNX")
    if _transformed():
        return _by_pytorch(arguments, "torch.func takes gradients")
    if not _needs_gradients(arguments):
        return inference_op(*arguments)
    if not _spec.MUTATED:
        return op(*arguments)
    return _by_pytorch(arguments, "gradients are needed, and the op works in place")


def _by_pytorch(arguments: tuple[Any, ...], reason: str) -> Any:
    """The reference outside of the op, where PyTorch sees what it does."""
    if not torch.compiler.is_compiling():
        _control.fallback(reason)
    return _compare.plain(arguments)


def explain(*arguments: Any) -> str:
    """Which implementation would serve this call, and why."""
    admitted = admitted_call(arguments)
    if isinstance(admitted, str):
        return f"PyTorch: {admitted}"
    where = "a verified shape" if admitted.axes in admitted.kernel.verified else "between verified shapes"
    where += ", on aligned copies" * admitted.copies
    if len(_load.KERNELS) == 1:
        return f"kernel: inside the envelope ({where})"
    return f"kernel {admitted.kernel.name}: inside the envelope ({where}); {_preferred(admitted, arguments)}"


def _preferred(chosen: _guard.Admitted, arguments: tuple[Any, ...]) -> str:
    """Why this kernel and not another of the package."""
    found = _guard.admit(arguments)
    assert not isinstance(found, str)
    others = [each for each in found if each.kernel is not chosen.kernel]
    if not others:
        return "no other kernel here admits the call"
    said = [_timing(chosen)]
    for other in others:
        unable = _unable(other.kernel)
        said.append(f"{other.kernel.name} {_timing(other)}{f', but {unable}' if unable else ''}")
    return f"fewest octaves from this call to a timed shape, then fastest there for its size: {'; '.join(said)}"


def _timing(admitted: _guard.Admitted) -> str:
    nearest = _guard.nearest_timed(admitted)
    if nearest is None:
        return "no time"
    return f"{nearest.us:.1f} us at {nearest.axes}, within {nearest.octaves} octave{'s' * (nearest.octaves > 1)}"


def status() -> dict[str, Any]:
    """What is loaded, the mode and who set it, calls served by the kernels and by PyTorch (by reason), what shadow mode
    found, with which versions the kernels were verified, launch plans, and the same of each kernel by its name.
    """
    said = _control.status({kernel.name: kernel.described() for kernel in _load.KERNELS})
    return said | {"plans": _plans.described()}
