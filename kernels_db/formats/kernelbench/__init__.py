"""KernelBench: problems as ops, `ModelNew` as kernels."""
