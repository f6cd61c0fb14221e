"""The names of baselines: PyTorch's own, and what an expert may not be called.

A baseline of an op is one of `PYTORCH_BASELINES`, which run its reference, or an expert: a call of an installed library
that gives the same results (`spec.experts`).
"""

from __future__ import annotations

from collections.abc import Iterable

PYTORCH_BASELINES = ("eager", "compile", "max_autotune")
"""PyTorch eager, torch.compile, torch.compile(mode="max-autotune-no-cudagraphs")."""

RESERVED_NAMES = frozenset({*PYTORCH_BASELINES, "candidate", "expert", "float64", "generate", "limit", "probe"})
"""Names that a verdict or the judge uses for something else."""

MAX_EXPERTS = 8
"""Of one op: each is a process with a copy of every buffer, and a turn in every round of timing."""


def experts_among(baselines: Iterable[str]) -> list[str]:
    """Return the baselines that are experts."""
    return [name for name in baselines if name not in PYTORCH_BASELINES]
