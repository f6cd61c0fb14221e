"""From a model's reply to ideas or to one candidate's source: pure, bounded, and never surprised by arbitrary text.

What cannot be read raises `Unreadable`, whose `problem` is written for the model: it goes into the re-ask.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from workers.model.base import ModelReply
from workers.model.text import middle_cut, one_line, storable

MAX_REASKS = 2
"""Re-asks of one attempt after an unreadable reply; then the branch closes."""

MAX_REPLY_CHARS = 400_000
MAX_SOURCE_CHARS = 200_000
MAX_FIELD_CHARS = 4_000
_MAX_OBJECT_TRIES = 200
_MAX_OBJECT_CHARS = 40_000
_KNOWN_ESCAPE = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')

Technique = Literal[
    "memory_access", "asynchrony", "precision", "compute", "parallelism", "control_flow", "fusion", "algorithm"
]
TECHNIQUES: tuple[str, ...] = get_args(Technique)

# What models write instead of the names that they were given.
_ALIASES = {
    "memory": "memory_access",
    "memory_layout": "memory_access",
    "memory_coalescing": "memory_access",
    "coalescing": "memory_access",
    "data_layout": "memory_access",
    "locality": "memory_access",
    "cache": "memory_access",
    "cache_blocking": "memory_access",
    "tiling": "memory_access",
    "blocking": "memory_access",
    "bandwidth": "memory_access",
    "streaming_stores": "memory_access",
    "async": "asynchrony",
    "asynchronous": "asynchrony",
    "latency": "asynchrony",
    "latency_hiding": "asynchrony",
    "asynchrony_and_latency_hiding": "asynchrony",
    "prefetch": "asynchrony",
    "prefetching": "asynchrony",
    "pipelining": "asynchrony",
    "overlap": "asynchrony",
    "data_type": "precision",
    "dtype": "precision",
    "data_type_and_precision": "precision",
    "mixed_precision": "precision",
    "numerics": "precision",
    "instruction": "compute",
    "instructions": "compute",
    "instruction_level": "compute",
    "compute_and_instruction": "compute",
    "vectorization": "compute",
    "vectorisation": "compute",
    "simd": "compute",
    "tensor_cores": "compute",
    "math": "compute",
    "threading": "parallelism",
    "multithreading": "parallelism",
    "occupancy": "parallelism",
    "parallelism_and_occupancy": "parallelism",
    "scheduling": "parallelism",
    "load_balancing": "parallelism",
    "control": "control_flow",
    "loops": "control_flow",
    "loop": "control_flow",
    "loop_unrolling": "control_flow",
    "unrolling": "control_flow",
    "control_flow_and_loops": "control_flow",
    "branching": "control_flow",
    "specialization": "control_flow",
    "specialisation": "control_flow",
    "kernel_fusion": "fusion",
    "operator_fusion": "fusion",
    "algorithmic": "algorithm",
    "algorithms": "algorithm",
}


class Idea(TypedDict):
    """One optimisation in prose. Plain text throughout; `title` is one line."""

    technique: str
    title: str
    mechanism: str
    evidence: str
    expected_gain: str
    risk: str
    sketch: str


_REQUIRED = ("technique", "title", "mechanism")


class Unreadable(ValueError):  # noqa: N818 - named for what the reply is
    """A reply that cannot be used as it is; `problem` says why, in words for its author."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def technique(name: object) -> str | None:
    """The technique that `name` means, or None."""
    if not isinstance(name, str) or len(name) > 200:
        return None
    key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return key if key in TECHNIQUES else _ALIASES.get(key)


def ideas(reply: ModelReply, expected: int) -> list[Idea]:
    """The ideas of `reply`, at most `expected`, in order.

    Readable ones count even when others are not, or the end was cut off.
    """
    text = _bounded(reply)
    found: list[Idea] = []
    problems: list[str] = []
    for entry in _objects(text):
        if len(found) == expected:
            break
        try:
            idea = _idea(entry)
        except Unreadable as unreadable:
            problems.append(unreadable.problem)
            continue
        if idea["title"].lower() not in {other["title"].lower() for other in found}:
            found.append(idea)
    if found:
        return found
    if problems:
        raise Unreadable(f"No usable idea among {len(problems)}: {'; '.join(problems[:3])}.")
    if reply.finish_reason == "length":
        raise Unreadable(
            "The reply was cut off at the token limit before the first complete idea. Answer with the JSON list alone."
        )
    raise Unreadable(f"There is no JSON list of ideas in the reply, which begins: {_beginning(text)}")


def code(reply: ModelReply) -> str:
    """The candidate's source.

    The last complete code block that defines `run`, or the whole reply where it is nothing but code.
    """
    source = _source(_bounded(reply), cut=reply.finish_reason == "length")
    if len(source) > MAX_SOURCE_CHARS:
        raise Unreadable(f"The file has {len(source)} characters; at most {MAX_SOURCE_CHARS} are taken.")
    return source


def _source(text: str, *, cut: bool) -> str:
    blocks = list(_blocks(text))
    whole = [block for block in blocks if block.closed and _defines_run(block.text)]
    if whole:
        return whole[-1].text
    if cut or any(not block.closed and _defines_run(block.text) for block in blocks):
        raise Unreadable("The code was cut off before its end. Answer with one complete code block and no text around.")
    if blocks:
        raise Unreadable(
            "No code block defines the entry point `def run(...)` in Python. One block must hold the whole file."
        )
    if _is_python_with_run(text):
        return text.strip("\n") + "\n"
    raise Unreadable(f"There is no fenced code block in the reply, which begins: {_beginning(text)}")


def _bounded(reply: ModelReply) -> str:
    text = storable(reply.text).replace("\r\n", "\n")
    if len(text) > MAX_REPLY_CHARS:
        raise Unreadable(f"The reply has {len(text)} characters; at most {MAX_REPLY_CHARS} are read.")
    if not text.strip() and reply.finish_reason == "length":
        raise Unreadable(
            "The reply holds no text: the token limit was reached before the answer began. Answer at once."
        )
    if not text.strip():
        raise Unreadable("The reply is empty.")
    return text


def _beginning(text: str) -> str:
    return repr(one_line(text, 120))


# Ideas


def _idea(entry: dict[str, Any]) -> Idea:
    title = one_line(_text(entry.get("title")), 160)
    name = title or "an idea without a title"
    for field in _REQUIRED:
        if not _text(entry.get(field)):
            raise Unreadable(f"{name!r} has no {field}")
    known = technique(entry["technique"])
    if known is None:
        raise Unreadable(
            f"{name!r} has technique {_beginning(str(entry['technique']))}, expected one of {', '.join(TECHNIQUES)}"
        )
    return Idea(
        technique=known,
        title=title,
        mechanism=_text(entry.get("mechanism")),
        evidence=_text(entry.get("evidence")),
        expected_gain=_text(entry.get("expected_gain")),
        risk=_text(entry.get("risk")),
        sketch=_text(entry.get("sketch")),
    )


def _text(value: object) -> str:
    """`value` as text: models put lists and numbers where prose was asked for."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        text = "\n".join(value)
    elif value is None or isinstance(value, bool):
        return ""
    else:
        text = json.dumps(value, ensure_ascii=False)
    return middle_cut(storable(text).strip(), MAX_FIELD_CHARS)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of `text` that look like ideas.

    In a list, in a wrapper, in or out of a fence; the complete ones of a list that was cut short.
    """
    decoder = json.JSONDecoder(strict=False)
    position = 0
    for _ in range(_MAX_OBJECT_TRIES):
        position = text.find("{", position)
        if position < 0:
            return
        value, end = _decode(decoder, text, position)
        if isinstance(value, dict) and ("title" in value or "technique" in value):
            yield value
            position = end
        else:
            position += 1  # a wrapper, or something else: look inside


def _decode(decoder: json.JSONDecoder, text: str, start: int) -> tuple[Any, int]:
    """The value that begins at `start` and the index after it; (None, start) where there is none."""
    with suppress(ValueError, RecursionError):
        return decoder.raw_decode(text, start)
    cleaned, end = _lenient(text, start)
    with suppress(ValueError, RecursionError):
        return decoder.decode(cleaned), end
    return None, start


def _lenient(text: str, start: int) -> tuple[str, int]:
    """The object at `start` without what models add to JSON.

    Comments, trailing commas, escapes that JSON does not know.

    Returns its text and the index after it. One pass by hand: a regular expression for this can be made to run for
    ever.
    """
    out: list[str] = []
    depth, i = 0, start
    end = min(len(text), start + _MAX_OBJECT_CHARS)
    while i < end:
        char = text[i]
        step = 1
        if char == '"':
            piece, step = _string(text, i, end)
        elif text.startswith("//", i):
            piece, step = " ", _length_to(text, "\n", i, end)
        elif text.startswith("/*", i):
            piece, step = " ", _length_to(text, "*/", i, end)
        else:
            piece = char
        if char in "]}":
            while out and out[-1].isspace():
                out.pop()
            if out and out[-1] == ",":
                out.pop()
        depth += (char in "[{") - (char in "]}")
        out.append(piece)
        i += step
        if depth == 0:
            break
    return "".join(out), i


def _string(text: str, start: int, end: int) -> tuple[str, int]:
    """The JSON string at `start` with unknown escapes doubled, and the number of characters it took."""
    out = ['"']
    i = start + 1
    while i < end and text[i] != '"':
        if text[i] == "\\":
            known = _KNOWN_ESCAPE.match(text, i + 1, i + 6)
            out.append(text[i : i + 2] if known else "\\" + text[i : i + 2])
            i += 2
        else:
            out.append(text[i])
            i += 1
    out.append('"')
    return "".join(out), i + 1 - start


def _length_to(text: str, mark: str, start: int, end: int) -> int:
    found = text.find(mark, start, end)
    return (end if found < 0 else found + len(mark)) - start


# Code


@dataclass(frozen=True)
class _Block:
    text: str
    closed: bool


_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$")


def _blocks(text: str) -> Iterator[_Block]:
    """Fenced blocks as CommonMark has them.

    A fence closes with at least as many of the same character; the last may stay open.
    """
    fence: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence is None:
            if match and not (match["fence"][0] == "`" and "`" in match["info"]):
                fence, lines = match["fence"], []
        elif match and match["fence"].startswith(fence) and not match["info"].strip():
            yield _Block("\n".join([*lines, ""]), closed=True)
            fence = None
        else:
            lines.append(line)
    if fence is not None:
        yield _Block("\n".join([*lines, ""]), closed=False)


def _defines_run(source: str) -> bool:
    return re.search(r"^def run\s*\(", source, re.MULTILINE) is not None


def _is_python_with_run(text: str) -> bool:
    if not _defines_run(text):
        return False
    try:
        with warnings.catch_warnings():  # an invalid escape in somebody's string is not this process's warning
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
