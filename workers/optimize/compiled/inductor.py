"""All that is used of Inductor's private parts: graphs as its last passes are given them, and code for a graph.

Nothing else here imports from `torch._inductor`. Held with the versions of torch that the constraints and the GPU
machines have; what is missing in another one raises where it is used, and does not go by unseen.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import fx
from torch._functorch import config as functorch_config
from torch._guards import detect_fake_mode, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .bounds import take_out_conditions

Compiled = Callable[..., Any]
Attempts = Callable[[Callable[[], Compiled]], Compiled]
Pass = Callable[[fx.Graph], None]
Patches = dict[str, Any]
_BEFORE_PATTERNS = "post_grad_custom_pre_pass"
_EXPLAINED = "Explanation: "
_SAID_OF_GRAPHS, _SAID_OF_NODES = ("_param_name_to_source",), ("_dynamo_source",)
"""Attributes in which Dynamo leaves word for AOTAutograd (`_try_get_metadata_from_dynamo`), beside `meta`."""


def compile_graph(
    graph: fx.GraphModule, inputs: Sequence[Any], patches: Patches, attempts: Attempts | None = None
) -> Compiled:
    """Compile a graph of Dynamo's, or of operators, under patches of Inductor's configuration.

    attempts: is given what compiles the graph of operators from the start each time that it is called, and returns what
    one call of it returned. The graph is traced once for all of them; where AOTAutograd has it in its cache, for none.
    """
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner  # noqa: PLC0415 - seconds, if nothing compiles

    given = patches.get(_BEFORE_PATTERNS)
    is_cached = given is None or given.uuid() is not None
    if is_cached and (hashing := hash_triton()) is not None:
        hashing.join()
    if attempts is None:
        return cast("Compiled", compile_fx(graph, inputs, config_patches=patches or None))

    def compile_operators(given: fx.GraphModule, values: Sequence[Any], **facts: Any) -> Any:
        return attempts(lambda: cast("Compiled", compile_fx_inner(_anew(given), list(values), **facts)))

    return cast("Compiled", compile_fx(graph, inputs, inner_compile=compile_operators, config_patches=patches or None))


@functools.cache
def hash_triton() -> threading.Thread | None:
    """Begin to hash Triton's files in a thread, once a process; None where Triton is not there.

    The keys of PyTorch's caches have that hash, of half a gigabyte: it is computed outside of Python, so beside Dynamo,
    where this is called before. Triton keeps it for the process.
    """
    try:
        from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key  # noqa: PLC0415 - as above
    except ImportError:
        return None
    if not HAS_TRITON:
        return None

    def compute() -> None:
        with contextlib.suppress(Exception):  # raised again, or handled, where Inductor asks for it
            triton_key()

    thread = threading.Thread(target=compute, name="warpsmith-hash-triton", daemon=True)
    thread.start()
    return thread


def _anew(graph: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of operators anew, with what AOTAutograd says of it and of its results: passes change both."""
    fresh = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    fresh.meta = dict(graph.meta)
    return fresh


def uncaptured(compiled: Compiled) -> str:
    """Return why Inductor runs what an attempt returned outside of CUDA graphs; empty where it says nothing."""
    return str(getattr(compiled, "disabled_cudagraphs_reason", None) or "")


def phase(name: str) -> AbstractContextManager[Any]:
    """Note the seconds inside among PyTorch's own times of compiling, as `warpsmith.NAME`."""
    from torch._dynamo.utils import dynamo_timed  # noqa: PLC0415 - as above

    return cast("AbstractContextManager[Any]", dynamo_timed(f"warpsmith.{name}"))


def break_of(graph: fx.GraphModule) -> str:
    """Return why Dynamo ended a graph of its before the function's end, and where; empty where it did not."""
    told = getattr(graph, "compile_subgraph_reason", None)
    if told is None or not told.graph_break:
        return ""
    lines = [line.strip() for line in str(told.reason).splitlines() if line.strip()]
    explained = [line.removeprefix(_EXPLAINED) for line in lines if line.startswith(_EXPLAINED)]
    where = [f" ({os.path.basename(frame.filename)}:{frame.lineno})" for frame in told.user_stack[-1:]]
    return ": ".join([*lines[:1], *explained[:1]]) + "".join(where)


def patches_of(mode: str | None, options: dict[str, Any] | None) -> Patches:
    """Return what a mode and options change of Inductor's configuration. Raises RuntimeError for an unknown mode."""
    return {**(torch._inductor.list_mode_options(mode) if mode else {}), **(options or {})}


def captures(device: torch.device, patches: Patches) -> bool:
    """Return whether calls on a device are to become part of CUDA graphs of Inductor's."""
    return device.type == "cuda" and bool(patches.get("triton.cudagraphs"))


def with_pass(patches: Patches, run: Pass, identity: str | None) -> Patches:
    """Add a pass over the graph of operators: decomposed and functional, before Inductor's own patterns look at it.

    What it is given has no conditions that no value can change (`bounds`).

    identity: all that decides what the pass does, for Inductor's cache of compiled code; None: nothing is cached.
    """
    return patches | {_BEFORE_PATTERNS: _pass(run, identity)}


@functools.cache
def _pass_type() -> type[Any]:
    from torch._inductor.custom_graph_pass import CustomGraphPass  # noqa: PLC0415 - as above

    class Given(CustomGraphPass):
        """A function and its identity as Inductor takes them."""

        def __init__(self, run: Pass, identity: str | None) -> None:
            self._run, self._identity = run, identity

        def __call__(self, graph: fx.Graph) -> None:
            take_out_conditions(graph)
            self._run(graph)

        def uuid(self) -> Any:
            return self._identity

    return Given


def _pass(run: Pass, identity: str | None) -> Any:
    return _pass_type()(run, identity)


def sort(graph: fx.Graph) -> None:
    """Put the nodes of a graph of operators into an order in which each comes after what it needs."""
    from torch._inductor.pattern_matcher import stable_topological_sort  # noqa: PLC0415 - as above

    stable_topological_sort(graph)


def keep_as_calls(operators: Iterable[Any]) -> None:
    """Let Inductor call these operators on contiguous tensors, as it does with one that it meets without a lowering.

    Told before, for torch 2.11 describes an operator that it meets with all that it hangs on, each input in full: in
    the last of a model's layers that takes minutes.
    """
    from torch._inductor import lowering  # noqa: PLC0415 - as above

    let_fall_back: Callable[..., None] = lowering.make_fallback
    for operator in operators:
        if operator not in lowering.lowerings:
            let_fall_back(operator, layout_constraint=lowering.require_contiguous, warn=False)
            if operator._schema.is_mutable:
                lowering.lowerings[operator] = _reads_first(operator, lowering.lowerings[operator])


def keep(node: fx.Node) -> None:
    """Let Inductor write a pointwise value to memory, rather than compute it again where it is read."""
    from torch._inductor.inductor_prims import force_stride_order  # noqa: PLC0415 - as above

    graph = node.graph
    with graph.inserting_after(node):
        kept = graph.call_function(force_stride_order, (node, list(node.meta["val"].stride())))
    kept.meta = dict(node.meta)
    node.replace_all_uses_with(kept, delete_user_cb=lambda user: user is not kept)


def _reads_first(operator: torch._ops.OpOverload, lower: Compiled) -> Compiled:
    """Return a lowering that computes what reads the arguments that are written to before the operator writes.

    Inductor 2.13 does so behind a call that is in place: cosines of a position were those of the next one.
    """
    from torch._inductor.virtualized import V  # noqa: PLC0415 - as above

    arguments = operator._schema.arguments
    written = [at for at, argument in enumerate(arguments) if argument.alias_info and argument.alias_info.is_write]

    def lowered(*given: Any, **named: Any) -> Any:
        for at in written:
            target = given[at] if at < len(given) else named[arguments[at].name]
            target.realize()
            V.graph.mark_buffer_mutated(target.get_name())
        return lower(*given, **named)

    return lowered


def functional(operator: torch._ops.OpOverload, arguments: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """Return the call of an operator that writes to arguments as a graph of operators has it: its target, which takes
    the operator, and its keywords. It returns the operator's results, then what is left in each of those arguments.

    Inductor lets the operator write to the arguments themselves where nothing reads them as they were.
    """
    names = [argument.name for argument in operator._schema.arguments]
    return torch.ops.higher_order.auto_functionalized, dict(zip(names, arguments, strict=True))


def mode_of(values: Any) -> AbstractContextManager[Any]:
    """Return the mode in which the tensors without memory among these values are computed with."""
    mode = detect_fake_mode(pytree.tree_leaves(values))
    return contextlib.nullcontext() if mode is None else cast("AbstractContextManager[Any]", mode)


@contextmanager
def without_memory() -> Iterator[None]:
    """Inside, tensors that are made have no memory; nothing of a compilation that is under way is seen."""
    with outside(), FakeTensorMode():
        yield


def configuration() -> str:
    """Return what decides how Inductor decomposes and rewrites a graph, without passes that are added to its own.

    What it says of CUDA graphs, and of compilers of this machine, is left out: it changes no graph of operators, and a
    reference that was traced in one mode, or on another machine, is that of others.
    """
    from torch._inductor import config  # noqa: PLC0415 - as above

    if (known := _steady.get()) is not None:
        return known
    facts = sorted(config.save_config_portable().items(), key=lambda each: each[0])
    return repr([each for each in facts if not each[0].startswith(_OF_CODE)])


_OF_CODE = ("triton.cudagraph", "aot_inductor.", "cpp.cxx", "cuda.", "cutlass.", "halide.", "rocm.", "xpu.")


_steady: ContextVar[str | None] = ContextVar("configuration", default=None)


@contextmanager
def steady() -> Iterator[None]:
    """Inside, the configuration stays as it is, and is read once: that takes some hundredths of a second."""
    token = _steady.set(configuration())
    try:
        yield
    finally:
        _steady.reset(token)


def hint(size: Any) -> int | None:
    """Return a size as a number: one that varies as it was in the call that is compiled; None where nothing says."""
    if isinstance(size, torch.SymInt):
        known = size.node.hint
        return None if known is None else int(known)
    return int(size)


def sized(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor without memory with its sizes and strides as numbers, itself where they are numbers.

    None where one is not known.
    """
    if all(type(size) is int for size in (*tensor.shape, *tensor.stride())):
        return tensor
    shape, stride = [hint(size) for size in tensor.shape], [hint(step) for step in tensor.stride()]
    if None in shape or None in stride:
        return None
    with mode_of(tensor):
        return torch.empty_strided(
            cast("list[int]", shape), cast("list[int]", stride), dtype=tensor.dtype, device=tensor.device
        )


def register_fake(operator: str, function: Callable[..., Any], library: Any) -> None:
    """Register what an operator of a library returns for tensors without memory."""
    # PyTorch asks `inspect` for the module of this line, and `inspect` looks among all modules of the process (15 ms),
    # unless it has the file in this table.
    inspect.modulesbyfile[os.path.normcase(os.path.abspath(__file__))] = __name__
    torch.library.register_fake(operator, function, lib=library)


class _Seen(Exception):  # noqa: N818 - named for what happens
    """The graph was seen, and need not be compiled."""


def operators(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> fx.Graph:
    """Return a function's graph as the pass of `with_pass` is given it: its inputs are the tensors, in their order.

    It is traced without being computed: the tensors may hold anything, and what an index of theirs would be out of
    range for is not asked.
    """
    with outside():
        traced = make_fx(function, pre_dispatch=True, tracing_mode="fake")(*tensors)
        return operators_of(traced, tensors, {"shape_padding": False}).graph  # of odd samples: the model's are not


def operators_of(graph: fx.GraphModule, inputs: Sequence[Any], patches: Patches | None = None) -> fx.GraphModule:
    """Return a graph of Dynamo's as the pass of `with_pass` is given it; its inputs are the same, in their order."""
    seen: list[fx.GraphModule] = []

    def see(given: fx.Graph) -> None:
        seen.append(fx.GraphModule(given.owning_module or torch.nn.Module(), _copied(given)))
        raise _Seen

    try:
        compile_graph(graph, inputs, with_pass(patches or {}, see, None))
    except Exception:  # Inductor wraps what a pass raises
        if not seen:
            raise
    return seen[0]


def copied(graph: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of Dynamo's anew, with what Dynamo says of it beside its nodes.

    Without that, AOTAutograd takes weights and caches for inputs that move, and Inductor makes no CUDA graph of it.
    """
    fresh = fx.GraphModule(graph, _copied(graph.graph))
    fresh.meta = dict(graph.meta)
    for name in _SAID_OF_GRAPHS:
        if hasattr(graph, name):
            setattr(fresh, name, getattr(graph, name))
    for old, new in zip(graph.graph.nodes, fresh.graph.nodes, strict=True):
        for name in _SAID_OF_NODES:
            if hasattr(old, name):
                setattr(new, name, getattr(old, name))
    return fresh


def _copied(graph: fx.Graph) -> fx.Graph:
    fresh = fx.Graph()
    fresh.output(fresh.graph_copy(graph, {}))
    return fresh


@contextmanager
def unheard() -> Iterator[None]:
    """Inside, tensors without memory do not log what fails on them: it is tried whether something does."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def outside() -> Iterator[None]:
    """Inside, tensors are real and nothing of a compilation that is under way is seen: it compiles beside it.

    But for the configuration that it is compiled under, without a pass of `with_pass`.
    """
    from torch._inductor import config  # noqa: PLC0415 - as above

    with (
        config.patch({_BEFORE_PATTERNS: None}),
        tracing(None),
        _disable_current_modes(),
        torch._C._DisablePythonDispatcher(),
        torch.no_grad(),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield
