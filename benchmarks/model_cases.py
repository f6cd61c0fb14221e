"""The models that `benchmarks.models` measures, and how each is called.

Classes of `transformers` and `diffusers` as they are and the DLRM of `benchmarks.dlrm`, with weights drawn at random;
and the samples of `examples/models`. On a CPU all but these are tiny.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks import dlrm
from benchmarks.showcase import ROOT
from warpsmith.workers.optimize.compiled.handle import Optimized
from warpsmith.workers.optimize.compiled.trial import MOST_CALLS

BURST = 20
"""Calls between two looks at the clock."""
STEPS = 4
"""Decode steps before results are compared."""
PROMPT, CACHE = 900, 1024
RESULTS = ("logits", "last_hidden_state", "sample")
"""What a model's result is called, by the first of these that it has."""
TIMESTEP, PROMPT_TOKENS = 500, 77
"""Of an image's denoising: which step, and how many embeddings of words it attends to."""
SAMPLES = ROOT / "examples" / "models"

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
    Case("Qwen3-MoE decode, batch 1", "qwen3_moe", 1, 1, past=True),
    Case("Qwen3-MoE decode, batch 8", "qwen3_moe", 8, 1, past=True),
    Case("Qwen3-MoE prefill, 1 x 2048", "qwen3_moe", 1, 2048),
    Case("Mixtral decode, batch 1", "mixtral", 1, 1, past=True),
    Case("Mixtral prefill, 1 x 2048", "mixtral", 1, 2048),
    Case("BERT base, 1 x 128", "bert", 1, 128),
    Case("BERT base, 32 x 128", "bert", 32, 128),
    Case("ViT-B, batch 8", "vit", 8),
    Case("SD-1.5 UNet, batch 2", "unet", 2),
    Case("DLRM, 2048 rows", "dlrm", 2048),
    Case("sample transformer", "transformer"),
    Case("sample recommender", "recommender"),
)


@dataclass(frozen=True)
class Published:
    """A class of another package.

    given: sizes in any case; large, tiny: beside them, on a GPU and on a CPU. tiny_dtype: on a CPU, where errors of
    float32 can be told from float64's; a mixture of experts has no code for float64.
    """

    package: str
    extra: str
    config: str
    model: str
    given: dict[str, Any] = field(default_factory=dict)
    large: dict[str, Any] = field(default_factory=dict)
    tiny: dict[str, Any] = field(default_factory=dict)
    tiny_dtype: torch.dtype = torch.float32


_HEADS: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_GROUPS = _HEADS | {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000}
PUBLISHED = {
    "llama": Published(
        *("transformers", "models", "LlamaConfig", "LlamaForCausalLM"),
        given={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": True},
        large={"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"intermediate_size": 8192, "vocab_size": 128256},
        tiny=_GROUPS,
    ),
    # Layers as those of Qwen3-30B-A3B, eight of its 48: 11 GB, beside which a copy in float32 fits one GPU.
    "qwen3_moe": Published(
        *("transformers", "models", "Qwen3MoeConfig", "Qwen3MoeForCausalLM"),
        given={"max_position_embeddings": 4096, "norm_topk_prob": True},
        large={"hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4}
        | {"head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}
        | {"intermediate_size": 6144, "vocab_size": 151936},
        tiny=_GROUPS | {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        tiny_dtype=torch.bfloat16,
    ),
    # Layers as those of Mixtral-8x7B, four of its 32: 12 GB.
    "mixtral": Published(
        *("transformers", "models", "MixtralConfig", "MixtralForCausalLM"),
        given={"max_position_embeddings": 4096},
        large={"hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000},
        tiny=_GROUPS | {"intermediate_size": 32, "num_local_experts": 8, "num_experts_per_tok": 2},
        tiny_dtype=torch.bfloat16,
    ),
    "bert": Published("transformers", "models", "BertConfig", "BertModel", tiny=_HEADS),
    "vit": Published("transformers", "models", "ViTConfig", "ViTModel", tiny=_HEADS),
    # Other sizes than these are the class's own, which are those of Stable Diffusion 1.5.
    "unet": Published(
        *("diffusers", "diffusion", "", "UNet2DConditionModel"),
        large={"sample_size": 64, "cross_attention_dim": 768},
        tiny={"sample_size": 8, "block_out_channels": (32, 64), "norm_num_groups": 8, "layers_per_block": 1}
        | {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "cross_attention_dim": 32}
        | {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "attention_head_dim": 2},
        tiny_dtype=torch.bfloat16,
    ),
}
LANGUAGE = ("llama", "qwen3_moe", "mixtral")
"""Kinds that predict words, and take a cache."""


def missing(case: Case) -> str | None:
    """Return why a case cannot run here: its package is not installed; None where it can."""
    published = PUBLISHED.get(case.kind)
    if published is None or importlib.util.find_spec(published.package) is not None:
        return None
    return f"{published.package} is not installed: it is of the extra `{published.extra}`"


def build(kind: str, device: torch.device) -> tuple[Any, int]:
    """Return a model of a kind, and the size of its vocabulary (0 where it takes no words)."""
    torch.manual_seed(0)
    tiny = device.type == "cpu"
    if kind == "dlrm":
        with device:
            return dlrm.model(tiny=tiny).to(torch.float32 if tiny else torch.bfloat16), 0
    if kind not in PUBLISHED:
        return sample(kind).model().to(device), 0
    published = PUBLISHED[kind]
    package = importlib.import_module(published.package)  # seconds
    sizes = published.given | (published.tiny if tiny else published.large)
    with device:
        if published.config:
            config = getattr(package, published.config)(**sizes)
            made = getattr(package, published.model)(config)
        else:
            made = getattr(package, published.model)(**sizes)
    made = made.eval().to(published.tiny_dtype if tiny else torch.bfloat16)
    return made, getattr(made.config, "vocab_size", 0)


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
        elif case.kind == "unet":
            sizes = self.model.config
            noise = (case.rows, sizes.in_channels, sizes.sample_size, sizes.sample_size)
            words = (case.rows, PROMPT_TOKENS, sizes.cross_attention_dim)
            drawn = [torch.randn(shape, device=device, generator=draw) for shape in (noise, words)]
            drawn = [value.to(self.model.dtype) for value in drawn]
            self._arguments = [drawn[0], torch.tensor(TIMESTEP, device=device), drawn[1]]
        elif case.kind not in PUBLISHED:
            self._arguments = [value.to(device) for value in sample(case.kind).example_inputs()]
        else:
            ids = torch.randint(0, self._words, (case.rows, case.length), device=device, generator=draw)
            self._inputs = {"input_ids": ids}
        self._prompt = torch.randint(0, max(self._words, 1), (case.rows, PROMPT), device=device, generator=draw)

    def fresh(self, model: Any) -> Any:
        """Return a cache that `model` filled with the prompt; None where the case has none."""
        if not self.case.past:
            return None
        import transformers  # noqa: PLC0415 - seconds

        cache = transformers.StaticCache(config=model.config, max_cache_len=CACHE)
        model(self._prompt, past_key_values=cache, use_cache=True)
        return cache

    def rewind(self, cache: Any) -> None:
        """Let the cache end where the prompt ends."""
        for layer in cache.layers if cache is not None else ():
            layer.cumulative_length.fill_(PROMPT)

    def call(self, model: Call, cache: Any) -> torch.Tensor:
        """Return the results of one call: logits, hidden states, or an image's noise."""
        past = {"past_key_values": cache, "use_cache": True} if cache is not None else {}
        if self.case.kind in LANGUAGE and cache is None:
            past = {"use_cache": False}
        given = {name: value.to(_dtype(model, value)) for name, value in self._inputs.items()}
        found = model(*(value.to(_dtype(model, value)) for value in self._arguments), **given, **past)
        if not isinstance(found, torch.Tensor):
            found = next(found[name] for name in RESULTS if name in found)
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
    return floats_of(model) if wide else value.dtype


def floats_of(model: torch.nn.Module) -> torch.dtype:
    """Return the dtype of a model's weights."""
    return next(model.parameters()).dtype


def wait(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
