"""What is wrong with `WARPSMITH_*` settings, in lines that name the variable; for every process that reads them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from warpsmith.kernels_db.spec.field_errors import expected_of

MISUSE = 2
"""Exit status of a process whose settings are wrong."""
_NO_JSON = re.compile(r'error parsing value for field "(\w+)"')
_UNTOLD = ("model_keys", "database_url", "broker_url")
"""Fields whose values are not repeated: they hold passwords, or a key that was put there by mistake."""
ENV_FILE = ".env"


def describe(error: ValueError) -> str | None:
    """Say what is wrong with the settings, a line for each; None where the error is none of settings."""
    if isinstance(error, ValidationError):
        if not error.title.endswith("Settings"):
            return None
        return "\n".join(
            _line(item["loc"], item["input"], expected_of(item)) for item in error.errors(include_url=False)
        )
    if isinstance(error, UnicodeDecodeError):
        return f"{ENV_FILE}: found bytes that are no UTF-8, expected text" if _is_env_file(error.object) else None
    if (broken := _NO_JSON.match(str(error))) is None:  # pydantic-settings' own error says nothing else
        return None
    return f"WARPSMITH_{broken[1].upper()}: found no JSON, expected JSON, as the guide's table of settings shows it"


@contextmanager
def told() -> Iterator[None]:
    """End the process where its settings are wrong: with a line for each on standard error, and status 2."""
    try:
        yield
    except ValueError as error:
        if (said := describe(error)) is None:
            raise
        sys.stderr.write(f"error: {said}\n")
        raise SystemExit(MISUSE) from None


def _line(location: tuple[int | str, ...], found: object, expected: str) -> str:
    if not location:  # of several settings together: the message names them
        return expected
    name, *inside = map(str, location)
    shown = f"a {type(found).__name__}" if name in _UNTOLD else repr(found)
    whole = expected.startswith(("found ", "the "))  # the words of a check of our own
    said = expected if whole else f"found {shown}, expected {expected.removeprefix('expected ')}"
    return f"{'.'.join([f'WARPSMITH_{name.upper()}', *inside])}: {said}"


def _is_env_file(content: bytes) -> bool:
    with suppress(OSError):
        return Path(ENV_FILE).read_bytes() == content
    return False
