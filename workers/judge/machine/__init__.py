"""Device, memory, processes and host, as Linux and CUDA offer them."""
