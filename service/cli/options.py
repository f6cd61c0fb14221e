"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", envvar="WARPSMITH_URL", help="The service; by default the one that runs on this machine's home."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key", envvar="WARPSMITH_API_KEY", help="API key, where the service asks for one.", show_envvar=True
    ),
]
OpArgument = Annotated[
    str,
    typer.Argument(
        help="A spec file, YAML or JSON; or the id or name of an op: a stored one, else an example that ships.",
        metavar="OP",
        show_default=False,
    ),
]
