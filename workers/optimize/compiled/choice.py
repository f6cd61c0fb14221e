"""Whether a kernel pays in a place: it must be right there, and faster than Inductor's own code for the same region.

Both run on the place's shapes, with values of this process's: on a GPU in CUDA graphs that go through as many copies of
the inputs as its cache does not hold, for a model's weights are not in the cache either when their turn comes.
What was found is kept (`choices`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import torch

from warpsmith.workers.judge.clock.timing import Samples, ratio_with_interval

from . import inductor
from .places import Region, copied, laid_out
from .turns import time_in_turns, wait

TIME_S = 1.0
"""Seconds of timing of a region, at most."""
PAST_CACHE_BYTES = 200 << 20
"""That much is read between two looks at the same weights: 4 times the second-level cache of an H200 (50 MiB)."""
MOST_COPIES = 64
MOST_AT_ONCE = 8
"""Kernels that are loaded at once, each with inputs of its own."""
FEWEST_ROUNDS = 6
"""With fewer, resampling rounds says nothing of a 95 % interval."""
WORTH = 1.01
"""Times as fast as Inductor's code, at least: what Inductor cannot fuse costs its neighbours something."""
CLEAR = 1.1
"""Times as fast as Inductor's code, at the low end of the first rounds' interval: more rounds would not change the
answer. They would not either where its high end is below 1."""
SEEN = 0.9
Values = Literal["normal", "large", "with NaN"]
VALUES: tuple[Values, ...] = get_args(Values)
"""What a kernel is compared on in its place: its verification saw far more, but a package may be anybody's."""
_TOLD = {"normal": "", "with NaN": " (inputs with a NaN)"}
LARGE, HALF_LARGE, HALF = 40.0, 4.0, 65504.0
HALVINGS = 4
"""Of large values on which PyTorch's own results are not finite: down to some that are hardly larger than normal."""
FORMAT = 8
"""Of the files of decisions: another one is another way of measuring."""
T = TypeVar("T")


@dataclass(frozen=True)
class Decision:
    """What was found about a region.

    why: the reason where the kernel cannot serve here or is wrong; slow: the reason where it does not pay; both are
    empty where it does. lasting: another process would find the same. us, inductor_us: of the kernel and of Inductor's
    code; ci95 is of the latter over the former.
    """

    why: str = ""
    slow: str = ""
    lasting: bool = True
    us: float | None = None
    inductor_us: float | None = None
    ci95: tuple[float, float] | None = None

    @property
    def saved_us(self) -> float:
        """What one place saves a call, in microseconds."""
        return 0.0 if self.us is None or self.inductor_us is None else self.inductor_us - self.us


class Without:
    """Inductor's own code for regions, each compiled once: several kernels may be there for one."""

    def __init__(self, patches: inductor.Patches) -> None:
        self._patches = patches | {"triton.cudagraphs": False}
        self._compiled: dict[str, inductor.Compiled] = {}

    def of(self, region: Region, inputs: Sequence[torch.Tensor]) -> inductor.Compiled:
        """Return the code for a region, which writes to its inputs as the model does."""
        graph = region.alone(in_place=True)
        facts = [(tuple(each.shape), each.stride(), each.dtype, each.device) for each in inputs]
        key = f"{graph.code}{facts}"
        if key not in self._compiled:
            self._compiled[key] = inductor.compile_graph(graph, list(inputs), self._patches)
        return self._compiled[key]


def load(regions: Sequence[Region], without: Without) -> None:
    """Call each kernel that may serve once, several at a time, and compile Inductor's code for its place meanwhile.

    Compilers take seconds for some kernels, mostly outside of Python. What fails here fails again where the region is
    looked at, which says why; where memory is short they are loaded there, one by one.
    """
    with inductor.outside(), contextlib.ExitStack() as held:
        for kernel in {region.kernel.name: region.kernel.kernel for region in regions}.values():
            held.enter_context(kernel.unwatched())  # whether it is right is asked below, for each place
        with contextlib.suppress(torch.OutOfMemoryError), ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as several:
            waiting = []
            for region in regions:
                drawn = _drawn(region, "normal")
                if drawn is not None and _may_serve(region, drawn):
                    waiting.append((region, drawn, several.submit(in_thread, region, _load, drawn)))
            for region, drawn, _ in waiting:
                without.of(region, drawn)
            for *_, done in waiting:
                done.exception()  # waits for it
        for device in {region.laid[0].device for region in regions}:
            wait(device)


def _may_serve(region: Region, drawn: Sequence[torch.Tensor]) -> bool:
    """Return whether a kernel's envelope has its place."""
    return region.kernel.kernel.outside(region.flat(drawn), region.numbers) is None


def _load(region: Region, drawn: Sequence[torch.Tensor]) -> None:
    """Call a kernel in its place."""
    if region.kernel.kernel.refusal(region.flat(drawn), region.numbers) is None:
        _called(region, drawn)


def in_thread(region: Region, call: Callable[..., T], *given: Any) -> T:
    """Call with a region in a thread of its own, which has neither the gradients' mode of another nor its device."""
    device = region.laid[0].device
    with torch.no_grad(), torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        return call(region, *given)


def decide(region: Region, without: Without) -> Decision:
    """Compare a kernel with what computes in its place, and time both in turns."""
    try:
        return _decided(region, without)
    except torch.OutOfMemoryError:
        return Decision("there is no memory left to compare and time it here", lasting=False)


def _decided(region: Region, without: Without) -> Decision:
    with inductor.outside():
        if _drawn(region, "normal") is None:
            return Decision("it takes integers, and which ones make sense here is not known")
        with inductor.phase("comparing"):
            unfit = compare(region)
        if unfit is not None:
            return unfit
        inputs = list(_drawn(region, "normal") or ())
        compiled = without.of(region, inputs)
        begun = {at: inputs[at].clone() for at in _written_integers(region)}

        def call(given: Sequence[torch.Tensor]) -> Any:
            _begin(given, begun)
            return _called(region, given)

        def call_inductor(given: Sequence[torch.Tensor]) -> Any:
            _begin(given, begun)
            return compiled(*given)

        with inductor.phase("timing"), region.kernel.kernel.unwatched():  # its time is wanted, not that of its watch
            copies = past_cache(inputs, region.read_bytes, region.another)
            return _timed({"kernel": call, "inductor": call_inductor}, copies)


def compare(region: Region) -> Decision | None:
    """Compare a kernel with what computes in its place; None where it serves there and its results are right."""
    for values in VALUES:
        drawn, told = _large(region) if values == "large" else (_drawn(region, values), _TOLD[values])
        if drawn is not None and (unfit := _unfit(region, drawn, told)) is not None:
            return unfit
    return None


def _written_integers(region: Region) -> list[int]:
    """Return which of a region's inputs, each once, are integers that the op writes to."""
    once = list(dict.fromkeys(region.match.inputs))
    return [once.index(node) for node, _ in region.written if not node.meta["val"].is_floating_point()]


def _begin(given: Sequence[torch.Tensor], begun: dict[int, torch.Tensor]) -> None:
    """Let integers that each call counts on be what they were: a position would leave its cache."""
    for at, value in begun.items():
        given[at].copy_(value)


def _large(region: Region) -> tuple[list[torch.Tensor] | None, str]:
    """Return large values on which PyTorch's own results are finite, and what is said of them.

    Where they are not (an exponential's), others of half the size are drawn, as often as `HALVINGS` says; None where no
    such values are finite.
    """
    for halved in range(HALVINGS + 1):
        drawn = _drawn(region, "large", 0.5**halved)
        if drawn is not None and all(bool(found.isfinite().all()) for found in region.alone()(*drawn)):
            largest = max((float(t.abs().max()) for t in drawn if t.is_floating_point() and t.numel()), default=0.0)
            return drawn, f" (inputs of up to {largest:.0f})"
    return None, ""


def _unfit(region: Region, drawn: Sequence[torch.Tensor], told: str) -> Decision | None:
    """Decide where the kernel would not serve these inputs or its results are wrong; None where all is well.

    told: what is said of the inputs beside a wrong result.
    """
    kernel, numbers, flat = region.kernel.kernel, region.numbers, region.flat(drawn)
    if (why := kernel.outside(flat, numbers)) is not None:
        return Decision(why)
    if (why := kernel.refusal(flat, numbers)) is not None:  # it did not load, or is given up in this process
        return Decision(why, lasting=False)
    with kernel.unwatched():  # a wrong result is told below, and gives up the kernel for this place alone
        given = [laid_out(value, value) for value in drawn]
        results = _called(region, given)
    found = [] if results is None else list(results) if isinstance(results, tuple | list) else [results]
    once = dict(zip(dict.fromkeys(region.match.inputs), given, strict=True))
    shapes = [each.shape for each in (*found, *(once[node] for node, _ in region.written))]
    expected = [found.reshape(shape) for found, shape in zip(region.alone()(*drawn), shapes, strict=True)]
    for at in region.match.uncast:
        expected[at] = expected[at].to(found[at].dtype)
    wrong = kernel.wrong(flat, expected, numbers)
    return None if wrong is None else Decision(f"{wrong}{told}")


def _called(region: Region, given: Sequence[torch.Tensor]) -> Any:
    """Call the kernel as the graph would, on a region's inputs, each once."""
    return region.kernel.call(*region.kernel.kernel.arguments(region.flat(given), region.numbers))


def _drawn(region: Region, values: Values, part: float = 1.0) -> list[torch.Tensor] | None:
    """Return values for a region's inputs, each once, with their shapes, strides and dtypes; None for integers of which
    it is not known which ones make sense (`Region.integers`).

    Floats are standard normal; "large": some tens, of which sums in half precision stay finite, or a `part` of that;
    "with NaN": one in the first input of floats. Of booleans nine in ten are true: where they are a mask, no row of it
    hides everything.
    """
    drawn: list[torch.Tensor] = []
    planted = values != "with NaN"
    once = dict.fromkeys(region.match.inputs)
    for position in map(region.match.inputs.index, once):
        like = region.laid[position]
        shape = like.shape
        if like.dtype.is_floating_point:
            found = torch.randn(shape, device=like.device)
            if values == "large":
                found *= max(1.0, part * (LARGE if torch.finfo(like.dtype).max > HALF else HALF_LARGE))
            if not planted and found.numel():
                found[(0,) * found.dim()], planted = math.nan, True
        elif like.dtype is torch.bool:
            found = torch.rand(shape, device=like.device) < SEEN
        else:
            integers = region.integers(position, even=values == "normal")
            if integers is None:
                return None
            found = integers
        drawn.append(laid_out(found, like))
    return drawn


def _timed(
    variants: dict[str, Callable[[Sequence[torch.Tensor]], Any]], copies: Sequence[list[torch.Tensor]]
) -> Decision:
    device = copies[0][0].device

    def ready(run: Callable[[Sequence[torch.Tensor]], Any]) -> Callable[[], Callable[[], Any]]:
        call = through(copies, run)
        return lambda: call

    samples = time_in_turns({name: ready(run) for name, run in variants.items()}, device, TIME_S, _clear)
    ratio, (low, high) = ratio_with_interval(samples["inductor"], samples["kernel"], 0)
    us, other = (sorted(samples[name])[len(samples[name]) // 2] / len(copies) for name in ("kernel", "inductor"))
    rounds = len(samples["kernel"])
    if rounds < FEWEST_ROUNDS:
        return Decision("", f"{rounds} rounds of timing do not tell whether it is faster", False, us, other)
    slow = f"it is not surely faster than Inductor's code: {ratio:.2f}x [{low:.2f}, {high:.2f}]"
    return Decision("", "" if low > WORTH else slow, True, us, other, (low, high))


def _clear(samples: Samples) -> bool:
    """Return whether a few rounds have told whether a kernel pays."""
    _, (low, high) = ratio_with_interval(samples["inductor"], samples["kernel"], 0)
    return low > CLEAR or high < 1


def past_cache(
    inputs: list[torch.Tensor],
    size: int | None = None,
    another: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]] = copied,
) -> list[list[torch.Tensor]]:
    """Return inputs and, on a GPU, as many others of them as its cache does not hold.

    size: the bytes that a call reads and writes; None: all of theirs. another: makes others.
    """
    if inputs[0].device.type != "cuda":
        return [inputs]
    size = max(1, sum(tensor.numel() * tensor.element_size() for tensor in inputs) if size is None else size)
    more = min(MOST_COPIES, math.ceil(PAST_CACHE_BYTES / size)) - 1
    return [inputs, *(another(inputs) for _ in range(more))]


def through(copies: Sequence[list[torch.Tensor]], run: Callable[[Sequence[torch.Tensor]], Any]) -> Callable[[], Any]:
    """Return a call that runs on each of these inputs, on a GPU in one CUDA graph."""

    def all_copies() -> None:
        for given in copies:
            run(given)

    return _graphed(all_copies) if copies[0][0].device.type == "cuda" else all_copies


def _graphed(call: Callable[[], None]) -> Callable[[], Any]:
    """Return the replay of a CUDA graph of the call."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def read(document: dict[str, Any]) -> Decision:
    """Return a decision of a file. Raises TypeError, KeyError where it is none."""
    return Decision(**(document | {"ci95": document["ci95"] and tuple(document["ci95"])}))
