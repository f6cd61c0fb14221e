import torch

input_t = tuple[torch.Tensor, dict[str, torch.Tensor], dict[str, object]]
output_t = torch.Tensor
