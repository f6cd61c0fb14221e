"""The libraries that PyTorch brings, each by itself, where its own choice may take another.

Written for torch 2.11. q, k and v: (batch, heads, length, head).
"""


def cudnn_attention(q, k, v, mask=None, causal=False, scale=None, grouped=False):
    """Scaled dot product attention by cuDNN. `grouped`: fewer heads of k and v than of q."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        )


def flash_attention(q, k, v, causal=False, scale=None, grouped=False):
    """Scaled dot product attention by PyTorch's copy of FlashAttention. `grouped`: fewer heads of k and v than of q."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped
        )


def cublaslt_scaled_mm(a, b, scale_a, scale_b, dtype=None):
    """a @ b in 8 bits by cuBLASLt, scaled, as `dtype` (of torch); b is column-major, a view by .t()."""
    import torch

    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype)
