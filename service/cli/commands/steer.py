"""Commands that steer a search by hand: ideas, marks, its budget, and branches from a node."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.service.cli import arguments
from warpsmith.service.cli.commands.search import model_document
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import read_object
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.cli.search_argument import SearchArgument, find_search_id
from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.figures import format_limits
from warpsmith.workers.llm.reply import techniques
from warpsmith.workers.llm.reply.techniques import TECHNIQUES

Node = Annotated[str, typer.Argument(metavar="NODE", help="A node's id, or SEARCH#7 for number 7 of a search's tree.")]
IDEA_FIELDS = ("technique", "title", "mechanism", "evidence", "expected_gain", "risk", "sketch")


def idea(
    search: SearchArgument,
    technique: Annotated[str | None, typer.Option(help=f"One of {', '.join(TECHNIQUES)}.")] = None,
    title: Annotated[str | None, typer.Option(help="The idea in one line.")] = None,
    mechanism: Annotated[str | None, typer.Option(help="What it changes and why that helps.")] = None,
    sketch: Annotated[str | None, typer.Option(help="Pseudo-code, where it helps.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="The idea as a JSON object with these fields; options given beside it win.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="NODE", help="The node to build on; by default the best so far.")
    ] = None,
    codes: Annotated[int, typer.Option(min=1, max=16, help="Candidates to be written for it.")] = 1,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Add an idea of your own: it is coded and judged like a model's."""
    given = {"technique": technique, "title": title, "mechanism": mechanism, "sketch": sketch}
    body: dict[str, Any] = ({} if file is None else _read_idea(file)) | {
        k: v for k, v in given.items() if v is not None
    }
    for name in ("technique", "title", "mechanism"):
        if not isinstance(body.get(name), str) or not body[name].strip():
            misuse(f"--{name}", body.get(name), "words" + (" in the file" if file else ""))
    known = techniques.technique(body["technique"])
    if known is None:
        misuse("--technique", body["technique"], one_of(body["technique"], TECHNIQUES))
    body |= {"technique": known, "codes": codes}
    with connected(url, key) as client:
        if parent is not None:
            body["parent"] = resolve_node_id(client, parent)
        added = client.add_idea(find_search_id(client, search), body, idempotency_key=uuid.uuid4().hex)
    if as_json:
        print_json(added)
        return
    numbers = ", ".join(f"#{node.seq}" for node in added.nodes)
    tell(f"planned as {numbers} in round {added.nodes[0].round}")


def pin(node: Node, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Make a node a parent in every later round."""
    _mark(node, "pin", True, url, key, as_json)


def unpin(node: Node, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Leave a pinned node to the policy again."""
    _mark(node, "pin", False, url, key, as_json)


def ban(node: Node, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Leave a node out for good: it is never built on, verified or kept. Nodes built on it stay."""
    _mark(node, "ban", True, url, key, as_json)


def unban(node: Node, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Take a ban back."""
    _mark(node, "ban", False, url, key, as_json)


def budget(
    search: SearchArgument,
    candidates: Annotated[str | None, typer.Option(metavar="N", help="A new limit, or none.")] = None,
    calls: Annotated[str | None, typer.Option(metavar="N", help="Model calls.")] = None,
    tokens: Annotated[str | None, typer.Option(metavar="N", help="Tokens of the model.")] = None,
    cost: Annotated[str | None, typer.Option(metavar="USD", help="US dollars.")] = None,
    time: Annotated[str | None, typer.Option(metavar="TIME", help="Running time: 90s, 10m, 1h.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="TIME", help="Time on the device.")] = None,
    tries: Annotated[str | None, typer.Option(metavar="TIME", help="Time on the device for tries.")] = None,
    sweeps: Annotated[str | None, typer.Option(metavar="TIME", help="Of --gpu, time for sweeps of tunables.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Change limits of a search that has not ended; `none` lifts one (of tries: the default again), others stay."""
    given = {"candidates": candidates, "calls": calls, "tokens": tokens, "cost": cost, "time": time, "gpu": gpu}
    given |= {"tries": tries, "sweeps": sweeps}
    changes: dict[str, float | None] = {}
    for name, text in given.items():
        if text == "none":
            changes[arguments.BUDGET_NAMES[name]] = None
        elif text is not None:
            changes |= arguments.parse_limit(f"--{name}", name, text)
    if not changes:
        named = [f"--{name}" for name in given]
        misuse("budget", None, f"a limit to change: {', '.join(named[:-1])} or {named[-1]}")
    with connected(url, key) as client:
        document = client.change_budget(find_search_id(client, search), changes)
    print_json(document) if as_json else tell(f"search {document.id} may use {format_limits(document.budget)}")


def branch(
    node: Node,
    budget: Annotated[str, typer.Option(help="As in `search`; by default the old search's, unspent.")] = "",
    policy: Annotated[str, typer.Option(help="As in `search`; by default the old search's.")] = "",
    model: Annotated[str | None, typer.Option(help="As in `search`; by default the old search's.")] = None,
    model_file: Annotated[Path | None, typer.Option(help="As in `search`.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Endpoint of an openai model.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Start a new search from a node's candidate; the old one may have ended."""
    body: dict[str, Any] = {}
    if budget:
        body["budget"] = arguments.parse_budget(budget)
    if policy:
        body["policy"] = arguments.parse_policy(policy)
    choice = arguments.choose_model(model, model_file, base_url)
    with connected(url, key) as client:
        if choice is not None:
            body["model"] = model_document(client, choice)
        created = client.branch(resolve_node_id(client, node), body, idempotency_key=uuid.uuid4().hex)
    if as_json:
        print_json(created)
        return
    tell(created.id)
    say(f"see how it goes: warpsmith tree {created.id}")


def resolve_node_id(client: Client, text: str) -> str:
    """Return the id of a node that is named by its id or as SEARCH#SEQ."""
    search, hash_, number = text.rpartition("#")
    if not hash_:
        return text
    if not (number.isascii() and number.isdigit() and len(number) <= 9):
        misuse("NODE", text, "a node's id (nd_...), or SEARCH#7")
    search_id = find_search_id(client, search, "NODE", "a node's id (nd_...), or SEARCH#7")
    node = client.node_at(search_id, int(number))
    if node is None:
        misuse("NODE", text, f"the number of a node of {search_id}: warpsmith tree {search_id}")
    return node.id


def _mark(text: str, mark: str, wanted: bool, url: str | None, key: str | None, as_json: bool) -> None:
    with connected(url, key) as client:
        node = client.mark_node(resolve_node_id(client, text), mark, wanted=wanted)
    print_json(node) if as_json else tell(f"node {node.id} (#{node.seq}) is {node.mark or 'unmarked'}")


def _read_idea(file: Path) -> dict[str, Any]:
    document = read_object("--file", file, f"a JSON object with {', '.join(IDEA_FIELDS)}")
    unknown = sorted(document.keys() - set(IDEA_FIELDS))
    if unknown:
        misuse(f"--file {unknown[0]}", str(file), f"only {', '.join(IDEA_FIELDS)}")
    return document
