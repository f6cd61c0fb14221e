"""Import ops and kernels from the file formats of other projects."""
