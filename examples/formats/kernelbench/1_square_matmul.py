import torch
from torch import nn


class Model(nn.Module):
    """One product of two square matrices."""

    def __init__(self):
        super().__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:  # noqa: N803
        return torch.matmul(A, B)


N = 256


def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]


def get_init_inputs():
    return []
