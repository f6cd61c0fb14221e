"""`warpsmith verify-export`: checks here that an export behaves as its evidence says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from warpsmith.service.cli.options import Json
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.client.errors import DONE, FAILED, CommandError, misuse
from warpsmith.service.documents.escaping import clean_line
from warpsmith.workers import exports
from warpsmith.workers.exports import CannotVerify, NotAnExport, Report

LONGEST = 200


def verify_export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="An exported package's project directory.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Check an exported package in fresh, offline processes.

    Writes verification.json and VERIFICATION.md into it. Exit code 0: nothing failed; 1: something did; 2: misuse.
    """
    try:
        report = _verify(directory)
    except NotAnExport as error:
        misuse("DIR", str(directory), f"the directory of an exported package: {error}")
    except CannotVerify as error:
        raise CommandError(f"{directory} cannot be verified: {error}") from None
    if as_json:
        print_json(report.document())
    else:
        show(report)
    raise typer.Exit(DONE if report.passed else FAILED)


def verify_where_possible(project: Path) -> Report | None:
    """Verify a fresh export; None, and a line that says why, where this machine cannot verify."""
    try:
        return _verify(project)
    except CannotVerify as error:
        say(f"not verified: {error}; run `warpsmith verify-export {project}` where it can be used")
        return None


def _verify(directory: Path) -> Report:
    say(f"verifying {directory}: the op is compiled and used, which takes a minute")
    return exports.verify_export(directory)


def show(report: Report) -> None:
    """Print the checks as a table, and their summary."""
    table = Table("check", "outcome", "", box=None, pad_edge=False)
    for row in report.rows:
        table.add_row(row.check, row.outcome, clean_line(row.detail, LONGEST))
    print_wide(table)
    tell(report.summary())
