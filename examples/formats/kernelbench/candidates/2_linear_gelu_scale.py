import torch
from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    """The scales as one, and everything after the product in place."""

    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.gain = nn.Parameter(torch.ones(out_features))
        self.scale = scale

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        return functional.gelu(y).mul_(self.gain * self.scale)
