"""Reproducible measurements of Warpsmith; each module is a command that prints a table."""
