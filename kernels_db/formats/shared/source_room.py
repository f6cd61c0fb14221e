"""Room for source text in the spec that an import becomes, counted as the text is made.

Each tensor that a file's own function makes carries the whole file. A spec has 1 MiB; a file with many such tensors is
refused at the first that does not fit, before the others are made.
"""

from __future__ import annotations

from typing import Any

from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.spec.document import MAX_BYTES


class SourceRoom:
    """The room left for sources in one spec."""

    def __init__(self) -> None:
        self._left = MAX_BYTES

    def code(self, *parts: str) -> dict[str, Any]:
        """Return a distribution of kind `code` whose source is the parts in a row.

        Raises SpecErrors where there is no room: a character takes at least one byte of the spec.
        """
        self._left -= sum(map(len, parts))
        if self._left < 0:
            found = f"files whose spec has more than {MAX_BYTES} bytes: its sources repeat them for each tensor"
            raise refused("files", found, f"a spec of at most {MAX_BYTES} bytes (1 MiB)")
        return {"kind": "code", "source": "".join(parts)}
