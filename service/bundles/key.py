"""The key that signs bundles: from the settings, or made once and kept in the home."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from warpsmith.service.settings import ServiceSettings

FILE = "bundle.key"
IN_HOME = f"{FILE} in the service's home"
LEAST_CHARACTERS = 32


class BadKey(ValueError):  # noqa: N818 - named for what is wrong
    """The key cannot be used. The message never shows it."""

    def __init__(self, where: str, found: str, expected: str) -> None:
        super().__init__(f"{where}: found {found}, expected {expected}")
        self.where, self.found, self.expected = where, found, expected


def load_bundle_key(settings: ServiceSettings) -> bytes:
    """Load the key, or make it; raises BadKey, OSError.

    Several API processes on one home share the file; on several hosts they need the setting, or they could not merge
    each other's bundles.
    """
    if settings.bundle_key is not None:
        return _check_length(settings.bundle_key.get_secret_value(), "WARPSMITH_BUNDLE_KEY")
    path = settings.home.expanduser() / FILE
    if not path.exists():
        _make_key(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BadKey(IN_HOME, f"mode {mode:04o}", "0600: others could read the key")
    return _check_length(path.read_text(encoding="ascii", errors="replace").strip(), IN_HOME)


def _make_key(path: Path) -> None:
    """Write a new key; the file appears whole, and of two concurrent processes one wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{FILE}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # the other's key is the key
    finally:
        draft.unlink(missing_ok=True)


def _check_length(key: str, where: str) -> bytes:
    if len(key) < LEAST_CHARACTERS:
        raise BadKey(where, f"{len(key)} characters", f"a secret of at least {LEAST_CHARACTERS}")
    return key.encode()
