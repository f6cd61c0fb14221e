"""Library calls that compute the ops of shipped kernels: what `benchmarks.library --experts` judges them beside.

Each is written as an op spec would have it (docs/experts.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warpsmith.kernels_db.spec.op import Op, parse_op

EXPERTS: Mapping[str, Mapping[str, str]] = {
    "rms_norm": {
        "liger": "liger.rms_norm(x, weight, eps=1e-6)",
        "quack": "quack.rms_norm(x, weight, eps=1e-6)",
        "flashinfer": "flashinfer.rms_norm(x, weight, eps=1e-6)",
    },
    "layer_norm": {
        "liger": "liger.layer_norm(x, weight, bias, eps=1e-5)",
        "quack": "quack.layer_norm(x, weight, bias, eps=1e-5)",
    },
    "softmax": {"liger": "liger.softmax(x)", "quack": "quack.softmax(x)"},
    "cross_entropy": {
        "liger": 'liger.cross_entropy(logits, labels, reduction="none")',
        "quack": "quack.cross_entropy(logits, labels)",
    },
    "silu_and_mul": {"liger": "liger.silu_and_mul(x)", "flashinfer": "flashinfer.silu_and_mul(x)"},
    "decode_attention": {
        "cudnn": "pytorch.cudnn_attention(query, key, value, mask=mask, scale=0.125, grouped=True)",
    },
}
"""By op: the experts by their names."""

NAMES = tuple(sorted({name for experts in EXPERTS.values() for name in experts}))


def with_experts(op: Op, names: Iterable[str]) -> Op:
    """Return the op with those of the named experts that it has among its baselines."""
    chosen = {name: text for name, text in EXPERTS.get(op.name, {}).items() if name in set(names)}
    objective = {"baselines": [*op.objective.baselines, *chosen], "experts": chosen}
    return parse_op(op.document() | {"objective": objective})
