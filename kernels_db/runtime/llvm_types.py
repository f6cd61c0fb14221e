"""How LLVM's types lie in memory on a 64-bit host: sizes, alignments, offsets of elements; read from their spelling.

Source: the LLVM language reference, "Data Layout", for x86-64 and AArch64, which agree on these types.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .errors import CompileError


@dataclass
class Type:
    """A type of LLVM's: size and alignment in bytes; offset and type of each element."""

    size: int
    alignment: int
    elements: list[tuple[int, Type]] = field(default_factory=list)


_TOKEN = re.compile(r"[a-z]\w*|\d+|[<>(),]")
_SCALAR = re.compile(r"(?:i|f|bf)(\d+)")
_known: dict[str, Type] = {}


def type_of(text: str) -> Type:
    """The layout of a type by its spelling. Raises CompileError for one that is not known here."""
    if text not in _known:
        tokens = _TOKEN.findall(text.removeprefix("!llvm."))[::-1]
        _known[text] = _parsed(tokens, text)
    return _known[text]


def _parsed(tokens: list[str], text: str) -> Type:
    """The type that `tokens` begin with, from their end; its tokens are taken."""
    head = tokens.pop() if tokens else ""
    scalar = _SCALAR.fullmatch(head)
    if scalar is not None:
        size = (int(scalar[1]) + 7) // 8
        return Type(size, min(size, 8))
    if head == "ptr":
        if tokens and tokens[-1] == "<":  # an address space
            del tokens[-3:]
        return Type(8, 8)
    if head == "array" and len(tokens) > 3:
        count = int(tokens[-2])
        del tokens[-3:]  # < count x
        element = _parsed(tokens, text)
        tokens.pop()
        return Type(count * element.size, element.alignment, [(i * element.size, element) for i in range(count)])
    if head == "struct":
        del tokens[-2:]
        return _structure(tokens, text)
    raise CompileError(f"the host function uses the type {text[:80]!r}, which is not known here")


def _structure(tokens: list[str], text: str) -> Type:
    made = Type(0, 1)
    while tokens[-1] != ")":
        element = _parsed(tokens, text)
        start = rounded(made.size, element.alignment)
        made.elements.append((start, element))
        made.size, made.alignment = start + element.size, max(made.alignment, element.alignment)
        if tokens[-1] == ",":
            tokens.pop()
    del tokens[-2:]
    made.size = rounded(made.size, made.alignment)
    return made


def rounded(value: int, to: int) -> int:
    return (value + to - 1) // to * to
