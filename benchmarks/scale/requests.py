"""How long the API takes to answer: submissions at once, and reads beside open event streams."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from benchmarks.op import OP, TARGET
from benchmarks.scale.filling import Filled
from benchmarks.scale.servers import Api
from benchmarks.throughput import processor_s

TIMEOUT_S = 120.0
LONGEST_S = 15.0
FIRST = 16
"""Submissions before those that are measured: the first ones import, connect and compile their statements."""

STREAM_STARTS = 20
"""Streams that are opened at once."""


@dataclass(frozen=True)
class Latency:
    """Seconds of the answers to one kind of request, and the API's processor seconds for each."""

    name: str
    seconds: Sequence[float]
    processor_s: float

    def quantile(self, share: float) -> float:
        """Return the time within which this share of the requests was answered."""
        ranked = sorted(self.seconds)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def reads(filled: Filled) -> dict[str, str]:
    """Return the requests that are measured: the lists, a tree, a node, events; by name."""
    large, running = filled.large_search, filled.running_search
    return {
        "searches": "/v1/searches",
        "searches, running": "/v1/searches?state=running",
        "searches by score": "/v1/searches?sort=score",
        "searches with a text": "/v1/searches?text=scale",
        "kernels": "/v1/kernels",
        "kernels by score": "/v1/kernels?sort=score",
        "asks, open": "/v1/asks?state=open",
        "ops": "/v1/ops",
        "audit": "/v1/audit",
        "workers": "/v1/workers",
        "system": "/v1/system",
        "metrics": "/metrics",
        "search, large": f"/v1/searches/{large}",
        "search, running": f"/v1/searches/{running}",
        "tree, 500 of the large one": f"/v1/searches/{large}/tree",
        "tree rows, 2,500": f"/v1/searches/{large}/tree/rows",
        "events, 200": f"/v1/searches/{large}/events?format=json",
        "node": f"/v1/nodes/{filled.node}",
        "kernel": f"/v1/kernels/{filled.kernel}",
    }


def measure_submissions(api: Api, count: int) -> Latency:
    """Submit `count` searches at once, each over a connection of its own."""
    document = {"op": OP.document(), "target": str(TARGET), "language": "cpp", "model": {"provider": "agent"}}
    body = json.dumps(document).encode()
    address = urlsplit(api.url)
    head = f"POST /v1/searches HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def submit() -> float:
        # Not by httpx: a connection and a request took it 5 ms of the same processors that the API is to have.
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(request)
            answered = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            length = re.search(r"^content-length: (\d+)", answered, re.MULTILINE | re.IGNORECASE)
            if length is None or not answered.startswith("HTTP/1.1 202 "):
                raise RuntimeError(f"a submission: found {answered.splitlines()[0]}, expected 202 and a length")
            await reader.readexactly(int(length[1]))
            return time.perf_counter() - began
        finally:
            writer.close()

    async def submit_all(at_once: int) -> list[float]:
        return list(await asyncio.gather(*(submit() for _ in range(at_once))))

    asyncio.run(submit_all(FIRST))
    before = processor_s(api.list_processes())
    seconds = asyncio.run(submit_all(count))
    return Latency(f"submit, {count} at once", seconds, (processor_s(api.list_processes()) - before) / len(seconds))


def measure_reads(api: Api, paths: Mapping[str, str], search_id: str, streams: int, repeats: int) -> list[Latency]:
    """Time each path `repeats` times, one request after another, beside `streams` event streams of a running search.

    A path that takes long is asked for LONGEST_S only.
    """

    async def read_all() -> list[Latency]:
        async with AsyncExitStack() as opened:
            client = await opened.enter_async_context(_client(api, streams + 8))
            starts = asyncio.Semaphore(STREAM_STARTS)
            await asyncio.gather(*(_open_stream(client, search_id, opened, starts) for _ in range(streams)))
            return [await _time(client, api, name, path, repeats) for name, path in paths.items()]

    return asyncio.run(read_all())


async def _time(client: httpx.AsyncClient, api: Api, name: str, path: str, repeats: int) -> Latency:
    (await client.get(path)).raise_for_status()  # the first one compiles its statements
    before = processor_s([api.process])
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < LONGEST_S:
        began = time.perf_counter()
        (await client.get(path)).raise_for_status()
        seconds.append(time.perf_counter() - began)
    return Latency(name, seconds, (processor_s([api.process]) - before) / len(seconds))


async def _open_stream(
    client: httpx.AsyncClient, search_id: str, opened: AsyncExitStack, starts: asyncio.Semaphore
) -> None:
    async with starts:
        answer = await opened.enter_async_context(client.stream("GET", f"/v1/searches/{search_id}/events"))
        answer.raise_for_status()
        await anext(answer.aiter_bytes())


def _client(api: Api, connections: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx.AsyncClient(base_url=api.url, timeout=TIMEOUT_S, limits=limits)
