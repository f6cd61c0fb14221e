"""FlashInfer-Bench: Definitions with their workloads as ops, Solutions as kernels."""
