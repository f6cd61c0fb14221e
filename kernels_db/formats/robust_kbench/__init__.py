"""Imports of the tasks of robust-kbench."""
