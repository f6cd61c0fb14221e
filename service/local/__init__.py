"""This machine: its devices, its home directory, its processes, its own judge runs."""
