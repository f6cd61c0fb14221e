"""The command that prunes searches which ended long ago."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import typer

from warpsmith.kernels_db.store import audit
from warpsmith.service.cli.commands.admin import COMMAND_LINE, database
from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, say
from warpsmith.service.client.errors import misuse
from warpsmith.workers import steps
from warpsmith.workers.settings import get_settings

DAY_S = 86_400.0


def prune(
    days: Annotated[
        float | None,
        typer.Option("--days", metavar="N", help="Searches that ended so many days ago; default is the setting's."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Delete events of single steps, and the text of prompts, of searches that ended long ago.

    Verdicts, code, replies, kernels with their evidence, stories and the audit log stay.
    """
    wanted = get_settings().retention_days if days is None else days
    if wanted <= 0:
        misuse("--days", f"{wanted:g}", "a number above 0, here or in WARPSMITH_RETENTION_DAYS")
    now, total = time.time(), steps.Pruned()
    with database() as db, audit.acting(audit.Entry(COMMAND_LINE, "prune")):
        while (found := steps.prune(db, now - wanted * DAY_S, now)).searches:
            total += found
    if as_json:
        print_json(asdict(total))
        return
    say(f"searches pruned: {total.searches}; events deleted: {total.events}; prompts emptied: {total.prompts}")
