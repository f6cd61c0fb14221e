"""Note the Triton kernels that a candidate launches under Triton's interpreter.

The caller imports Triton, in the process that runs the candidate: names and types are a report, and decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypedDict

from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction

from warpsmith.workers.judge.runner.interpreter.bfloat16_products import bfloat16_products
from warpsmith.workers.judge.runner.interpreter.bfloat16_rounding import bfloat16_rounding
from warpsmith.workers.judge.runner.interpreter.idle_assembly import idle_assembly


class Launch(TypedDict):
    """One launch.

    arguments: each run-time argument's dtype, "int" or "float"; constexprs: each compile-time argument's value as text;
    options: num_warps and its like.
    """

    kernel: str
    arguments: dict[str, str]
    constexprs: dict[str, str]
    options: dict[str, Any]


def run_like_a_device(until: ExitStack) -> None:
    """Take an autotuned kernel's first configuration, multiply bfloat16, round to it, idle, till the stack closes.

    Without a GPU there is nothing on which to compare configurations.
    """
    until.enter_context(interpreted_launches(limit=0))
    until.enter_context(bfloat16_products())
    until.enter_context(bfloat16_rounding())
    until.enter_context(idle_assembly())


@contextmanager
def interpreted_launches(limit: int = 1000) -> Iterator[list[Launch]]:
    """Yield the first `limit` launches of interpreted kernels inside the block, in order.

    Inside it, an autotuned kernel takes its first configuration: there is no GPU on which to compare them.
    """
    seen: list[Launch] = []
    run: Callable[..., Any] = InterpretedFunction.run
    tune: Callable[..., Any] = Autotuner.run

    def noted(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if len(seen) < limit:
            seen.append(described(self.fn, self.arg_names, args, kwargs))
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    InterpretedFunction.run = noted
    Autotuner.run = first_configuration
    try:
        yield seen
    finally:
        InterpretedFunction.run = run
        Autotuner.run = tune


def first_configuration(tuner: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace `Autotuner.run`: launch with the first configuration, untimed."""
    return tuner.fn.run(*args, **kwargs, **tuner.configs[0].all_kwargs())


def described(function: Any, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    """Return the launch of `function`, a kernel's own Python function, with these arguments."""
    given = {**dict(zip(names, args, strict=False)), **{name: value for name, value in kwargs.items() if name in names}}
    annotations = {name: str(kind) for name, kind in function.__annotations__.items()}
    constant = {name for name in names if "constexpr" in annotations.get(name, "")}
    return {
        "kernel": function.__name__,
        "arguments": {name: kind_of(value) for name, value in given.items() if name not in constant},
        "constexprs": {name: str(value)[:80] for name, value in given.items() if name in constant},
        "options": {name: value for name, value in kwargs.items() if name not in names and isinstance(value, int)},
    }


def kind_of(value: Any) -> str:
    """Return a tensor's dtype, or the name of a number's type."""
    dtype = getattr(value, "dtype", None)
    return str(dtype).removeprefix("torch.") if dtype is not None else type(value).__name__
