"""Commands that keep searches in order: name, tags, notes, archive, delete."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, tell
from warpsmith.service.cli.search_argument import SearchArgument, find_search_id, find_search_ids
from warpsmith.service.client.errors import CommandError, misuse

SearchIds = Annotated[list[str], typer.Argument(metavar="SEARCH...", help="Searches that have ended, by id or name.")]

GOES = "its nodes with their code, tries, profiles, verdicts, prompts, replies and events"
STAYS = "kernels that it kept, with code and evidence, what was exported, the op, and what was spent"


def label(
    search: SearchArgument,
    name: Annotated[str | None, typer.Option(help='One line; "" removes it.')] = None,
    notes: Annotated[str | None, typer.Option(help='Plain text; "" removes it.')] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag to add; may be given again.")] = None,
    untag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag to remove; may be given again.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Name a search, tag it, or keep notes with it."""
    labels: dict[str, Any] = {k: v for k, v in (("name", name), ("notes", notes)) if v is not None}
    if not labels and not tag and not untag:
        misuse("label", None, "something to change: --name, --notes, --tag or --untag")
    with connected(url, key) as client:
        search_id = find_search_id(client, search)
        if tag or untag:
            kept = [one for one in client.search(search_id).tags if one not in (untag or ())]
            labels["tags"] = list(dict.fromkeys([*kept, *(tag or ())]))
        document = client.label_search(search_id, labels)
    if as_json:
        print_json(document)
        return
    tags = f", tags {', '.join(document.tags)}" if document.tags else ""
    tell(f"search {document.id} is named {document.name or 'nothing'}{tags}")
    if document.notes:
        tell(document.notes)


def archive(searches: SearchIds, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """Leave searches out of lists; nothing else of them changes."""
    _archive(searches, True, url, key, as_json)


def unarchive(searches: SearchIds, url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List archived searches again."""
    _archive(searches, False, url, key, as_json)


def _archive(searches: list[str], archived: bool, url: str | None, key: str | None, as_json: bool) -> None:
    with connected(url, key) as client:
        ids = find_search_ids(client, searches, "any" if archived else "yes")
        found = [client.label_search(search_id, {"archived": archived}) for search_id in ids]
    if as_json:
        print_json(found)
        return
    for document in found:
        tell(f"search {document.id} is {'archived' if archived else 'listed again'}")


def delete(
    searches: SearchIds,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; a script must say so.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Delete searches that have ended: nodes, code, verdicts, prompts, replies and events.

    Kernels that they kept stay, with code and evidence, and so do exports, ops, pools and what was spent.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        misuse("--yes", "not given", f"it: this deletes {GOES}")
    with connected(url, key) as client:
        search_ids = find_search_ids(client, searches)
        if not yes:
            several = f"{len(search_ids)} searches" if len(search_ids) > 1 else search_ids[0]
            if not typer.confirm(f"Delete {several}: {GOES}? These stay: {STAYS}.", default=False, err=True):
                raise CommandError("nothing was deleted")
        found = [client.delete_search(search_id) for search_id in search_ids]
    if as_json:
        print_json(found)
        return
    for deleted in found:
        kept = f"; kept: {', '.join(deleted.kernels)}" if deleted.kernels else ""
        tell(f"search {deleted.id} is deleted, with {deleted.nodes} nodes{kept}")
