"""Reading server-sent events (WHATWG HTML, section 9.2): lines in, the data of complete events out."""

from __future__ import annotations


class SseParser:
    """Collects the lines of one stream."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> str | None:
        """Take one line without its end; return the data of the event that it completes, if it completes one."""
        if line == "":
            data, self._data = self._data, []
            return "\n".join(data) if data else None
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        return None  # comments, `event`, `id` and `retry`: the data carry the event's type and id
