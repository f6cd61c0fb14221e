"""The code that torch.compile generates for an op's reference.

It is Triton on a GPU, C++ on a CPU. It is recorded in the runner of the `compile` baseline, which has run untrusted
code, so the text is untrusted too: a model reads it as data, and it decides nothing.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from warpsmith.kernels_db.job.documents import Generated
from warpsmith.kernels_db.job.python_parsing import parse_module

Language = Literal["triton", "cpp"]

LONGEST = 24_000
"""Characters of source that a verdict carries."""
_PARSED = 1 << 20
"""Characters of generated code that are read at all."""

_DIRECTORY = re.compile(r"(?<![\w.<])(?:/[\w.+@-]+){2,}/?")
_JIT = re.compile(r"^@triton\.jit$", re.MULTILINE)
_EXTERN = re.compile(r"\bextern_kernels\.(\w+)\(|\btorch\.ops\.(aten\.\w+)")
_KINDS: dict[str, Language] = {"triton": "triton", "cpp_pybinding": "cpp", "cpp": "cpp"}
"""Methods of Inductor's AsyncCompile that take a kernel's source, with its language."""


def watch(kept: deque[str]) -> None:
    """Have Inductor append each graph's output code to `kept`, in this process, from now on."""
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415 - takes seconds; only compiling runners pay

    GraphLowering.save_output_code = staticmethod(kept.append)


def kernels_of(codes: Sequence[str]) -> Generated | None:
    """Return the kernels in Inductor's output code; None where it made none.

    The code that calls them, directories and headers are left out.

    `codes`: one Python module for each graph. Library calls between the kernels are named in a comment at the top.
    """
    sources: list[tuple[Language, str]] = []
    calls: dict[str, None] = {}
    for code in codes:
        text = code[:_PARSED]
        try:
            tree = parse_module(text)
        except (SyntaxError, ValueError):
            continue  # it was cut, or is no code of Inductor's
        sources += _kernels(tree)
        code_alone = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        calls.update(dict.fromkeys(one or other for one, other in _EXTERN.findall(code_alone)))
    if not sources:
        return None
    language = sources[0][0]
    head: list[str] = []
    if calls:
        mark = "#" if language == "triton" else "//"
        head = [f"{mark} between the kernels it calls: {', '.join(list(calls)[:20])}"]
    source = "\n\n".join([*head, *(source for _, source in sources)])
    # ASCII: a message has room for LONGEST characters, not for as many escapes.
    return {"language": language, "source": cut(source.encode("ascii", "replace").decode(), LONGEST)}


def checked(answer: Any) -> Generated | None:
    """Return a runner's answer where it has the form of generated code; otherwise None."""
    if not isinstance(answer, dict):
        return None
    language, source = answer.get("language"), answer.get("source")
    if language not in ("triton", "cpp") or not isinstance(source, str) or not source.strip():
        return None
    return {"language": language, "source": cut(source, LONGEST)}


def cut(source: str, limit: int) -> str:
    """Return `source` within `limit` characters.

    Whole lines of its beginning and its end, and how many were left out.
    """
    if len(source) <= limit:
        return source
    lines = source.splitlines()
    head: list[str] = []
    tail: list[str] = []
    room = limit - 80
    for line in lines:
        if (room := room - len(line) - 1) < limit // 3:
            break
        head.append(line)
    for line in reversed(lines[len(head) :]):
        if (room := room - len(line) - 1) < 0:
            break
        tail.append(line)
    left_out = len(lines) - len(head) - len(tail)
    return "\n".join([*head, f"[... {left_out} lines left out ...]", *reversed(tail)])


def _kernels(tree: ast.Module) -> list[tuple[Language, str]]:
    """(language, source) of each `name = async_compile.<kind>(..., '''source''')`."""
    found = []
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        function = node.value.func
        if not isinstance(function, ast.Attribute) or function.attr not in _KINDS:
            continue
        texts = [one.value for one in node.value.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if texts:
            language = _KINDS[function.attr]
            found.append((language, _trimmed(max(texts, key=len), language, _name(node))))
    return found


def _trimmed(source: str, language: str, name: str) -> str:
    """Return one kernel's source without its preamble.

    A C++ one, which Inductor calls `kernel`, gets the name it goes by.
    """
    text = textwrap.dedent(source).strip("\n")
    if language == "triton":
        if (jit := _JIT.search(text)) is not None:
            text = text[jit.start() :]
    else:
        kept = [line for line in text.splitlines() if not line.lstrip().startswith("#include")]
        text = "\n".join([f"// {name}", *kept])
    return _DIRECTORY.sub("", text).strip("\n")


def _name(node: ast.Assign) -> str:
    return node.targets[0].id if isinstance(node.targets[0], ast.Name) else "kernel"
