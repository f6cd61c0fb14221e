"""GPU MODE: tasks as ops, submissions as kernels."""
