import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """A linear layer, GELU and a scale."""

    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.gain = nn.Parameter(torch.randn(out_features) * 0.02 + 1)
        self.scale = scale

    def forward(self, x):
        return functional.gelu(self.linear(x)) * self.gain * self.scale


batch_size = 128
in_features = 256
out_features = 192


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, 0.5]
