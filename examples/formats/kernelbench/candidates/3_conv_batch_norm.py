import torch
from torch import nn


class ModelNew(nn.Module):
    """Statistics by one pass over the convolution's result, and the normalization as one product and sum. Parameters
    have other names than the problem's: they are told by their shapes and order."""

    def __init__(self, channels, features, kernel_size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, channels, *kernel_size))
        self.bias = nn.Parameter(torch.empty(features))
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        y = torch.conv2d(x, self.weight, self.bias)
        variance, mean = torch.var_mean(y, dim=(0, 2, 3), correction=0)
        scale = self.scale * torch.rsqrt(variance + 1e-5)
        shift = self.shift - mean * scale
        return torch.relu_(torch.addcmul(shift[:, None, None], y, scale[:, None, None]))
