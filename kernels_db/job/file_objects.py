"""Objects of a file's own classes among its data: which attributes they have, and source that makes them again.

A spec's inputs are tensors and numbers. An object is made again without its constructor, which may draw values.
"""

from __future__ import annotations

SOURCE = '''

def _object(kind, attributes, parameters=(), buffers=()):
    """Make an object of a class with these attributes, without calling its constructor."""
    import torch

    made = kind.__new__(kind)
    if isinstance(made, torch.nn.Module):
        torch.nn.Module.__init__(made)
    for name, value in attributes.items():
        if name in parameters:
            made.register_parameter(name, torch.nn.Parameter(value, requires_grad=False))
        elif name in buffers:
            made.register_buffer(name, value)
        else:
            vars(made)[name] = value
    return made
'''
"""Defines `_object`. It is part of the specs of tasks, and needs nothing of Warpsmith."""
