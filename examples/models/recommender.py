"""A small recommendation model: embeddings, an MLP over dense features, dot products of all pairs, a sigmoid.

`warpsmith profile examples/models/recommender.py` reads `model()` and `example_inputs()`, the two functions that every
model file has. The weights are random and always the same.
"""

from __future__ import annotations

import torch
from torch import nn

TABLES, ROWS, WIDTH, DENSE = 8, 1000, 32, 13
BATCH = 256


class Interaction(nn.Module):
    """The dot products of all pairs of feature vectors, after the dense one."""

    def __init__(self, vectors: int) -> None:
        super().__init__()
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", row * vectors + column)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        vectors = torch.cat([dense.unsqueeze(1), sparse], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return torch.cat([dense, products.index_select(1, self.pairs)], dim=1)


class Recommender(nn.Module):
    """Dense features (batch, DENSE), float32, and one row of each table (batch, TABLES), int64, to the probability of a
    click, (batch, 1), float32.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(TABLES * ROWS, WIDTH)
        self.register_buffer("first_rows", torch.arange(TABLES) * ROWS)
        self.bottom = nn.Sequential(nn.Linear(DENSE, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
        self.interaction = Interaction(TABLES + 1)
        pairs = TABLES * (TABLES + 1) // 2
        self.top = nn.Sequential(nn.Linear(WIDTH + pairs, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        vectors = self.table(sparse + self.first_rows)
        return torch.sigmoid(self.top(self.interaction(self.bottom(dense), vectors)))


def model() -> nn.Module:
    """The model, on the CPU."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Recommender().eval()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """What one call of the model is given: dense features and rows of the tables."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(BATCH, DENSE, generator=generator)
    return dense, torch.randint(ROWS, (BATCH, TABLES), generator=generator)
