"""The search of a command: its id, its name, or the name of its op."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from warpsmith.kernels_db.spec.near_misses import suggest
from warpsmith.service.cli.output import say
from warpsmith.service.client.errors import MISUSE, CommandError, misuse

if TYPE_CHECKING:
    from warpsmith.service.client.http import Client
    from warpsmith.service.documents.searches import SearchSummary

SearchArgument = Annotated[
    str, typer.Argument(metavar="SEARCH", help="A search: its id, its name, or its op's name.", show_default=False)
]
EXPECTED = "a search's id (sr_...), its name, or the name of its op"
MOST_SHOWN = 20
MOST_COMPARED = 200
_ID = "sr_"


def find_search_id(
    client: Client,
    given: str,
    field: str = "SEARCH",
    expected: str = EXPECTED,
    archived: Literal["yes", "any"] = "any",
) -> str:
    """Return the id of the search that is meant; a line on standard error says which one a name is.

    A search's own name goes before its op's, and those that are archived are looked at where there is no other;
    `archived` "yes": they alone are. An id is taken as it is. Raises CommandError where no search or several have the
    name.
    """
    if given.startswith(_ID):
        return given
    known = client.searches(most=None, text=given, archived=archived) if given.strip() else []
    found = [one for one in known if one.name == given] or [one for one in known if one.op_name == given]
    found = [one for one in found if one.archived_at is None] or found
    if not found:
        misuse(field, given, f"{expected}{_suggest(client, given)}; warpsmith searches lists them")
    if len(found) > 1:
        shown = [f"  {one.id}  {one.state:9}  {_described(one)}" for one in found[:MOST_SHOWN]]
        more = [f"  ... and {len(found) - MOST_SHOWN} more: warpsmith searches"] if len(found) > MOST_SHOWN else []
        lines = [f"{field}: found {given!r}, which {len(found)} searches have, expected the id of one:", *shown, *more]
        raise CommandError("\n".join(lines), MISUSE)
    say(f"{given}: {found[0].id}, {found[0].state}, {_described(found[0])}")
    return found[0].id


def _suggest(client: Client, given: str) -> str:
    """Return which names of the newest searches, or of their ops, are like the one that was given."""
    newest = client.searches(most=MOST_COMPARED)
    return suggest(given, dict.fromkeys(name for one in newest for name in (one.name, one.op_name) if name)).rstrip("?")


def find_search_ids(client: Client, given: Iterable[str], archived: Literal["yes", "any"] = "any") -> list[str]:
    """Return the ids of several searches, each once. Raises CommandError as `find_search_id` does, for the first."""
    return list(dict.fromkeys(find_search_id(client, each, archived=archived) for each in given))


def _described(search: SearchSummary) -> str:
    """The team is said where there are teams: searches that others share are listed too."""
    alone = type(search).model_fields["team"].default
    team = "" if search.team == alone else f", team {search.team}"
    return f"{search.op_name} on {search.target}{team}"
