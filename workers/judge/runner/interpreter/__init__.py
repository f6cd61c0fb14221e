"""What Triton's interpreter, which stands in for a GPU, does otherwise than one: launches, products, gaps."""
