"""Measure whole models under `warpsmith.optimize`, beside PyTorch's own compilers.

    python -m benchmarks.models [--only NAME ...] [--modes MODE,...] [--against MODE,...] [--kernels DIR ...]
                                [--seconds S [--profile] | --compile] [--json FILE]

Classes of `transformers` as they are and the DLRM of `benchmarks.dlrm`, with weights drawn at random, in bfloat16 on a
GPU (tiny ones in float32 on a CPU, which show the way and no gain); and the samples of `examples/models`, in float32 as
they are. The variants of a model run in turns:

MODE                torch.compile(model, mode=MODE), for those of `--against` as well
rewrites, MODE      warpsmith.optimize without kernels: masks that no input decides are taken out, repeated keys and
                    values shared, tables of sines computed once
warpsmith, MODE     warpsmith.optimize with kernels, those that ship or those of `--kernels`

A call's time is that of a burst of calls by the clock, from an idle device to an idle device. Ratios are over the
faster of PyTorch's own, with their 95 % interval. error: the relative L2 error of the results against the model in
float32 (in float64 where it is in float32 itself), and eager's own; a decode step is compared after several, from a
fresh cache, with the cache that they left.

With --profile it is told on a GPU where the time of `warpsmith, MODE` goes (`benchmarks.model_where`).

With --compile it is measured instead how long each of PyTorch's own and of `warpsmith, MODE` takes to its first call:
`benchmarks.model_compile`.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

import warpsmith
from benchmarks import dlrm, model_where
from benchmarks.showcase import ROOT, columns
from warpsmith.workers.judge.clock.timing import Plan, interleave, ratio_with_interval
from warpsmith.workers.optimize.compiled.handle import Optimized
from warpsmith.workers.optimize.compiled.trial import MOST_CALLS

BURST = 20
"""Calls between two looks at the clock."""
STEPS = 4
"""Decode steps before results are compared."""
PROMPT, CACHE = 900, 1024
COPY_BYTES = 1 << 30
SAMPLES = ROOT / "examples" / "models"
EAGER, REWRITES, KERNELS = "eager", "rewrites, ", "warpsmith, "

Call = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A model and one way of calling it.

    `rows` by `length` tokens, images, or rows of features; 0: the file of a sample says. `past`: a cache is decoded
    into.
    """

    name: str
    kind: str
    rows: int = 0
    length: int = 0
    past: bool = False


CASES = (
    Case("Llama-1B decode, batch 1", "llama", 1, 1, past=True),
    Case("Llama-1B decode, batch 8", "llama", 8, 1, past=True),
    Case("Llama-1B prefill, 1 x 2048", "llama", 1, 2048),
    Case("BERT base, 1 x 128", "bert", 1, 128),
    Case("BERT base, 32 x 128", "bert", 32, 128),
    Case("ViT-B, batch 8", "vit", 8),
    Case("DLRM, 2048 rows", "dlrm", 2048),
    Case("sample transformer", "transformer"),
    Case("sample recommender", "recommender"),
)
OF_TRANSFORMERS = ("llama", "bert", "vit")


@dataclass
class Row:
    """A variant's figures: milliseconds a call, the ratio over the faster of PyTorch's own, and errors."""

    case: str
    variant: str
    ms: float
    ratio: float
    ci95: tuple[float, float]
    compile_s: float
    error: float
    eager_error: float
    cache_difference: float | None = None
    report: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)


def build(kind: str, device: torch.device) -> tuple[Any, int]:
    """Return a model of a kind, and the size of its vocabulary (0 where it takes no words)."""
    torch.manual_seed(0)
    tiny = device.type == "cpu"
    if kind == "dlrm":
        with device:
            return dlrm.model(tiny=tiny).to(torch.float32 if tiny else torch.bfloat16), 0
    if kind not in OF_TRANSFORMERS:
        return sample(kind).model().to(device), 0
    import transformers  # noqa: PLC0415 - seconds

    heads: dict[str, int | float] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes: dict[str, int | float]
    if kind == "llama":
        large = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
        large |= {"intermediate_size": 8192, "vocab_size": 128256}
        small = heads | {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000}
        sizes = {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
        sizes |= small if tiny else large
        names = ("LlamaConfig", "LlamaForCausalLM")
    else:
        sizes = heads if tiny else {}
        names = ("BertConfig", "BertModel") if kind == "bert" else ("ViTConfig", "ViTModel")
    config = getattr(transformers, names[0])(**sizes)
    model = getattr(transformers, names[1])
    with device:
        made = model(config).eval()
    return made.to(torch.float32 if tiny else torch.bfloat16), getattr(config, "vocab_size", 0)


def sample(kind: str) -> Any:
    """Return the module of a model file of `examples/models`."""
    spec = importlib.util.spec_from_file_location(f"sample_{kind}", SAMPLES / f"{kind}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018 - a file of this repository
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Session:
    """A case's model with its inputs: `fresh` readies a call from the start, `call` makes one."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.model, self._words = build(case.kind, device)
        draw = torch.Generator(device).manual_seed(1)
        self._arguments: list[Any] = []
        self._inputs: dict[str, torch.Tensor] = {}
        if case.kind == "vit":
            pixels = torch.randn(case.rows, 3, 224, 224, device=device, generator=draw)
            self._inputs = {"pixel_values": pixels.to(self.model.dtype)}
        elif case.kind == "dlrm":
            self._arguments = dlrm.inputs(self.model, case.rows, device, draw)
        elif case.kind not in OF_TRANSFORMERS:
            self._arguments = [value.to(device) for value in sample(case.kind).example_inputs()]
        else:
            ids = torch.randint(0, self._words, (case.rows, case.length), device=device, generator=draw)
            self._inputs = {"input_ids": ids}
        self._prompt = torch.randint(0, max(self._words, 1), (case.rows, PROMPT), device=device, generator=draw)

    def fresh(self, model: Any) -> Any:
        """Return a cache that `model` filled with the prompt; None where the case has none."""
        if not self.case.past:
            return None
        import transformers  # noqa: PLC0415 - as above

        cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
        model(self._prompt, past_key_values=cache, use_cache=True)
        return cache

    def rewind(self, cache: Any) -> None:
        """Let the cache end where the prompt ends."""
        for layer in cache.layers if cache is not None else ():
            layer.cumulative_length.fill_(PROMPT)

    def call(self, model: Call, cache: Any) -> torch.Tensor:
        """Return the results of one call: logits, or hidden states."""
        past = {"past_key_values": cache, "use_cache": True} if cache is not None else {}
        if self.case.kind == "llama" and cache is None:
            past = {"use_cache": False}
        given = {name: value.to(_dtype(model, value)) for name, value in self._inputs.items()}
        found = model(*(value.to(_dtype(model, value)) for value in self._arguments), **given, **past)
        if not isinstance(found, torch.Tensor):
            found = found.logits if hasattr(found, "logits") else found.last_hidden_state
        results: torch.Tensor = found
        return results

    def settle(self, model: Call, cache: Any) -> None:
        """Call what `warpsmith.optimize` returned until it is told whether a graph gains by its kernels."""
        for _ in range(MOST_CALLS):
            if not isinstance(model, Optimized) or model.settled:
                break
            self.rewind(cache)
            self.call(model, cache)
        self.rewind(cache)

    def burst_ms(self, model: Call, cache: Any) -> float:
        """Return the milliseconds of a call, by a burst of them from where the prompt ends."""
        self.rewind(cache)
        wait(self.device)
        begun = time.perf_counter()
        for _ in range(BURST):
            self.call(model, cache)
        wait(self.device)
        return (time.perf_counter() - begun) / BURST * 1e3

    def steps(self, model: Call, cache: Any) -> torch.Tensor:
        """Return a copy of the results after several calls from where the cache stands."""
        for _ in range(STEPS if cache is not None else 1):
            found = self.call(model, cache)
        return found.clone()


def _dtype(model: Any, value: torch.Tensor) -> torch.dtype:
    wide = isinstance(model, torch.nn.Module) and value.is_floating_point()
    return _floats(model) if wide else value.dtype


def _floats(model: torch.nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def variant(model: Any, name: str, kernels: Sequence[str] | None) -> Call:
    """Return a model as a variant calls it; nothing is compiled before its first call."""
    if name == EAGER:
        return cast("Call", model)
    if name.startswith(REWRITES):
        return warpsmith.optimize(model, mode=name.removeprefix(REWRITES), kernels=[])
    if name.startswith(KERNELS):
        return warpsmith.optimize(model, mode=name.removeprefix(KERNELS), kernels=kernels)
    return torch.compile(model, mode=name)


def measure(
    case: Case,
    device: torch.device,
    modes: Sequence[str],
    against: Sequence[str],
    kernels: Any,
    seconds: float,
    *,
    profiled: bool,
) -> Iterator[Row]:
    """Yield the rows of a case."""
    session = Session(case, device)
    model = session.model
    wide = copy.deepcopy(model).to(torch.float64 if _floats(model) is torch.float32 else torch.float32)
    exact = session.steps(wide, session.fresh(wide)).double()
    del wide
    eager_cache = session.fresh(model)
    eager = session.steps(model, eager_cache)
    eager_error = _error(eager, exact)
    names = [EAGER, *against, *(kind + mode for mode in modes for kind in (REWRITES, KERNELS))]
    calls = {name: variant(model, name, kernels) for name in names}
    caches, found, compiled_in = {}, {}, {}
    for name, call in calls.items():
        caches[name] = session.fresh(model)
        begun = time.perf_counter()
        for _ in range(3):  # a CUDA graph is recorded in the second call
            session.call(call, caches[name])
        wait(device)
        compiled_in[name] = time.perf_counter() - begun
        session.settle(call, caches[name])
        found[name] = session.steps(call, caches[name])
        print(f"{case.name}: {name}: compiled in {compiled_in[name]:.0f} s", file=sys.stderr, flush=True)

    def block(name: str) -> float:
        return session.burst_ms(calls[name], caches[name]) * 1e3

    rng = random.Random(0)  # noqa: S311 - the order of measurements
    samples = interleave(list(calls), block, plan=Plan(11, 61, seconds, 1, 0.0, 0.0), candidate=None, rng=rng)
    own = min(against, key=lambda mode: statistics.median(samples[mode]))
    for name, call in calls.items():
        ratio, interval = ratio_with_interval(samples[own], samples[name], 0)
        apart = _apart(caches[name], eager_cache) if case.past and name != EAGER else None
        said = call.report().splitlines() if isinstance(call, Optimized) else []
        ms = statistics.median(samples[name]) / 1e3
        errors = _error(found[name], exact), eager_error, apart
        where = []
        if profiled and name.startswith(KERNELS):
            session.rewind(caches[name])
            spans = model_where.spans_of(lambda: session.call(call, caches[name]), device)  # noqa: B023 - at once
            where = model_where.told(spans)
        yield Row(case.name, name, ms, ratio, interval, compiled_in[name], *errors, said, where)


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def _apart(cache: Any, other: Any) -> float:
    """Return the largest relative L2 difference of two caches' tensors, over the tokens up to the compared steps."""
    pairs = [
        (getattr(mine, part), getattr(theirs, part))
        for mine, theirs in zip(cache.layers, other.layers, strict=True)
        for part in ("keys", "values")
    ]
    written = slice(PROMPT + STEPS)
    return max(_error(mine[:, :, written], theirs[:, :, written].double()) for mine, theirs in pairs)


def wait(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes that a copy reads and writes a second."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(10):
        wait(device)
        begun = time.perf_counter()
        target.copy_(source)
        wait(device)
        times.append(time.perf_counter() - begun)
    return 2 * COPY_BYTES / min(times)


def main() -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Whole models, optimized.")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose name has this; may be repeated")
    parser.add_argument(
        "--modes", default="reduce-overhead", help="some of Inductor's, by commas; default: %(default)s"
    )
    parser.add_argument(
        "--against", metavar="MODE,...", default="", help="more modes of PyTorch's own; default: those of --modes alone"
    )
    parser.add_argument(
        "--kernels", action="append", metavar="DIR", help="an exported package; default: those that ship"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of timing a case; default: %(default)s")
    parser.add_argument("--profile", action="store_true", help="say where the time goes, on a GPU")
    parser.add_argument("--compile", action="store_true", help="measure seconds to the first call, in own processes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every row here")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cases = [case for case in CASES if any(text.lower() in case.name.lower() for text in arguments.only or [""])]
    if not cases:
        parser.error(f"argument --only: found {arguments.only}, expected a part of {'; '.join(c.name for c in CASES)}")
    modes = arguments.modes.split(",")
    against = [mode for mode in dict.fromkeys([*modes, *arguments.against.split(",")]) if mode]
    named = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    if arguments.compile:
        print(f"{named}, torch {torch.__version__}")
        from benchmarks import model_compile  # noqa: PLC0415 - it takes the cases from here

        variants = list(dict.fromkeys([*modes, *(KERNELS + mode for mode in modes), *against]))
        return model_compile.run(cases, variants, arguments.kernels, arguments.json)
    print(f"{named}, torch {torch.__version__}; a copy moves {copy_bandwidth(device) / 1e12:.2f} TB/s")
    rows: list[Row] = []
    with torch.no_grad():
        for case in cases:
            found = list(
                measure(case, device, modes, against, arguments.kernels, arguments.seconds, profiled=arguments.profile)
            )
            rows += found
            print(f"\n{case.name}\n{columns(_table(found))}", flush=True)
            print("\n".join([*found[-1].report, *found[-1].where]), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
            torch.compiler.reset()
    return 0


def _table(rows: Sequence[Row]) -> list[list[str]]:
    head = ["variant", "ms", "over PyTorch's own", "95 %", "error", "of eager's", "cache apart", "compiled in"]
    table = [head]
    for row in rows:
        low, high = row.ci95
        apart = "-" if row.cache_difference is None else f"{row.cache_difference:.1e}"
        of_eager = f"{row.error / row.eager_error:.2f}x" if row.eager_error else "-"
        times = [f"{row.ms:.3f}", f"{row.ratio:.3f}x", f"{low:.3f} to {high:.3f}"]
        table.append([row.variant, *times, f"{row.error:.2e}", of_eager, apart, f"{row.compile_s:.0f} s"])
    return table


if __name__ == "__main__":
    sys.exit(main())
