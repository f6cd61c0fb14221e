"""What is kept: ops, searches, kernels; their migrations; import and export formats."""
