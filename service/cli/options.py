"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
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
OpFile = Annotated[Path, typer.Argument(help="Op spec, YAML or JSON.", metavar="OP.yaml", show_default=False)]
