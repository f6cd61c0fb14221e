"""Connections to public addresses alone, for endpoints that a search names and the operator does not.

A name is looked up once for each connection, every address that it has is checked, and the connection goes to one of
these: a name that answers differently the next time (DNS rebinding) leads nowhere else.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

import httpx2

Lookup = Callable[[str, int], list[str]]

_EMBEDDING = tuple(ipaddress.ip_network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
"""Ranges of IPv6 whose addresses stand for ones of IPv4 (NAT64, 6to4, Teredo), which may be private."""


class PrivateAddressError(httpx2.ConnectError):
    """A host that has an address inside: loopback, private, link-local, reserved."""


class PublicTransport(httpx2.HTTPTransport):
    """A transport that connects to public addresses alone, and to no proxy."""

    def __init__(self, lookup: Lookup | None = None) -> None:
        super().__init__(trust_env=False)
        self._lookup = lookup or look_up

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request to the address that was checked, under the name that was asked for."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        address = self._choose(host, port)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        return super().handle_request(request)

    def _choose(self, host: str, port: int) -> str:
        try:
            addresses = self._lookup(host, port)
        except OSError as error:
            raise httpx2.ConnectError(f"the host has no address ({error.strerror or error})") from error
        if not addresses or not all(is_public(address) for address in addresses):
            raise PrivateAddressError("the host has an address that is not public")
        return addresses[0]


def look_up(host: str, port: int) -> list[str]:
    """Return every address of a host. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(str(error)) from error
    return [str(address[0]) for *_, address in found]


def is_public(address: str) -> bool:
    """Check whether an address, or the one of IPv4 that it stands for, is reachable from everywhere."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        elif any(found in network for network in _EMBEDDING):
            return False
    return found.is_global and not found.is_multicast
