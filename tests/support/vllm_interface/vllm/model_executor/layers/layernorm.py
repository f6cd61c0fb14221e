"""RMSNorm: with a residual it returns the normalised sum and the sum."""

import torch

from vllm.model_executor.custom_op import CustomOp


@CustomOp.register("rms_norm")
class RMSNorm(CustomOp):
    """`native` counts the calls that this layer's own code served."""

    native = 0

    def __init__(self, hidden_size, eps=1e-6, var_hidden_size=None, has_weight=True, dtype=None):
        super().__init__()
        self.hidden_size = hidden_size
        self.variance_epsilon = eps
        self.variance_size_override = None if var_hidden_size == hidden_size else var_hidden_size
        self.has_weight = has_weight
        weight = torch.ones(hidden_size, dtype=dtype)
        self.weight = torch.nn.Parameter(weight) if has_weight else weight

    def forward_native(self, x, residual=None):
        RMSNorm.native += 1
        wide = x.float() if residual is None else x.float() + residual.float()
        part = wide if self.variance_size_override is None else wide[..., : self.variance_size_override]
        scale = torch.rsqrt(part.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        found = (wide * scale).to(x.dtype)
        found = found * self.weight if self.has_weight else found
        return found if residual is None else (found, wide.to(x.dtype))

    def forward_cuda(self, x, residual=None):
        return self.forward_native(x, residual)
