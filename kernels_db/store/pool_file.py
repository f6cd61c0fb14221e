"""The pool file.

Recorded model replies as JSON lines, a header first. Reading and writing are pure; the store keeps the rows.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, cast

from warpsmith.kernels_db.job.strict_json import UNSTORABLE, NotJson, expected_scalar, read_strictly, walk

FORMAT = "warpsmith-pool"
VERSION = 1
KINDS = ("reflect", "ideate", "code", "repair")
MAX_REPLIES = 100_000
MAX_HEADER_CHARS = 64 * 1024
MAX_REPLY_CHARS = 2_000_000

_DIGEST = re.compile(r"[0-9a-f]{64}")


class PoolError(ValueError):
    """A pool that cannot be read.

    It says which line (from 1), which field, what was found and what was expected.
    """

    def __init__(self, line: int, field: str, found: object, expected: str) -> None:
        shown = repr(found)
        super().__init__(f"line {line}, {field}: found {shown[:120]}, expected {expected}")
        self.line = line
        self.field = field
        self.found = found
        self.expected = expected


@dataclass(frozen=True)
class PoolHeader:
    """The origin of a pool.

    `op_digest` is the op's semantic digest; `recorded_at` is epoch seconds (UTC).
    """

    op: str
    op_digest: str
    target: str
    language: str
    answered_by: str
    recorded_at: float
    warpsmith_version: str
    policy: dict[str, Any]
    budget: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """Return the header's line."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


@dataclass(frozen=True)
class PoolReply:
    """One recorded reply.

    (`request`, `ordinal`) is its key: the request's identity and the number of the re-ask (0 for the first).
    `summary` is for people: the request in one line. Tokens are None where they were not counted; `latency_s` is
    in seconds.
    """

    request: str
    ordinal: int
    kind: str
    summary: str
    reply: str
    finish_reason: str | None
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_s: float | None

    def document(self) -> dict[str, Any]:
        """Return the reply's line, which `PoolReplyRow.reply` holds, too."""
        return vars(self).copy()


@dataclass(frozen=True)
class Pool:
    """A header and its replies, no two with the same key."""

    header: PoolHeader
    replies: tuple[PoolReply, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the pool's text: the same pool is stored once."""
        found = hashlib.sha256()
        for line in _dump_lines(self):
            found.update(line.encode() + b"\n")
        return found.hexdigest()


def summary(kind: str, idea: Mapping[str, Any] | None, variant: int) -> str:
    """Describe a request in one line for people."""
    if kind == "ideate":
        return "ideas on the reference" if idea is None else f"ideas on '{idea['title']}' ({idea['technique']})"
    if kind == "reflect":
        return "lessons of the rounds so far"
    if idea is None:
        return f"{kind} without an idea, variant {variant}"
    return f"{kind} '{idea['title']}' ({idea['technique']}), variant {variant}"


def dump_pool(pool: Pool) -> str:
    """Return the pool as JSON lines.

    Keys sorted, text as UTF-8, one newline after each line. Parsing it gives an equal pool.
    """
    return "\n".join(_dump_lines(pool)) + "\n"


def _dump_lines(pool: Pool) -> Iterator[str]:
    lines: tuple[PoolHeader | PoolReply, ...] = (pool.header, *pool.replies)
    for line in lines:
        # NEL, LS and PS are no line ends in JSON lines, but editors and `str.splitlines` take them for some.
        yield json.dumps(line.document(), ensure_ascii=False, sort_keys=True, allow_nan=False).translate(_LINE_ENDS)


_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x7F, 0x85, 0x2028, 0x2029)}


def parse_pool(text: str) -> Pool:
    """Read a pool; raises `PoolError`. Blank lines are skipped."""
    work = parse_pool_stepwise(text)
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return cast("Pool", stop.value)


def parse_pool_stepwise(text: str) -> Generator[None, None, Pool]:
    """Read a pool as `parse_pool` does; yields after each reply."""
    if (ends := text.count("\n")) > 2 * MAX_REPLIES:
        raise PoolError(1, "lines", ends, f"at most {2 * MAX_REPLIES} lines, blank ones included")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise PoolError(1, "header", "", "a JSON object with format, version and the header's fields")
    if len(lines) - 1 > MAX_REPLIES:
        raise PoolError(lines[MAX_REPLIES + 1][0], "replies", len(lines) - 1, f"at most {MAX_REPLIES} replies")
    number, line = lines[0]
    if len(line) > MAX_HEADER_CHARS:
        raise PoolError(number, "line", f"{len(line)} characters", f"one JSON object of at most {MAX_HEADER_CHARS}")
    header = _header(number, _object(number, line))
    replies: list[PoolReply] = []
    seen: dict[tuple[str, int], int] = {}
    for number, line in lines[1:]:
        reply = _reply(number, _object(number, line))
        first = seen.setdefault((reply.request, reply.ordinal), number)
        if first != number:
            raise PoolError(
                number, "request", reply.request, f"another request or ordinal: line {first} already answers this one"
            )
        replies.append(reply)
        yield
    return Pool(header, tuple(replies))


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        document = read_strictly(line)
    except NotJson as error:
        raise PoolError(number, "line", line.strip()[:60], f"one JSON object ({error})") from error
    if not isinstance(document, dict):
        raise PoolError(number, "line", document, "one JSON object")
    return document


def _header(number: int, document: dict[str, Any]) -> PoolHeader:
    if document.get("format") != FORMAT:
        raise PoolError(number, "format", document.get("format"), repr(FORMAT))
    if document.get("version") != VERSION or isinstance(document["version"], bool):
        raise PoolError(number, "version", document.get("version"), str(VERSION))
    _only(number, document, {"format", "version", *(field.name for field in fields(PoolHeader))})
    return PoolHeader(
        op=_string(number, document, "op", 1, 128),
        op_digest=_digest(number, document, "op_digest"),
        target=_string(number, document, "target", 1, 64),
        language=_string(number, document, "language", 1, 16),
        answered_by=_string(number, document, "answered_by", 1, 128),
        recorded_at=_seconds(number, document, "recorded_at"),
        warpsmith_version=_string(number, document, "warpsmith_version", 1, 64),
        policy=_mapping(number, document, "policy"),
        budget=_mapping(number, document, "budget"),
    )


def _reply(number: int, document: dict[str, Any]) -> PoolReply:
    _only(number, document, {field.name for field in fields(PoolReply)})
    kind = _string(number, document, "kind", 1, 16)
    if kind not in KINDS:
        raise PoolError(number, "kind", kind, f"one of {', '.join(KINDS)}")
    return PoolReply(
        request=_digest(number, document, "request"),
        ordinal=_count(number, document, "ordinal"),
        kind=kind,
        summary=_string(number, document, "summary", 0, 1000),
        reply=_string(number, document, "reply", 0, MAX_REPLY_CHARS),
        finish_reason=_optional(_string, number, document, "finish_reason", 0, 32),
        model=_optional(_string, number, document, "model", 0, 128),
        prompt_tokens=_optional(_count, number, document, "prompt_tokens"),
        completion_tokens=_optional(_count, number, document, "completion_tokens"),
        latency_s=_optional(_seconds, number, document, "latency_s"),
    )


def _only(number: int, document: dict[str, Any], known: set[str]) -> None:
    for field in sorted(document.keys() - known):
        raise PoolError(number, field, document[field], f"no such field; known are {', '.join(sorted(known))}")


def _field(number: int, document: dict[str, Any], field: str, expected: str) -> Any:
    if field not in document:
        raise PoolError(number, field, "nothing", expected)
    return document[field]


def _optional(read: Any, number: int, document: dict[str, Any], field: str, *limits: int) -> Any:
    return None if document.get(field) is None else read(number, document, field, *limits)


def _string(number: int, document: dict[str, Any], field: str, shortest: int, longest: int) -> str:
    expected = f"text of {shortest} to {longest} characters, without NUL or lone surrogates"
    value = _field(number, document, field, expected)
    if not isinstance(value, str) or not shortest <= len(value) <= longest or UNSTORABLE.search(value):
        raise PoolError(number, field, value, expected)
    return value


def _digest(number: int, document: dict[str, Any], field: str) -> str:
    value = _field(number, document, field, "64 hexadecimal digits")
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise PoolError(number, field, value, "64 lower-case hexadecimal digits")
    return value


def _count(number: int, document: dict[str, Any], field: str) -> int:
    value = _field(number, document, field, "a whole number, 0 or more")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise PoolError(number, field, value, "a whole number, 0 or more, below 2**31")
    return value


def _seconds(number: int, document: dict[str, Any], field: str) -> float:
    value = _field(number, document, field, "seconds, 0 or more")
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < 1e12
        or not math.isfinite(value)
    ):
        raise PoolError(number, field, value, "seconds, 0 or more")
    return float(value)


def _mapping(number: int, document: dict[str, Any], field: str) -> dict[str, Any]:
    value = _field(number, document, field, "a JSON object")
    if not isinstance(value, dict):
        raise PoolError(number, field, value, "a JSON object")
    for _, _, part in walk(value):
        if isinstance(part, str | float) and (expected := expected_scalar(part)) is not None:
            raise PoolError(number, field, part, expected)
    return value
