"""`warpsmith mcp`: an MCP server for coding agents."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.service.cli.connection import service_url
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say
from warpsmith.service.client.errors import misuse
from warpsmith.service.settings import ServiceSettings


def mcp(
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there, under /mcp; without it, standard input."),
    ] = None,
    exports: Annotated[
        Path | None,
        typer.Option(help="Write packages below this directory alone; over HTTP the current one where not given."),
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Serve coding agents over MCP: answer asks, judge candidates, read trees, export kernels.

    Over HTTP every caller sends their own key where the service requires keys; --key is for standard input.
    """
    from warpsmith.service.mcp import transport  # noqa: PLC0415 - the SDK takes a second to load
    from warpsmith.service.mcp.context import Desk  # noqa: PLC0415
    from warpsmith.service.mcp.server import create_server  # noqa: PLC0415

    find = partial(service_url, url)
    if http is None:
        if as_json:
            misuse("--json", True, "--http with it: on standard output an agent reads the protocol")
        create_server(Desk(find, key, exports)).run("stdio")
        return
    address = transport.Address.parse(http)
    transport.check_exposure(address, find())
    server = create_server(Desk(find, None, exports or Path.cwd()))

    def announce(where: str) -> None:
        print_json({"url": where}) if as_json else say(f"the MCP server is at {where}")

    transport.serve(server, address, find, ServiceSettings().allowed_hosts, announce)
