"""SiluAndMul and NewGELU."""

import math

import torch

from vllm.model_executor.custom_op import CustomOp


@CustomOp.register("silu_and_mul")
class SiluAndMul(CustomOp):
    """The first half of the last axis, activated, times the second."""

    def forward_native(self, x):
        half = x.shape[-1] // 2
        return torch.nn.functional.silu(x[..., :half]) * x[..., half:]


@CustomOp.register("gelu_new")
class NewGELU(CustomOp):
    """GELU with the tanh approximation."""

    def forward_native(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
