"""Reproducible measurements of Warpsmith itself; each module is a command that prints a table."""
