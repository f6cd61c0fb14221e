"""A small decoder-only transformer: attention, a feed-forward layer with GELU, RMS normalisation and residuals.

`warpsmith profile examples/models/transformer.py` reads `model()` and `example_inputs()`, the two functions that every
model file has. The weights are random and always the same.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, LONGEST = 512, 128
WIDTH, HEADS, LAYERS = 128, 4, 2
BATCH, LENGTH = 4, 64


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last axis, with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    """A linear layer with GELU, and one back to the model's width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """Attention and feed-forward, each after a normalisation and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(width), Attention(width, heads)
        self.feed_forward_norm, self.feed_forward = RMSNorm(width), FeedForward(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class Transformer(nn.Module):
    """Tokens of shape (batch, length), int64, to logits of shape (batch, length, VOCABULARY), float32."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(0.1 * torch.randn(LONGEST, WIDTH))
        self.blocks = nn.ModuleList(Block(WIDTH, HEADS) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model() -> nn.Module:
    """The model, on the CPU."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer().eval()


def example_inputs() -> tuple[torch.Tensor, ...]:
    """What one call of the model is given."""
    return (torch.randint(VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(1)),)
