"""The DLRM, as its authors publish it, for `benchmarks.models`.

Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019
(https://arxiv.org/abs/1906.00091): bags of embeddings as in `facebookresearch/dlrm`, the interaction as in TorchRec's
`InteractionArch`, sizes as MLPerf's (rows of the tables as fit a GPU with others).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Sizes:
    """dense: features; tables by rows: embeddings; bottom, top: widths of the layers, the last of bottom theirs too."""

    dense: int = 13
    tables: int = 26
    rows: int = 100_000
    bottom: tuple[int, ...] = (512, 256, 128)
    top: tuple[int, ...] = (1024, 1024, 512, 256, 1)


TINY = Sizes(tables=4, rows=100, bottom=(32, 16), top=(64, 32, 1))


class Interaction(nn.Module):
    """The dense vector, and the dot products of all pairs of vectors behind it."""

    pairs: torch.Tensor

    def __init__(self, vectors: int) -> None:
        super().__init__()
        self.register_buffer("pairs", torch.triu_indices(vectors, vectors, offset=1), persistent=False)

    def forward(self, dense: torch.Tensor, sparse: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return (batch, width and pairs) of (batch, width) each."""
        vectors = torch.stack([dense, *sparse], dim=1)
        products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))
        return torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], dim=1)


class DLRM(nn.Module):
    """Dense features (batch, dense) and a bag of rows for each table to the probability of a click, (batch, 1)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, width = sizes, sizes.bottom[-1]
        self.tables = nn.ModuleList(nn.EmbeddingBag(sizes.rows, width, mode="sum") for _ in range(sizes.tables))
        self.bottom = _layers((sizes.dense, *sizes.bottom), nn.ReLU())
        self.interaction = Interaction(sizes.tables + 1)
        pairs = sizes.tables * (sizes.tables + 1) // 2
        self.top = _layers((width + pairs, *sizes.top), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, offsets: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Take offsets (tables, batch) of bags in indices (tables, all rows of its bags)."""
        bags = [table(indices[place], offsets[place]) for place, table in enumerate(self.tables)]
        result: torch.Tensor = self.top(self.interaction(self.bottom(dense), bags))
        return result


def _layers(widths: Sequence[int], last: nn.Module) -> nn.Sequential:
    between: list[nn.Module] = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*between[:-1], last)


def model(*, tiny: bool) -> DLRM:
    """Return the model with random weights; a tiny one for a CPU."""
    return DLRM(TINY if tiny else Sizes()).eval()


def inputs(made: DLRM, rows: int, device: torch.device, draw: torch.Generator) -> list[Any]:
    """Return the arguments of a call: as in Criteo's data each bag has one row."""
    sizes, dtype = made.sizes, next(made.parameters()).dtype
    dense = torch.randn(rows, sizes.dense, device=device, generator=draw).to(dtype)
    offsets = torch.arange(rows, device=device).expand(sizes.tables, rows).contiguous()
    return [dense, offsets, torch.randint(sizes.rows, (sizes.tables, rows), device=device, generator=draw)]
