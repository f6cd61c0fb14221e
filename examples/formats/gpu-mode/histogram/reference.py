import torch
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    return torch.bincount(data, minlength=256)


def generate_input(size: int, contention: float, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    data = torch.randint(0, 256, (size,), device="cuda", dtype=torch.uint8, generator=gen)
    frequent = torch.randint(0, 256, (), device="cuda", dtype=torch.uint8, generator=gen)
    where = torch.rand((size,), device="cuda", generator=gen) < contention / 100.0
    data[where] = frequent
    return data.contiguous()


def check_implementation(data, output):
    return torch.equal(output, ref_kernel(data)), ""
