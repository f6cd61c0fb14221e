"""The op of a command: a spec file, or the id or name of an op."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpsmith.kernels_db.spec.op import Op
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.output import say
from warpsmith.service.client.errors import ServiceUnreachableError
from warpsmith.service.local.extra import is_of_service
from warpsmith.service.local.named_ops import STORED, NamedOp, find_op, read_op_file

if TYPE_CHECKING:
    from warpsmith.service.client.http import Client


def load_named_op(text: str, url: str | None, key: str | None, field: str = "OP") -> Op:
    """Load the op that `field` names, of a file, of the running service or of the examples.

    Without a service an example serves, unless a URL was given: then that service was meant.
    """
    spec = read_op_file(text, field)
    if spec is not None:
        return spec
    try:
        with connected(url, key) as client:
            found = find_op(client, text, field)
    except (ServiceUnreachableError, ModuleNotFoundError) as error:
        missing = isinstance(error, ModuleNotFoundError) and not is_of_service(error)
        if url is not None or missing or text.startswith(STORED):
            raise
        found = find_op(None, text, field)
    return _announce(text, found)


def find_announced_op(client: Client, text: str, field: str = "OP") -> Op:
    """Find an op by id or name in a service or among the examples, and say which it is."""
    return _announce(text, find_op(client, text, field))


def _announce(text: str, found: NamedOp) -> Op:
    say(f"{text}: {found.place}")
    return found.op
