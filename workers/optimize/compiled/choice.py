"""Whether a kernel pays in a place: it must be right there, and faster than Inductor's own code for the same region.

Both run on the place's shapes, with values of this process's: on a GPU in CUDA graphs that go through as many copies of
the inputs as its cache does not hold, for a model's weights are not in the cache either when their turn comes. What was
found is kept in a file, by machine, versions and region, so that another process need not measure again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.runtime.cache import cache_directory
from warpsmith.workers.judge.clock.timing import ratio_with_interval
from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.places import Region
from warpsmith.workers.optimize.measuring import FEWEST_ROUNDS, time_in_turns

TIME_S = 1.0
"""Seconds of timing of a region, at most."""
PAST_CACHE_BYTES = 200 << 20
"""That much is read between two looks at the same weights: 4 times the second-level cache of an H200 (50 MiB)."""
MOST_COPIES = 64
SEEN = 0.9
FORMAT = 1
"""Of the files of decisions: another one is another way of measuring."""


@dataclass(frozen=True)
class Decision:
    """What was found about a region.

    us, inductor_us: of the kernel and of Inductor's code; ci95 is of the ratio of the latter to the former. why: the
    reason where the kernel stays out, empty where it pays.
    """

    why: str
    us: float | None = None
    inductor_us: float | None = None
    ci95: tuple[float, float] | None = None

    @property
    def saved_us(self) -> float:
        """What one place saves a call, in microseconds."""
        return 0.0 if self.us is None or self.inductor_us is None else self.inductor_us - self.us


class Choices:
    """What is known about regions under a configuration of Inductor's, in a file of the user's cache."""

    def __init__(self, device: torch.device, patches: inductor.Patches) -> None:
        named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        facts = [FORMAT, named, torch.__version__, torch.version.cuda, sorted(map(repr, patches.items()))]
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        self._patches = patches
        self._file = cache_directory().parent / "choices" / f"{digest}.json"
        self._known: dict[str, Decision] = _read(self._file)

    def known(self, region: Region) -> Decision | None:
        """Return what was found, None where nobody looked."""
        return self._known.get(region.key)

    def decide(self, wanted: Sequence[Region]) -> None:
        """Look at regions, each kind once, and keep what is found."""
        for region in {region.key: region for region in wanted}.values():
            self._known[region.key] = decide(region, self._patches)
        _write(self._file, self._known)


def decide(region: Region, patches: inductor.Patches) -> Decision:
    """Compare a kernel with what computes in its place, and time both in turns."""
    with inductor.outside():
        drawn = _drawn(region.tensors)
        if drawn is None:
            return Decision("it takes integers, and which ones make sense here is not known")
        kernel, numbers = region.kernel.kernel, region.match.numbers
        flat = region.kernel.flat([tensor.contiguous() for tensor in drawn])
        if (why := kernel.refusal(flat, numbers)) is not None:
            return Decision(why)
        alone = region.alone()
        inputs = list(dict(zip(region.match.inputs, drawn, strict=True)).values())
        results = region.kernel.call(*kernel.arguments(flat, numbers))
        shapes = [each.shape for each in (results if isinstance(results, tuple | list) else (results,))]
        expected = [found.reshape(shape) for found, shape in zip(alone(*inputs), shapes, strict=True)]
        if (why := kernel.wrong(flat, expected, numbers)) is not None:
            return Decision(why)
        compiled = inductor.compile_graph(alone, inputs, patches | {"triton.cudagraphs": False})

        def ours(given: Sequence[torch.Tensor]) -> Any:
            by_node = dict(zip(dict.fromkeys(region.match.inputs), given, strict=True))
            tensors = region.kernel.flat([by_node[node].contiguous() for node in region.match.inputs])
            return region.kernel.call(*kernel.arguments(tensors, numbers))

        with kernel.unwatched():  # its time is wanted, not that of its watch
            return _timed({"kernel": ours, "inductor": lambda given: compiled(*given)}, inputs)


def _drawn(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
    """Return values for these shapes, strides and dtypes; None where one is of integers.

    Floats are standard normal. Of booleans nine in ten are true: where they are a mask, no row of it hides everything.
    """
    drawn = []
    for like in tensors:
        shape = tuple(like.shape)
        if like.dtype.is_floating_point:
            values = torch.randn(shape, device=like.device)
        elif like.dtype is torch.bool:
            values = torch.rand(shape, device=like.device) < SEEN
        else:
            return None
        drawn.append(laid_out(values, like))
    return drawn


def laid_out(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the values in memory of their own, with the dtype and strides of `like`: what is expanded there is so."""
    once = values[tuple(slice(0, 1) if step == 0 else slice(None) for step in like.stride())]
    made = torch.empty_strided(once.shape, like.stride(), dtype=like.dtype, device=like.device)
    return made.copy_(once).expand(values.shape)


def _timed(variants: dict[str, Callable[[Sequence[torch.Tensor]], Any]], inputs: list[torch.Tensor]) -> Decision:
    device = inputs[0].device
    copies = [inputs]
    if device.type == "cuda":
        size = sum(tensor.numel() * tensor.element_size() for tensor in inputs)
        copies += [
            [laid_out(t, t) for t in inputs] for _ in range(min(MOST_COPIES, math.ceil(PAST_CACHE_BYTES / size)) - 1)
        ]

    def ready(run: Callable[[Sequence[torch.Tensor]], Any]) -> Callable[[], Callable[[], Any]]:
        def all_copies() -> None:
            for given in copies:
                run(given)

        call = graphed(all_copies) if device.type == "cuda" else all_copies
        return lambda: call

    samples = time_in_turns({name: ready(run) for name, run in variants.items()}, device, TIME_S)
    ratio, (low, high) = ratio_with_interval(samples["inductor"], samples["kernel"], 0)
    us, other = (sorted(samples[name])[len(samples[name]) // 2] / len(copies) for name in ("kernel", "inductor"))
    enough = len(samples["kernel"]) >= FEWEST_ROUNDS
    why = (
        ""
        if enough and low > 1
        else f"it is not surely faster than Inductor's code: {ratio:.2f}x [{low:.2f}, {high:.2f}]"
    )
    return Decision(why, us, other, (low, high))


def graphed(call: Callable[[], None]) -> Callable[[], Any]:
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


def _read(file: Path) -> dict[str, Decision]:
    """Return the decisions of a file; none where it is not there, or is not one that was written here."""
    try:
        found = json.loads(file.read_text("utf-8"))
        return {key: Decision(**(each | {"ci95": each["ci95"] and tuple(each["ci95"])})) for key, each in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write(file: Path, decisions: dict[str, Decision]) -> None:
    """Keep decisions beside those that another process wrote meanwhile; go without where that cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({key: asdict(each) for key, each in sorted((_read(file) | decisions).items())}, indent=1)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as written:
            written.write(text)
        os.replace(written.name, file)
    except OSError:
        return
