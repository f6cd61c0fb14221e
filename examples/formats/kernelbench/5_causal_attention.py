import math

import torch
from torch import nn


class Model(nn.Module):
    """Causal attention over heads that are given, with the mask as a buffer."""

    def __init__(self, length):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)))

    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores.masked_fill(~self.mask, float("-inf")), dim=-1)
        return weights @ v, torch.logsumexp(scores.masked_fill(~self.mask, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(2, 4, 64, 32) for _ in range(3)]


def get_init_inputs():
    return [64]
