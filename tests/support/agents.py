"""An agent for tests: the SDK's own client, driven from synchronous code."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent

from tests.support.launching import REPOSITORY, environment


class Agent:
    """A connected client. `call` wants a result, `refused` an error."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self.client = client

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured result of a tool."""
        result = self._call(tool, arguments)
        assert not result.is_error, text_of(result)
        assert result.structured_content is not None
        return result.structured_content

    def refused(self, tool: str, /, **arguments: Any) -> str:
        """The text of a tool's error."""
        result = self._call(tool, arguments)
        assert result.is_error, result.structured_content
        return text_of(result)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the client."""
        return self._portal.call(partial(getattr(self.client, method), *arguments))

    def _call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        result = self.ask("call_tool", tool, arguments)
        assert isinstance(result, CallToolResult)
        return result


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    return "\n".join(item.text for item in result.content if isinstance(item, TextContent))


@contextmanager
def over_stdio(home: Path, *options: str, **settings: str) -> Iterator[Agent]:
    """An agent that starts `warpsmith mcp` itself, on a home of its own."""
    home.mkdir(parents=True, exist_ok=True)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "warpsmith.service.cli", "mcp", *options],
        env=environment(home, **settings),
        cwd=REPOSITORY,
    )
    with _connected(parameters) as agent:
        yield agent


@contextmanager
def over_http(url: str, key: str | None = None) -> Iterator[Agent]:
    """An agent that connects to a server that runs."""
    with _connected(_transport(url, {} if key is None else {"Authorization": f"Bearer {key}"})) as agent:
        yield agent


@asynccontextmanager
async def _transport(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(30.0, read=300.0)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


@contextmanager
def _connected(server: Any) -> Iterator[Agent]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server)) as client:
        yield Agent(portal, client)
