"""FlashInfer: CUDA kernels for serving language models, which compile when they are first called.

Written for flashinfer-python 0.7.2.post1.
"""


def rms_norm(x, weight, eps=1e-6):
    """RMS norm over the last axis."""
    from flashinfer.norm import rmsnorm

    return rmsnorm(x, weight, eps)


def fused_add_rms_norm(x, residual, weight, eps=1e-6):
    """In place: residual becomes x + residual, and x the RMS norm of that. Both are mutated inputs of the op."""
    from flashinfer.norm import fused_add_rmsnorm

    fused_add_rmsnorm(x, residual, weight, eps)


def silu_and_mul(x):
    """silu(first half of the last axis) times its second half."""
    from flashinfer.activation import silu_and_mul

    return silu_and_mul(x)


def decode_attention(q, k, v, layout="NHD", scale=None):
    """Attention of one position: q (heads, head) over k and v (length, kv heads, head), or HND."""
    from flashinfer.decode import single_decode_with_kv_cache

    return single_decode_with_kv_cache(q, k, v, layout, sm_scale=scale)
