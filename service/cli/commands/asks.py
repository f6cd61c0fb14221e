"""Commands for agents: list, read and answer the model requests of searches in agent mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.service.cli.commands.tries import print_try
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import make_directory
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import plain, print_json, say, tell
from warpsmith.service.cli.search_argument import EXPECTED, find_search_id
from warpsmith.service.client.errors import MISUSE, CommandError, ProblemError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.client.trying import ENDS, Compilation, describe_ideas, find_fault, try_reply
from warpsmith.service.documents.asks import AskDocument, AskSummary
from warpsmith.service.documents.escaping import clean_line

ASK = "ak_"
LONGEST = 100
LONGEST_FAULT = 400
FORBIDDEN = 403
ANSWERS = {"ideate": "ideas", "reflect": "lessons", "code": "code", "repair": "code"}


def ask(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[SEARCH|ASK]",
            help="A search, for its open asks with their prompts; an ask, for that one; nothing, for a list of all.",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also those that were answered, withdrawn or have expired.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write each prompt to a file in this directory, named after the ask.")
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Show the open asks: model requests that wait for an answer."""
    if which is None and output is not None:
        misuse("--output", str(output), "a SEARCH or an ASK whose prompts are to be written")
    state = None if every else "open"
    with connected(url, key) as client:
        if which is None:
            _print_list(client.asks(state), every, as_json)
            return
        if which.startswith(ASK):
            documents = [client.ask(which)]
        else:
            search_id = find_search_id(client, which, "SEARCH|ASK", f"{EXPECTED}, or an ask's id (ak_...)")
            documents = _fetch_asks(client, search_id, state)
    paths = None if output is None else [_write_prompt(document, output) for document in documents]
    if as_json:
        found: list[Any] = [item.model_dump(mode="json") for item in documents]
        if paths is not None:
            found = [item | {"file": str(path)} for item, path in zip(found, paths, strict=True)]
        print_json(found[0] if which.startswith(ASK) else found)
        return
    if paths is None:
        for document in documents:
            _print_ask(document)
    else:
        for document, path in zip(documents, paths, strict=True):
            tell(f"{_format_line(document)}  {path}")
    if not documents:
        say(f"no {'asks' if every else 'open asks'} of {which}")
    elif any(item.state == "open" for item in documents):
        say("answer one: warpsmith tell ASK REPLY.txt (- reads standard input)")


def tell_reply(
    ask_id: Annotated[str, typer.Argument(metavar="ASK", help="An ask's id.")],
    reply: Annotated[str, typer.Argument(metavar="FILE", help="The reply as a file; - reads standard input.")],
    answered_by: Annotated[str | None, typer.Option("--by", help="Who answers; kept with the pool.")] = None,
    wait: Annotated[
        float, typer.Option(min=0.0, help="Seconds to wait for the gate's and the compiler's word on code; 0: none.")
    ] = 60.0,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Send also what cannot be read; where nothing can, the search asks again.")
    ] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Answer an ask. The first answer counts; the same one again is no error.

    What cannot be read as an answer is refused, a single idea of several too, and the ask stays open. Of ideas it says
    how many become nodes, and which are left out and why. Code is compiled
    at once by a judge worker that can, with or without the target's device: what gate and compiler find is said here.
    """
    text = _read_reply(reply)
    with connected(url, key) as client:
        if not as_is:
            _require_answer(client, ask_id, text)
        document = client.answer(ask_id, text, answered_by)
        compiled = try_reply(client, document, text, wait)
    if as_json:
        found, missing = (None, None) if compiled is None else (compiled.found, compiled.missing)
        word = {"compiled": None if found is None else plain(found), "not_compiled": missing}
        print_json(document.model_dump(mode="json") | word)
        return
    tell(f"ask {document.id} is {document.state}: {_describe_subject(document)}")
    if document.ideas is not None:
        tell(describe_ideas(document.ideas))
        for why in document.ideas.left_out:
            tell(f"left out: {clean_line(why, LONGEST_FAULT)}")
    if compiled is not None:
        _print_compilation(compiled, wait)


def _print_compilation(compiled: Compilation, wait: float) -> None:
    """Print the compiler's word on the code of an answer, or that there is none, and why."""
    found = compiled.found
    if found is None:
        tell(f"not compiled here: {compiled.missing}")
    elif found.state in ENDS:
        print_try(found)
    else:
        tell(
            f"not compiled after {wait:g} s (--wait): warpsmith node {found.node_id} shows what {found.id} found, later"
        )


def _require_answer(client: Client, ask_id: str, text: str) -> None:
    """End the command where an open ask would take a reply that the search cannot read."""
    try:
        ask = client.ask(ask_id)
    except ProblemError as problem:
        if problem.status != FORBIDDEN:
            raise
        return  # the key may answer and not read: the search says what it cannot read, and asks again
    fault = find_fault(ask.kind, text) if ask.state == "open" else None
    if fault is not None:
        wanted = ANSWERS.get(ask.kind, "code")
        raise CommandError(
            f"FILE: found not the {wanted} that ask {ask.id} wants: {clean_line(fault, LONGEST_FAULT)} The ask is "
            f"still open. Its prompt ends with the form: warpsmith ask {ask.id}",
            MISUSE,
        )


def format_prompt(document: AskDocument) -> str:
    """Join the prompt's messages into one text, each under a line with its role."""
    return "\n".join(f"--- {message['role']} ---\n{message['content']}" for message in document.messages)


def _fetch_asks(client: Client, search_id: str, state: str | None) -> list[AskDocument]:
    client.search(search_id)  # an unknown search is an error, not an empty list
    return [client.ask(item.id) for item in reversed(client.asks(state, search_id=search_id))]


def _print_list(found: list[AskSummary], every: bool, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for item in found:
        tell(_format_line(item))
    if found:
        say("with their prompts: warpsmith ask SEARCH, or warpsmith ask ASK for one")
    else:
        say("no asks" if every else "no open asks")


def _format_line(item: AskSummary) -> str:
    subject = _describe_subject(item)
    return f"{item.id}  {item.kind:8} {item.state:9} search {item.search_id}  node {item.node_id}  {subject}"


def _describe_subject(item: AskSummary) -> str:
    """Name the node that the reply is for, by the op, its number and the idea's title.

    Code asks need not come in the order of their ideas.
    """
    return f"{item.op_name} #{item.seq}" + (f" {clean_line(item.title, LONGEST)}" if item.title else "")


def _print_ask(document: AskDocument) -> None:
    parts = [f"=== {_format_line(document)} ===", format_prompt(document)]
    if document.reply is not None:
        parts += [f"--- reply of {document.answered_by or 'an unnamed person'} ---", document.reply]
    if document.replaced_by is not None:
        parts.append(f"--- {document.replaced_by} asks the same now ---")
    tell("\n".join(parts))


def _write_prompt(document: AskDocument, directory: Path) -> Path:
    """Write the prompt to a file and return its path; never replaces other content."""
    make_directory("--output", directory)
    path, content = directory / f"{document.id}.md", format_prompt(document).encode() + b"\n"
    if path.exists() and path.read_bytes() != content:
        raise CommandError(f"--output: found {path} with another content, expected a new file")
    path.write_bytes(content)
    return path


def _read_reply(reply: str) -> str:
    """Read the reply; ends with misuse where there is none."""
    if reply != "-" and not Path(reply).is_file():
        misuse("FILE", reply, "a file that exists, or - for standard input")
    data = sys.stdin.buffer.read() if reply == "-" else Path(reply).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        misuse("FILE", reply, f"text in UTF-8 ({error.reason} at byte {error.start})")
    if not text.strip():
        misuse("FILE", reply, "a reply that is not empty")
    return text
