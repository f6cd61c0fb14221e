"""What a database's URL says: its hosts, which may be several, and its password."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL

HOST_TIMEOUT_S = 3
"""Seconds that one of several hosts may take to answer; then the next is asked.

Together they stay within the time after which the API counts the database as gone (10 s).
"""


def read_option(url: URL, name: str) -> list[str]:
    """Return every value of an option in the URL's query."""
    found = url.query.get(name, ())
    return [found] if isinstance(found, str) else list(found)


def find_hosts(url: URL) -> list[str]:
    """Return the hosts that a URL names, without ports: before the path, or as `host` in its query, in libpq's forms.

    SQLAlchemy takes `?host=a:5432&host=b:5432` and `?host=a,b&port=5432,5432`. A socket's directory is one, too.
    """
    named = [one for value in read_option(url, "host") for one in value.split(",")]
    named = named or ([] if url.host is None else url.host.split(","))
    return [_without_port(host) for host in named]


def _without_port(host: str) -> str:
    address, colon, port = host.rpartition(":")
    bare = ":" in address and not address.endswith("]")  # an IPv6 address without a port
    return address if colon and port.isdecimal() and not bare else host


def move_password(url: URL) -> URL:
    """Return the URL with a `password` of its query in its usual place, where it is masked whenever it is shown."""
    found = read_option(url, "password")
    if not found:
        return url
    return url.difference_update_query(["password"]).set(password=found[-1])


def failover_options(url: URL) -> dict[str, Any]:
    """Return libpq's parameters under which the primary among several hosts is found; none for a single host.

    A URL that names one of them has its own way.
    """
    if len(find_hosts(url)) < 2:
        return {}
    return {"target_session_attrs": "read-write", "connect_timeout": HOST_TIMEOUT_S}
