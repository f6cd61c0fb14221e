"""Kernels and the user's models: which regions are worth a kernel, what each kernel brings.

`python -m warpsmith.workers.optimize` does the work in a process of its own; `client.py` starts it, and needs no torch.
"""
