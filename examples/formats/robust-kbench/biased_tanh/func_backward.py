"""The tanh of a row with a bias, and the gradients of it, as robust-kbench has its tasks."""

import torch
from torch import nn


class AutogradFunction(torch.autograd.Function):
    backward_fn = None

    @staticmethod
    def forward(ctx, x, bias, scale):
        result = torch.tanh(scale * x + bias)
        ctx.save_for_backward(result)
        ctx.scale = scale
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        grad_x, grad_bias = AutogradFunction.backward_fn(grad_output, result, ctx.scale)
        return grad_x, grad_bias, None


def forward_fn(x: torch.Tensor, bias: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.tanh(scale * x + bias)


class Model(nn.Module):
    """Adds a bias to every scaled row and takes the tanh."""

    def __init__(self, features: int, scale: float = 1.0, init_method: str = "ones"):
        super().__init__()
        self.scale = scale
        start = torch.randn(features) if init_method == "random" else torch.ones(features)
        self.bias = nn.Parameter(start)

    def forward(self, x: torch.Tensor, fn=forward_fn) -> torch.Tensor:
        return fn(x, self.bias, self.scale)


def get_inputs(batch_size: int = 4, features: int = 32):
    return [torch.randn(batch_size, features, requires_grad=True)]


input_names = ["x"]
