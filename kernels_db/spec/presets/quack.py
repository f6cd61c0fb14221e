"""QuACK, the forward passes: kernels in CuTe DSL for Hopper and later, which compile when they are first called.

Written for quack-kernels 0.6.5.
"""


def rms_norm(x, weight, eps=1e-6):
    """RMS norm over the last axis."""
    from quack.rmsnorm import rmsnorm

    return rmsnorm(x, weight, eps=eps)


def layer_norm(x, weight, bias, eps=1e-5):
    """Layer norm over the last axes, those of weight and bias, which are float32."""
    from quack.rmsnorm import layernorm_fwd

    n = weight.numel()
    return layernorm_fwd(x.reshape(-1, n), weight.reshape(n), bias.reshape(n), eps=eps).view(x.shape)


def softmax(x):
    """Softmax over the last axis."""
    from quack.softmax import softmax_fwd

    return softmax_fwd(x.reshape(-1, x.shape[-1])).view(x.shape)


def cross_entropy(logits, labels, ignore_index=-100):
    """Cross entropy of rows of logits against one label each, without reduction, rounded to the logits' dtype."""
    from quack.cross_entropy import cross_entropy_fwd

    return cross_entropy_fwd(logits, labels, ignore_index=ignore_index).to(logits.dtype)
