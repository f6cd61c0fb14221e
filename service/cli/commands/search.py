"""Commands for searches: submit and follow, list, show as a tree, pause, resume, cancel."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.kernels_db.job.languages import NAMED
from warpsmith.service.cli import arguments
from warpsmith.service.cli.connection import connected, connected_or_embedded
from warpsmith.service.cli.follow import follow
from warpsmith.service.cli.import_progress import ImportProgress
from warpsmith.service.cli.op_argument import find_announced_op
from warpsmith.service.cli.options import Json, Key, OpArgument, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.cli.search_argument import SearchArgument, find_search_id
from warpsmith.service.client.errors import FAILED, CommandError
from warpsmith.service.client.http import Client
from warpsmith.service.client.progress import (
    build_result_rows,
    build_result_table,
    build_tree,
    describe_best,
    describe_spend,
    describe_untimed,
)
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_dollars, format_duration, format_limits
from warpsmith.service.documents.searches import EstimateDocument, SearchDocument, SearchSummary
from warpsmith.service.local.named_ops import read_op_file, require_op
from warpsmith.workers.search.tree import ENDED

ANOTHER_LIMIT = "; another limit: --budget candidates=60,cost=2, no limit: none"

LONGEST = 300
"""Characters of a reason in the list."""


def search(
    op: OpArgument,
    target: Annotated[str, typer.Option(help="cpu, cpu:x86_64, cuda:sm_90 ...")] = "cpu",
    model: Annotated[
        str | None,
        typer.Option(
            help="replay:FILE or replay:POOL-ID, openai or openai:MODEL, agent, or agent:FILE, which asks for what is "
            "not recorded; or a JSON document. By default openai."
        ),
    ] = None,
    model_file: Annotated[
        Path | None, typer.Option(help="The model as a JSON document: several models with a share each.")
    ] = None,
    language: Annotated[str | None, typer.Option(help=f"{NAMED}; by default the target's own.")] = None,
    budget: Annotated[
        str,
        typer.Option(
            help="candidates=20,cost=1.5,time=10m,tokens=500000,calls=100; a time is 90s, 10m, 1h or a number of "
            "seconds; none: no limit. By default the recorded pool's, else candidates=20."
        ),
    ] = "",
    policy: Annotated[str, typer.Option(help="beam=2,ideas=3 ...; name=... chooses another policy.")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=0, max=3, help="Stored kernels for similar ops to start from; 0: none.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Endpoint of an openai model, where not the service's own.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for lists.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag; may be given again.")] = None,
    notes: Annotated[str | None, typer.Option(help="Notes, as plain text.")] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what the search would cost, and do not begin it.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit and return; needs a running service.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before a search that costs money begins; a script is never asked.")
    ] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Submit a search and follow it to its end; starts a service for itself where none runs."""
    spec = read_op_file(op, "OP")  # a bad file is refused before a service is started
    body: dict[str, Any] = {"target": target}
    given = {"language": language, "name": name, "tags": tag, "notes": notes}
    body |= {field: value for field, value in given.items() if value is not None}
    if policy:
        body["policy"] = arguments.parse_policy(policy)
    if seeds is not None:
        body["seeds"] = seeds
    choice = arguments.choose_model(model, model_file, base_url) or {"provider": "openai"}
    limits = arguments.choose_budget(budget, choice)
    if limits is not None:
        body["budget"] = limits
    with connected_or_embedded(url, key, may_start=not detach) as (client, embedded):
        body["op"] = (spec or find_announced_op(client, op)).document()
        body["model"] = model_document(client, choice)
        found = client.estimate(body)
        if estimate:
            print_json(found) if as_json else print_estimate(found)
            return
        say(found.summary)
        if limits:
            say(f"limited to {format_limits(limits)}" + ("" if budget else ANOTHER_LIMIT))
        if choice["provider"] == "openai" and not (yes or as_json):
            confirm_cost(found)
        created = client.create_search(body, idempotency_key=uuid.uuid4().hex)
        if detach:
            print_json(created) if as_json else tell(created.id)
            return
        try:
            final = follow(client, created, quiet=as_json)
        except KeyboardInterrupt:
            going_on = (
                "it continues when a service runs on this home again" if embedded else "it goes on in the service"
            )
            raise CommandError(f"stopped following {created.id}; {going_on}: warpsmith tree {created.id}") from None
        if as_json:
            print_json({"search": final, "tree": client.tree(final.id)})
        else:
            summarise(client, final)
    if final.state != "finished":
        raise typer.Exit(FAILED)


def confirm_cost(found: EstimateDocument) -> None:
    """Ask a person at a terminal whether a search that costs money may begin; raises CommandError where not."""
    if found.worst.cost_usd == 0.0 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm("Begin?", default=True, err=True):
        raise CommandError("nothing was submitted")


def print_estimate(found: EstimateDocument) -> None:
    """Print an estimate as lines."""
    for name, forecast in (("expected", found.expected), ("at worst", found.worst)):
        least = "" if forecast.complete else "more than "
        calls = ", ".join(f"{count:,} {kind}" for kind, count in forecast.calls.items())
        tell(f"{name}: {least}{forecast.model_calls:,} calls ({calls}), {forecast.candidates:,} candidates")
        tell(
            f"  {forecast.tokens:,} tokens ({forecast.prompt_tokens:,} of prompts, {forecast.completion_tokens:,} of "
            f"replies), {format_dollars(forecast.cost_usd)}; it ends because {forecast.ends}"
        )
    tell(f"sweeps of screenings: at most {format_duration(found.sweep_seconds)} on the device")
    if found.unpriced:
        tell(f"no price is known for {', '.join(found.unpriced)}: limit tokens, or add it (WARPSMITH_MODEL_PRICES)")
    for assumption in found.assumptions:
        tell(f"assumed: {assumption}")


def model_document(client: Client, choice: dict[str, Any]) -> dict[str, Any]:
    """Return the model document of a search; a pool that is a file is stored first."""
    if "file" not in choice:
        return choice
    return {
        "provider": choice["provider"],
        "pool": client.import_pool(Path(choice["file"]).read_bytes(), ImportProgress()).id,
    }


def summarise(client: Client, search: SearchDocument) -> None:
    """Print how a search ended: its best candidate as a table, its cost, and the next commands."""
    reason = f": {search.reason}" if search.reason else ""
    tell(f"search {search.id} {search.state}{reason}")
    if search.problem is not None:
        problem = search.problem
        tell(f"  {problem.field}: found {problem.found!r}, expected {problem.expected}")
    if search.best is not None:
        rows = build_result_rows(search.op_name, search.best.workloads)
        print_wide(build_result_table(rows))
        for line in describe_untimed(search.best.workloads):
            tell(line)
        tell(f"best {describe_best(search.best)}")
    tell(f"model {describe_spend(search)}; {search.nodes} nodes in {search.round} rounds")
    if search.state == "paused":
        tell(f"go on: warpsmith resume {search.id}")
    for kernel in search.kernels:
        tell(f"kept as kernel {kernel}; export it: warpsmith export {kernel} --output DIR")


def searches(
    state: Annotated[list[str] | None, typer.Option(help="running, finished ...; may be given again.")] = None,
    op: Annotated[str | None, typer.Option(help="An op's name or id.")] = None,
    target: Annotated[str | None, typer.Option(help="cpu, cuda:sm_90 ...")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="Only with this tag; may be repeated.")] = None,
    text: Annotated[str | None, typer.Option(help="Part of the op, name, tag, notes, model, id or reason.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived searches alone.")] = False,
    sort: Annotated[
        str, typer.Option(help="created, updated, score, limit, cost, candidates, tokens or time.")
    ] = "created",
    ascending: Annotated[bool, typer.Option("--ascending", help="From the smallest, or the oldest.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List searches, newest first unless they are sorted otherwise.

    A search that is paused or failed has its reason on its line, and one whose target no worker serves says so.
    """
    filters: dict[str, str | list[str] | None] = {
        "state": state,
        "op": op,
        "target": target,
        "tag": tag,
        "text": text,
        "archived": "yes" if archived else None,
        "sort": sort,
        "order": "asc" if ascending else "desc",
    }
    with connected(url, key) as client:
        found = client.searches(most=None, **filters)
        if op is not None and not found:
            require_op(client, op, "--op")
        if as_json:
            print_json(found)
            return
        unserved = _find_unserved_targets(client, found)
    for item in found:
        best = f"{item.best_score:.2f}x" if item.best_score is not None else "-"
        wait = "no live judge worker for its target" if item.state not in ENDED and item.target in unserved else None
        why = clean_line(item.reason or "", LONGEST) if item.state in ("paused", "failed") else None
        about = "  ".join(filter(None, (item.model_name or item.provider, item.name, ", ".join(item.tags), wait, why)))
        tell(f"{item.id}  {item.state:9}  {item.op_name:24} {item.target:12} best {best:7}  {about}")
    if not found and (state or op or target or tag or text or archived):
        say("no search matches")
    elif not found:
        say("no searches yet: warpsmith search examples/layer_norm.yaml")


def _find_unserved_targets(client: Client, found: Sequence[SearchSummary]) -> set[str]:
    """Return the targets of open searches that no live judge worker serves."""
    targets = {item.target for item in found if item.state not in ENDED}
    return targets and targets - {each.target for each in client.workers() if each.alive and each.role == "judge"}


def tree(
    search: SearchArgument,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
    story: Annotated[bool, typer.Option("--story", help="The story alone, without the tree.")] = False,
) -> None:
    """Show the tree of a search and its story.

    A star marks the path to the best. The story says what was tried, what worked, what failed and why, and the cost.
    """
    with connected(url, key) as client:
        search_id = find_search_id(client, search)
        document = client.search(search_id)
        nodes = [] if story else client.tree(search_id)
        found = client.story(search_id)
    if as_json:
        print_json({"search": document, "story": found} | ({} if story else {"nodes": nodes}))
        return
    if not story:
        print_wide(build_tree(document, nodes))
        tell("")
    tell(found.text.rstrip())


def pause(search: SearchArgument, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Pause a search: steps that run are finished, no new ones begin."""
    _change(search, "pause", url, key, as_json)


def resume(search: SearchArgument, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Go on with a paused search."""
    _change(search, "resume", url, key, as_json)


def cancel(search: SearchArgument, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """End a search for good; the best of what it has verified is kept."""
    _change(search, "cancel", url, key, as_json)


def _change(search: str, action: str, url: str | None, key: str | None, as_json: bool) -> None:
    with connected(url, key) as client:
        document = client.change_search(find_search_id(client, search), action)
    print_json(document) if as_json else tell(f"search {document.id} is {document.state}")
