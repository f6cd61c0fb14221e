"""Kernels and the user's models: what is worth a kernel, kernels put into a model, what each of them brings.

`python -m warpsmith.workers.optimize` does the work in a process of its own; `client.py` starts it, and needs no torch.
"""
