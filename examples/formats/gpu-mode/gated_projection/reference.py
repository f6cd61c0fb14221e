import math

import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    x, weights, config = data
    gate = torch.sigmoid(x @ weights["gate.weight"].T)
    out = (x @ weights["up.weight"].T) * gate / config["hidden"]
    return torch.tanh(out) if config["mode"] == "tanh" else out


def generate_input(tokens: int, dim: int, hidden: int, mode: str, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    weights = {
        "gate.weight": torch.randn(hidden, dim, device="cuda", generator=gen) / math.sqrt(dim),
        "up.weight": torch.randn(hidden, dim, device="cuda", generator=gen) / math.sqrt(dim),
    }
    return torch.randn(tokens, dim, device="cuda", generator=gen), weights, {"hidden": hidden, "mode": mode}


check_implementation = make_match_reference(ref_kernel, rtol=1e-5, atol=1e-6)
