"""What routes depend on takes no thread: each hand-over to one costs a request as much as a statement does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from warpsmith.service.server.app import ROUTERS


def dependants(of: Dependant) -> Iterator[Dependant]:
    for one in of.dependencies:
        yield one
        yield from dependants(one)


def test_dependencies_are_coroutines() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    calls = {one.call for route in routes for one in dependants(route.dependant)}
    assert len(calls) >= 4
    threaded = [call for call in calls if not inspect.iscoroutinefunction(call)]
    assert [f"{Path(inspect.getfile(call)).name}: {call.__name__}" for call in threaded if call is not None] == []
