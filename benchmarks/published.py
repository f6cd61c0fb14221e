"""Models of a hub that are loaded by their name, with published sizes and weights drawn at random; no network.

`CONFIGS` has what the published `config.json` of each name says where it differs from the defaults of its class in
`transformers`. Its source is the model's page, https://huggingface.co/NAME, of the names that problems of KernelBench's
level 4 load. The order of Reformer's layers is that of models in public code that take this one's sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

_REFORMER_LAYERS = "local local lsh local local local lsh local local local lsh local"
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2"},
    "facebook/opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2048,
        "word_embed_proj_dim": 2048,
        "ffn_dim": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
    },
    "EleutherAI/gpt-neo-2.7B": {
        "model_type": "gpt_neo",
        "hidden_size": 2560,
        "num_layers": 32,
        "num_heads": 20,
        "attention_types": [[["global", "local"], 16]],
    },
    "facebook/bart-large": {"model_type": "bart"},
    "google/bigbird-roberta-base": {"model_type": "big_bird"},
    "google/electra-small-discriminator": {"model_type": "electra"},
    "google/reformer-enwik8": {
        "model_type": "reformer",
        "vocab_size": 258,
        "hidden_size": 1024,
        "feed_forward_size": 4096,
        "num_attention_heads": 8,
        "attention_head_size": 128,
        "attn_layers": _REFORMER_LAYERS.split(),
        "axial_pos_shape": [128, 512],
        "axial_pos_embds_dim": [256, 768],
        "max_position_embeddings": 65536,
        "local_attn_chunk_length": 128,
        "lsh_attn_chunk_length": 256,
        "num_buckets": 512,
        "num_hashes": 4,
        "is_decoder": True,
    },
}


@contextlib.contextmanager
def at_random(device: str) -> Iterator[None]:
    """Let `transformers.Auto*.from_pretrained(name)` answer from `CONFIGS`: weights in float32, drawn on `device`.

    Weights are drawn by the initialization of the class. Raises KeyError for a name that the table has not.
    """
    import torch  # noqa: PLC0415 - seconds
    import transformers  # noqa: PLC0415 - as above

    def configured(name: str, **_: Any) -> Any:
        if name not in CONFIGS:
            raise KeyError(f"from_pretrained: found {name!r}, expected one of {', '.join(CONFIGS)}")
        return transformers.AutoConfig.for_model(**CONFIGS[name])

    def drawn(name: str, *, config: Any = None, **_: Any) -> Any:
        with torch.device(device):
            drawn_at_random: Any = transformers.AutoModelForCausalLM.from_config
            return drawn_at_random(config or configured(name))

    with (
        mock.patch.object(transformers.AutoConfig, "from_pretrained", configured),
        mock.patch.object(transformers.AutoModelForCausalLM, "from_pretrained", drawn),
    ):
        yield
