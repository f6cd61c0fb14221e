"""Put exported kernels into a model and take them out again.

PyTorch alone is needed: `warpsmith apply` writes a copy of these modules for the user's own process.
"""
