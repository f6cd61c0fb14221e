"""The agent's side: model requests that wait for somebody's answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.cli.connection import connected
from service.cli.options import Json, Key, Url
from service.cli.output import misuse, print_json, say, tell


def ask(
    ask_id: Annotated[
        str | None, typer.Argument(metavar="[ASK]", help="An ask's id; without one, the open asks.")
    ] = None,
    search: Annotated[str | None, typer.Option(help="Only asks of this search.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """List the open asks, or print one with its prompt."""
    with connected(url, key) as client:
        if ask_id is not None:
            document = client.ask(ask_id)
            if as_json:
                print_json(document)
                return
            for message in document.messages:
                tell(f"--- {message['role']} ---\n{message['content']}")
            say(f"answer it: warpsmith tell {document.id} REPLY.txt (- reads standard input)")
            return
        found = client.asks(search_id=search)
    if as_json:
        print_json(found)
        return
    for item in found:
        tell(f"{item.id}  {item.kind:8} search {item.search_id}  node {item.node_id}")
    if not found:
        say("no open asks")


def tell_reply(
    ask_id: Annotated[str, typer.Argument(metavar="ASK", help="An ask's id.")],
    reply: Annotated[str, typer.Argument(metavar="FILE", help="The reply as a file; - reads standard input.")],
    answered_by: Annotated[str | None, typer.Option("--by", help="Who answers; kept with the pool.")] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Answer an ask."""
    if reply != "-" and not Path(reply).is_file():
        misuse("FILE", reply, "a file that exists, or - for standard input")
    text = sys.stdin.read() if reply == "-" else Path(reply).read_text(encoding="utf-8")
    if not text.strip():
        misuse("FILE", reply, "a reply that is not empty")
    with connected(url, key) as client:
        document = client.answer(ask_id, text, answered_by)
    print_json(document) if as_json else tell(f"ask {document.id} is {document.state}")
