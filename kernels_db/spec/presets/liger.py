"""Liger-Kernel, the forward passes: Triton kernels for training language models.

Written for liger-kernel 0.8.5; docs/experts.md says how they were run.
`casting`, `ignore_index` and `reduction` are as Liger has them.
"""


def rms_norm(x, weight, eps=1e-6, casting="llama"):
    """RMS norm over the last axis."""
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    return LigerRMSNormFunction.apply(x, weight, eps, 0.0, casting, False)


def fused_add_rms_norm(x, residual, weight, eps=1e-6, casting="llama"):
    """RMS norm of x + residual over the last axis, and that sum: two outputs."""
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    return LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, 0.0, casting, False)


def layer_norm(x, weight, bias, eps=1e-5):
    """Layer norm over the last axes, those of weight and bias."""
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    n = weight.numel()
    return LigerLayerNormFunction.apply(x.reshape(-1, n), weight.reshape(n), bias.reshape(n), eps).view(x.shape)


def softmax(x):
    """Softmax over the last axis."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return LigerSoftmaxFunction.apply(x)


def silu_and_mul(x):
    """silu(first half of the last axis) times its second half."""
    from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction

    return LigerFusedGateUpSiLUMulFunction.apply(x, False)


def swiglu(gate, up):
    """silu(gate) * up."""
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return LigerSiLUMulFunction.apply(gate, up)


def geglu(gate, up):
    """gelu(gate, approximate="tanh") * up."""
    from liger_kernel.ops.geglu import LigerGELUMulFunction

    return LigerGELUMulFunction.apply(gate, up)


def cross_entropy(logits, labels, reduction="mean", ignore_index=-100):
    """Cross entropy of rows of logits against one label each."""
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    return LigerCrossEntropyFunction.apply(logits, labels, None, ignore_index, 0.0, 0.0, reduction, None, False)[0]


def rope(q, k, cos, sin):
    """Rotary embedding of q and k (batch, heads, length, head), by halves: two outputs."""
    from liger_kernel.ops.rope import LigerRopeFunction

    return LigerRopeFunction.apply(q, k, cos, sin)


def fused_linear_cross_entropy(x, weight, labels, bias=None, reduction="mean", ignore_index=-100):
    """Cross entropy of x @ weight.T + bias against labels, in chunks of rows."""
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    apply = LigerFusedLinearCrossEntropyFunction.apply
    return apply(x, weight, labels, bias, None, ignore_index, 0.0, 0.0, reduction)[0]
