"""Documents of recorded calls: read, merge and write them. Standard library only."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.strict_json import NotJson, read_strictly

FORMAT = 1
"""Version of the document."""

LARGEST_FILE = 64 << 20
"""Bytes of the largest file that is read."""


class BadCalls(ValueError):  # noqa: N818 - named for what was found
    """A file that holds no recorded calls; the message names it, what was found and what was expected."""

    def __init__(self, place: str, found: object, expected: str) -> None:
        super().__init__(f"{place}: found {found!r}, expected {expected}")
        self.place, self.found, self.expected = place, found, expected


@dataclass(frozen=True)
class TensorOf:
    """A tensor of a call. `strides`: in elements, None where it is contiguous."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...] | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        found: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype, "device": self.device}
        return found if self.strides is None else found | {"strides": list(self.strides)}


Argument = TensorOf | str
"""A tensor, or the name of another value's type."""

Named = tuple[tuple[str, Argument], ...]


@dataclass(frozen=True)
class Call:
    """One kind of call. `name`: the function or the module's class, dotted; `parameters`: the module's own."""

    kind: str  # function, module
    name: str
    arguments: tuple[Argument, ...] = ()
    keywords: Named = ()
    parameters: Named = ()

    def document(self, count: int) -> dict[str, Any]:
        """Return it as JSON has it, made `count` times."""
        found: dict[str, Any] = {"kind": self.kind, "name": self.name, "count": count}
        if self.arguments:
            found["arguments"] = [_shown(item) for item in self.arguments]
        for name, held in (("keywords", self.keywords), ("parameters", self.parameters)):
            if held:
                found[name] = {key: _shown(item) for key, item in held}
        return found


@dataclass
class Calls:
    """Recorded calls of one process or several.

    `dropped`: how many calls of a name were not kept, because there were too many kinds. `files`: where they come from.
    """

    counts: dict[Call, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return them as JSON has them, the most frequent first."""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0].name))
        return {
            "warpsmith_calls": FORMAT,
            "calls": [call.document(count) for call, count in ordered],
            "dropped": dict(self.dropped),
            "notes": dict(self.notes),
        }

    def by_name(self) -> dict[str, int]:
        """Return how often each function or class was called, the most frequent first."""
        totals: dict[str, int] = {}
        for call, count in self.counts.items():
            totals[call.name] = totals.get(call.name, 0) + count
        return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))

    def add(self, other: Calls) -> None:
        """Add the calls of another process."""
        pairs: Sequence[tuple[dict[Any, int], Mapping[Any, int]]] = (
            (self.counts, other.counts),
            (self.dropped, other.dropped),
            (self.notes, other.notes),
        )
        for mine, theirs in pairs:
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count
        self.files += other.files


def write_calls(calls: Calls, path: Path) -> None:
    """Write the document so that a reader finds the old one or the new one, never a part. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        beside.write_text(json.dumps(calls.document(), indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def file_of_process(path: Path) -> Path:
    """Return this process's own file beside `path`: `calls.json` becomes `calls-HOST-PID-RANDOM.json`."""
    host = re.sub(r"[^A-Za-z0-9_.]", "_", socket.gethostname())[:64] or "host"
    return path.with_name(f"{path.stem}-{host}-{os.getpid()}-{secrets.token_hex(2)}{path.suffix}")


def files_of(path: Path) -> list[Path]:
    """Return `path`, where it exists, and the files of processes beside it."""
    own = re.compile(rf"{re.escape(path.stem)}-[A-Za-z0-9_.]+-\d+-[0-9a-f]{{4}}{re.escape(path.suffix)}")
    parts = [each for each in path.parent.glob("*") if own.fullmatch(each.name)] if path.parent.is_dir() else []
    return [*([path] if path.is_file() else []), *sorted(parts)]


def read_calls(paths: Iterable[Path]) -> Calls:
    """Read the calls in the files that each path stands for (`files_of`), and merge them.

    Raises BadCalls: no file, or one that holds something else.
    """
    merged = Calls()
    for path in paths:
        files = files_of(path)
        if not files:
            raise BadCalls(str(path), None, f"a file of recorded calls, or files {path.stem}-HOST-PID-*{path.suffix}")
        for file in files:
            if file not in merged.files:
                merged.add(_read(file))
    return merged


def _read(file: Path) -> Calls:
    try:
        if (size := file.stat().st_size) > LARGEST_FILE:
            raise BadCalls(str(file), f"{size} bytes", f"at most {LARGEST_FILE}")
        document = read_strictly(file.read_text(encoding="utf-8"))
    except NotJson as error:
        raise BadCalls(str(file), error.found, error.expected) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCalls(str(file), str(error), "a file of recorded calls") from None
    if not isinstance(document, dict) or document.get("warpsmith_calls") != FORMAT:
        found = document.get("warpsmith_calls") if isinstance(document, dict) else type(document).__name__
        raise BadCalls(f"{file}: warpsmith_calls", found, str(FORMAT))
    calls = Calls(files=[file])
    for number, item in enumerate(_of(list, document.get("calls"), f"{file}: calls")):
        place = f"{file}: calls[{number}]"
        call, count = _call(item, place), _count(item.get("count"), f"{place}.count")
        calls.counts[call] = calls.counts.get(call, 0) + count
    for name, mine in (("dropped", calls.dropped), ("notes", calls.notes)):
        for key, count in _of(dict, document.get(name, {}), f"{file}: {name}").items():
            mine[key] = _count(count, f"{file}: {name}.{key[:80]}")
    return calls


def _call(item: Any, place: str) -> Call:
    document = _of(dict, item, place)
    arguments = _of(list, document.get("arguments", []), f"{place}.arguments")
    return Call(
        kind=_of(str, document.get("kind"), f"{place}.kind"),
        name=_of(str, document.get("name"), f"{place}.name"),
        arguments=tuple(_argument(each, f"{place}.arguments[{at}]") for at, each in enumerate(arguments)),
        keywords=_named(document.get("keywords", {}), f"{place}.keywords"),
        parameters=_named(document.get("parameters", {}), f"{place}.parameters"),
    )


def _named(items: Any, place: str) -> Named:
    return tuple((name, _argument(each, f"{place}.{name}")) for name, each in _of(dict, items, place).items())


def _argument(item: Any, place: str) -> Argument:
    if isinstance(item, str):
        return item
    document = _of(dict, item, place)
    strides = document.get("strides")
    return TensorOf(
        _sizes(document.get("shape"), f"{place}.shape"),
        _of(str, document.get("dtype"), f"{place}.dtype"),
        _of(str, document.get("device"), f"{place}.device"),
        None if strides is None else _sizes(strides, f"{place}.strides"),
    )


def _sizes(items: Any, place: str) -> tuple[int, ...]:
    return tuple(_count(size, f"{place}[{at}]") for at, size in enumerate(_of(list, items, place)))


def _count(value: Any, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadCalls(place, value, "an integer of at least 0")
    return value


_JSON_NAMES: Mapping[Any, str] = {dict: "an object", list: "a list", str: "a text"}


def _of(kind: type[Any], value: Any, place: str) -> Any:
    if not isinstance(value, kind):
        raise BadCalls(place, value, _JSON_NAMES[kind])
    return value


def _shown(item: Argument) -> Any:
    return item if isinstance(item, str) else item.document()
