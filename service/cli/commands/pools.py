"""Commands for pools: list, store and export recorded model replies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.files import make_directory
from warpsmith.service.cli.import_progress import ImportProgress
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.cli.search_argument import SearchArgument, find_search_id
from warpsmith.service.client.errors import CommandError, misuse
from warpsmith.service.documents.pools import PoolDocument

app = typer.Typer(no_args_is_help=True, help="Recorded model replies, from which searches replay.")


@app.command("list")
def list_pools(url: Url = None, key: Key = None, as_json: Json = False) -> None:
    """List the stored pools, newest first."""
    with connected(url, key) as client:
        found = client.pools()
    if as_json:
        print_json(found)
        return
    for pool in found:
        tell(_format_line(pool))
    if not found:
        say("no pools yet: warpsmith import FILE --format pool")


@app.command("import")
def import_pool(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A pool as JSON lines.")],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Store a pool; the same pool is stored once.

    Short for `warpsmith import FILE --format pool`.
    """
    if not file.is_file():
        misuse("FILE", str(file), "a pool file that exists")
    with connected(url, key) as client:
        pool = client.import_pool(file.read_bytes(), ImportProgress())
    print_json(pool) if as_json else tell(_format_line(pool))


@app.command("export")
def export_pool(
    search: SearchArgument,
    output: Annotated[Path | None, typer.Option(help="File to write, by default SEARCH.jsonl.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists with another content.")] = False,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Write the replies of a search as a pool.

    Short for `warpsmith export SEARCH --format pool`.
    """
    with connected(url, key) as client:
        search_id = find_search_id(client, search)
        content = client.export_pool(search_id)
    output = output or Path(f"{search_id}.jsonl")
    if output.exists() and not force and (not output.is_file() or output.read_bytes() != content):
        raise CommandError(
            f"--output: found {output} with another content, expected a new file; give --force to replace it"
        )
    make_directory("--output", output.parent)
    output.write_bytes(content)
    replies = len(content.splitlines()) - 1
    if as_json:
        print_json({"search": search_id, "output": str(output), "replies": replies})
    else:
        tell(f"{replies} replies of {search_id} in {output}")


def _format_line(pool: PoolDocument) -> str:
    header = pool.header
    by = f", answered by {header['answered_by']}" if header.get("answered_by") else ""
    return f"{pool.id}  {header.get('op', '?'):24} {header.get('target', '?'):12} {pool.replies} replies{by}"
