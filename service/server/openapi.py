"""The OpenAPI document: FastAPI's, completed with facts that the routes do not show.

`write_openapi` writes it for the dashboard, whose types are generated from it.
"""

from __future__ import annotations

import json
import re
import threading
from importlib.metadata import version
from typing import Any, get_args

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from warpsmith.kernels_db.spec.op import Op
from warpsmith.service.api import sessions
from warpsmith.service.api.access import RULES
from warpsmith.service.documents.problem_document import ProblemDocument
from warpsmith.service.documents.problems import (
    MEDIA_TYPE,
    URN,
    BodyTooSlow,
    CrossSite,
    DatabaseUnavailable,
    Forbidden,
    HostRefused,
    InternalError,
    KeyRequired,
    TokenRequired,
    TooManyBodies,
    document_problems,
)
from warpsmith.service.server.middleware import CSRF_HEADER, OPEN_PATHS, SIGNING_IN
from warpsmith.workers.steps.values import EventType

VERSION = version("warpsmith")
TAGS = [
    {"name": "searches", "description": "Submit, watch, steer, pause, resume, cancel"},
    {"name": "ops", "description": "Operations to search kernels for"},
    {"name": "nodes", "description": "Steps of a search's tree"},
    {"name": "kernels", "description": "Verified winners and their packages"},
    {"name": "campaigns", "description": "Models whose regions are searched, and what the kernels bring in them"},
    {"name": "pools", "description": "Recorded model replies"},
    {"name": "imports", "description": "Uploads that workers read: their progress and results"},
    {"name": "bundles", "description": "Judge jobs for hosts that the service cannot reach, and their verdicts"},
    {"name": "asks", "description": "Model requests that wait for an answer"},
    {"name": "workers", "description": "Processes that do the work"},
    {"name": "system", "description": "The state of the service, and the options of a submission"},
    {"name": "session", "description": "Browsers that sign in with an API key, where keys are required"},
    {"name": "health", "description": "Liveness, readiness, metrics"},
]
PATH = "/openapi.json"
REFERENCE = "#/components/schemas/{model}"


ITEM_LINKS = {
    "create_op": ("op_id", ("get_op",)),
    "import_files": ("import_id", ("get_import",)),
    "create_search": (
        "search_id",
        (
            "get_search",
            "get_tree",
            "get_tree_rows",
            "get_progress",
            "get_mattered",
            "list_attempts",
            "get_story",
            "get_events",
            "export_pool",
            "pause_search",
            "resume_search",
            "cancel_search",
            "create_bundle",
        ),
    ),
    "create_invite": ("invite_id", ("revoke_invite",)),
    "create_campaign": ("campaign_id", ("get_campaign", "change_campaign")),
    "create_bundle": ("bundle_id", ("drop_bundle",)),
    "branch_node": ("search_id", ("get_search", "get_tree", "get_events", "cancel_search")),
    "pin_node": ("node_id", ("get_node", "get_source", "get_report", "unpin_node", "branch_node")),
    "ban_node": ("node_id", ("get_node", "unban_node")),
    "create_pool": ("import_id", ("get_import",)),
    "get_ask": ("ask_id", ("answer_ask",)),
    "get_kernel": ("kernel_id", ("export_kernel", "reverify_kernel", "list_reverifications")),
    "reverify_kernel": ("reverification_id", ("get_reverification",)),
}
LIST_LINKS = {
    "list_invites": ("invite_id", "revoke_invite"),
    "list_ops": ("op_id", "get_op"),
    "list_searches": ("search_id", "get_search"),
    "list_pools": ("pool_id", "get_pool"),
    "list_imports": ("import_id", "get_import"),
    "list_asks": ("ask_id", "get_ask"),
    "list_kernels": ("kernel_id", "get_kernel"),
    "list_reverifications": ("reverification_id", "get_reverification"),
}
"""Operations that take an answer's ids, by the operation that answers."""


def make_operation_id(route: APIRoute) -> str:
    """Name the operation after the route's function."""
    return route.name


def install(app: FastAPI, *, keys_required: bool) -> None:
    """Make the app serve the completed document at /openapi.json; built once, on first use."""

    building = threading.Lock()

    def build_once() -> dict[str, Any]:
        with building:  # in threads: one of them builds, the others wait
            if app.openapi_schema is None:
                app.openapi_schema = build(app, keys_required=keys_required)
            return app.openapi_schema

    text = b""

    async def serve(_request: Request) -> Response:
        nonlocal text
        if not text:
            await run_in_threadpool(build_once)
            text = text or json.dumps(build_once(), ensure_ascii=False).encode()
        return Response(text, media_type="application/json")

    # In place of FastAPI's route, which writes the document anew for each request.
    app.add_route(PATH, serve, include_in_schema=False)
    app.openapi = build_once  # type: ignore[method-assign] # FastAPI's documented way to extend the document


def build(app: FastAPI, *, keys_required: bool) -> dict[str, Any]:
    """Build the document of `app`, with the op spec's schema, common problems and the API key."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes, tags=TAGS)
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (ProblemDocument, Op):
        schema = model.model_json_schema(ref_template=REFERENCE)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    # Not in the model: a client of an older version must take new event types of a newer service.
    schemas["EventDocument"]["properties"]["type"]["enum"] = list(get_args(EventType))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    if keys_required:
        document["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key, `wsk_...`"},
            "session": {
                "type": "apiKey",
                "in": "cookie",
                "name": sessions.COOKIE,
                "description": f"The cookie of POST {sessions.PATH}; a change needs the header {CSRF_HEADER} as well",
            },
        }
    shared: dict[str, Any] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            _complete(operation, path, method, keys_required=keys_required)
            _share_problems(operation["responses"], shared)
    document["components"]["responses"] = shared
    return document


def _complete(operation: dict[str, Any], path: str, method: str, *, keys_required: bool) -> None:
    common = [HostRefused, InternalError]
    if path != "/healthz":
        common.append(DatabaseUnavailable)
    if "requestBody" in operation:
        common += [BodyTooSlow, TooManyBodies]
    if method != "get":
        common.append(CrossSite)
    if keys_required and path not in OPEN_PATHS and (method.upper(), path) not in SIGNING_IN:
        common += [KeyRequired, *([Forbidden] if RULES[operation["operationId"]] else [])]
        if method != "get":
            common.append(TokenRequired)
        operation["security"] = [{"key": []}, {"session": []}]
    responses = operation["responses"]
    links = _make_links(operation["operationId"])
    if links:
        for success in {"200", "201", "202"} & responses.keys():
            responses[success]["links"] = links
    for status, entry in document_problems(*common).items():
        responses.setdefault(str(status), entry)
    unprocessable = responses.get("422", {})
    if "HTTPValidationError" in str(unprocessable.get("content", "")):
        del responses["422"]


def _share_problems(responses: dict[str, Any], shared: dict[str, Any]) -> None:
    """Replace each response that is a problem by a reference to the same one in `shared`."""
    for status, response in responses.items():
        if MEDIA_TYPE in response.get("content", {}):
            slugs = re.findall(f"`{URN}([a-z-]+)`", response["description"])
            name = "Or".join(slug.title().replace("-", "") for slug in slugs)
            assert shared.setdefault(name, response) == response, name
            responses[status] = {"$ref": f"#/components/responses/{name}"}


def _make_links(operation: str) -> dict[str, Any]:
    parameter, followers = ITEM_LINKS.get(operation, ("", ()))
    links = {name: {"operationId": name, "parameters": {parameter: "$response.body#/id"}} for name in followers}
    if operation in LIST_LINKS:
        parameter, follower = LIST_LINKS[operation]
        links[follower] = {"operationId": follower, "parameters": {parameter: "$response.body#/items/0/id"}}
    return links
