"""Joining a service on another host: a token is exchanged once for the addresses of broker and database.

They are kept in the home, readable by its owner alone, so that the same command starts again after a reboot or an
upgrade, when the token has long ended. Another token is exchanged anew and replaces them.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from warpsmith.kernels_db.store.db import Database, expected_revision
from warpsmith.service.client.errors import CommandError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.joining import find_mismatch
from warpsmith.service.local.database_errors import explaining
from warpsmith.service.settings import is_loopback
from warpsmith.workers.settings import Settings

KEPT = "joined.json"
MOST_SKEW_S = 5.0
"""Difference of clocks beyond which leases would end too early or too late."""


@dataclass(frozen=True)
class Joined:
    """A service that this host has joined. `invite` names the token that was exchanged, without its secret."""

    url: str
    invite: str
    broker_url: str = field(repr=False)
    database_url: str = field(repr=False)
    settings: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """The variables under which this host's workers run."""
        addresses = {"WARPSMITH_BROKER_URL": self.broker_url, "WARPSMITH_DATABASE_URL": self.database_url}
        return {**self.settings, **addresses}


def join(url: str, token: str | None, host: str, home: Path, authority: Path | None) -> Joined:
    """Join the service at `url`, or join it again with what is kept from the first time.

    Raises CommandError where the service refuses, where versions do not work together, and where clocks differ.
    """
    kept = _read(home, url)
    with Client(url, authority=authority) as client:
        health, clock = client.health()
        _check_clock(clock)
        if token is not None and (kept is None or kept.invite != _name(token)):
            kept = _exchange(client, url, token, host)
            _write(home, kept)
    if kept is None:
        misuse(
            "token",
            None,
            "that of an invitation (`warpsmith workers invite`), by --token-file or in WARPSMITH_JOIN_TOKEN",
        )
    # The service has not compared them where no token was exchanged; the revision is read in the database itself.
    mismatch = find_mismatch(health.version, version("warpsmith"), expected_revision(), expected_revision())
    if mismatch is not None:
        raise CommandError(mismatch)
    return kept


def check_url(url: str, *, allow_http: bool) -> None:
    """Raise CommandError for a URL over which the token and the passwords would go in the clear."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        misuse("--join", url, "the URL of a service, such as https://kernels.example")
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        misuse(
            "--join", url, "https://: over http:// anybody on the way reads the token and the passwords (--allow-http)"
        )


def check_database(settings: Settings) -> None:
    """Raise CommandError where the database does not answer, or is of another revision than this program's."""
    try:
        database = Database(settings.database)
    except ValueError as error:
        raise CommandError(str(error)) from None
    services = (
        "the service's: is its port open to this host, and has its password changed? A new token brings the new one"
    )
    with explaining(database, "database", services, CommandError):
        found, expected = database.revision()
    own = version("warpsmith")
    mismatch = find_mismatch(own, own, found or "none", expected)
    if mismatch is not None:
        raise CommandError(mismatch)


def _exchange(client: Client, url: str, token: str, host: str) -> Joined:
    body = {"token": token, "host": host, "version": version("warpsmith"), "revision": expected_revision()}
    found = client.join(body)
    return Joined(url, _name(token), found.broker_url, found.database_url, found.settings)


def _name(token: str) -> str:
    """Return the part of a token that is no secret."""
    return token.split("_")[1] if token.count("_") == 2 else ""


def _check_clock(clock: float | None) -> None:
    skew_s = 0.0 if clock is None else time.time() - clock
    # The header has whole seconds, and the answer took its way.
    if abs(skew_s) > MOST_SKEW_S:
        found = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the service's"
        raise CommandError(f"clock: found one {found}, expected at most {MOST_SKEW_S:g} s apart; synchronise it (NTP)")


def _read(home: Path, url: str) -> Joined | None:
    """Read what is kept of the service at `url`."""
    try:
        document = json.loads((home / KEPT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Joined(**document) if document.get("url") == url else None


def _write(home: Path, joined: Joined) -> None:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = home / f"{KEPT}.new"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(joined), file)
    fresh.replace(home / KEPT)
