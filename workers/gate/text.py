r"""Whether all who read a candidate's text read the same code.

The gate checks a `str`. Python loads a file, whose encoding its first two lines may name; TileLang, Triton and CuTe DSL
read functions back from that file, and TileLang joins them anew out of `str.splitlines()`, which ends a line, and with
it a comment, at U+2028 and its like. Text that two of them would read differently is refused.
"""

from __future__ import annotations

import re

from warpsmith.workers.gate.problems import Problem

_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")  # of PEP 263, as `tokenize` has it
_UTF8 = ("utf-8", "utf8")
_SEPARATOR = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\r(?!\n)")


def encoding_problem(source: str) -> Problem | None:
    r"""Return the problem of a text whose first two lines name another encoding than UTF-8, in which it is written.

    `compile` ends those lines at a lone \r, too, `tokenize` at \n alone: both are tried.
    """
    for ends in (r"\r\n|\r|\n", r"\n"):
        for number, line in enumerate(re.split(ends, source, maxsplit=2)[:2], 1):
            found = _COOKIE.match(line)
            if found is not None and found[1].lower().replace("_", "-") not in _UTF8:
                return Problem(number, f"encoding: found {found[1][:40]!r}, expected utf-8 or none named")
    return None


def separator_problem(source: str) -> Problem | None:
    r"""Return the problem of the first character that ends a line to `str.splitlines()` and is neither \n nor \r\n."""
    found = _SEPARATOR.search(source)
    if found is None:
        return None
    code = ord(found[0])
    escape = f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
    expected = rf"expected \n where a line ends, or the escape sequence {escape} in a string"
    return Problem(source.count("\n", 0, found.start()) + 1, f"found U+{code:04X}: {expected}")
