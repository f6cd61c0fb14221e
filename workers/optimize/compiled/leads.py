"""What an op's leading axis may be in a graph: a reference is traced for each, so as few as possible are proposed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from . import inductor, match
from .patterns import Lead
from .served import SOME, Ones, Served, ones

MOST_LEADING = 3
"""Axes of a tensor in a model where an op has its first: batch, positions, heads."""


def _could_stand(plain: match.Pattern, operators: set[str]) -> bool:
    """Return whether a graph has the operators of a reference with one leading axis.

    With other leads only views differ, and which product of matrices it is. Each tracing takes a tenth of a second.
    """
    return {name for name in operators_of(plain) if not _PRODUCT.match(name)} <= operators


_PRODUCT = re.compile(r"aten\.(mm|bmm|addmm|baddbmm)\.")


def operators_of(pattern: match.Pattern) -> set[str]:
    """Return the operators of a reference, views and casts of its indices aside."""
    seen, waiting = set(), list((pattern.as_int64() or pattern).outputs)
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in seen:
            seen.add(node)
            waiting += node.all_input_nodes
    return {str(node.target) for node in seen if not match.is_view(node)}


class Read:
    """The shapes of a graph's tensors, each with the operators that read one of that shape."""

    def __init__(self, graph: fx.Graph) -> None:
        self.readers: dict[tuple[tuple[int, ...], torch.device], set[str]] = {}
        for node in graph.nodes:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            sizes = tuple(size for size in map(inductor.hint, value.shape) if size is not None)
            if len(sizes) == value.dim():
                self.readers.setdefault((sizes, torch.device(value.device.type)), set()).update(_readers(node))
        self._ones = set(ones(tuple(sizes for sizes, _ in self.readers)))

    def has(self, kind: Ones) -> bool:
        """Return whether there is a tensor for each of an op's whose last axes have one element where it says so."""
        return all(any(own[max(len(own) - len(each), 0) :] == each for own in self._ones) for each in kind)


def _readers(node: fx.Node) -> set[str]:
    """Return the operators that read a tensor, or a view or a copy of it; products of matrices are one, and that of a
    single row may be a sum of products.
    """
    found, waiting = set(), [node]
    while waiting:
        for user in waiting.pop().users:
            named = str(user.target)
            if match.is_view(user) or named == "aten.clone.default":
                waiting.append(user)
            elif user.op == "call_function":
                found.add("product" if _PRODUCT.match(named) else named)
                if named == "aten.mul.Tensor" and any(
                    str(each.target) == "aten.sum.dim_IntList" for each in user.users
                ):
                    found.add("product")
    return found


def leads(read: Read, kernel: Served, operators: set[str]) -> list[tuple[Lead, torch.device]]:
    """Return the kinds of leading sizes in a graph that a kernel may have: those of its tensors without the axes that
    the kernel's first tensor has behind its own, where an operator reads one that reads the kernel's first tensor.
    """
    found: dict[tuple[Lead, torch.device], None] = {}
    for device in dict.fromkeys(device for _, device in read.readers if device.type in kernel.devices):
        plain = [pattern for _, pattern in kernel.patterns(SOME[:1], device, read.has)]
        if plain and not any(_could_stand(each, operators) for each in plain):
            continue
        if kernel.leading is None:
            found[SOME[:1], device] = None  # its shapes are its own
            continue
        wanted = {reader for each in plain for reader in _readers(each.inputs[0])}
        for (sizes, own), readers in read.readers.items():
            leading = len(sizes) - kernel.behind
            if own == device and 1 <= leading <= MOST_LEADING and (not wanted or wanted & readers):
                found[kind(sizes[:leading]), device] = None
    return list(found)


def kind(sizes: Sequence[Any]) -> Lead:
    """Return the lead that stands for these sizes: which of them are 1 is all that a reference's graph shows."""
    return tuple(1 if size == 1 else SOME[axis % len(SOME)] for axis, size in enumerate(sizes))
