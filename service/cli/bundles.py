"""Bundles: judge jobs taken to a host that the service cannot reach, and their verdicts brought back."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from kernels_db.bundle import HEADER
from service.bundles.folder import JUDGE, BadFolder, check_free, chunks, read_verdicts, write_bundle
from service.bundles.judge_copy import copy_judge
from service.cli.connection import connected
from service.cli.options import Json, Key, Url
from service.cli.output import FAILED, CommandError, misuse, print_json, say, tell
from service.schemas import MergedLine, MergeReport

MOST_SHOWN = 20


def bundle(
    search_id: Annotated[str | None, typer.Argument(metavar="SEARCH", help="The search whose jobs wait.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="New directory for the bundle.")
    ] = None,
    with_judge: Annotated[
        bool, typer.Option("--with-judge", help="Put the judge itself into the directory, for hosts without Warpsmith.")
    ] = False,
    drop: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="Give the jobs of a bundle back to the queue instead.")
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Take a search's waiting judge jobs to a host that the service cannot reach: for `python -m workers.judge DIR`."""
    if drop is not None:
        if search_id is not None or output is not None or with_judge:
            misuse("--drop", drop, "nothing beside it: it names a bundle, and writes nothing")
        _drop(drop, url, key, as_json=as_json)
        return
    if search_id is None:
        misuse("SEARCH", None, "the id of a search whose jobs wait for a judge")
    if output is None:
        misuse("--output", None, "a new directory for the bundle")
    try:
        check_free(output)
    except BadFolder as error:
        raise CommandError(str(error), 2) from None
    with connected(url, key) as client:
        found = client.create_bundle(search_id, idempotency_key=uuid.uuid4().hex)
        try:
            if with_judge:
                copy_judge(output / JUDGE)
            write_bundle(output, found, with_judge=with_judge)
        except BaseException:
            client.drop_bundle(found.id)  # nobody has it: its steps must not wait for it
            raise
    if as_json:
        print_json(found.model_dump(mode="json", exclude={"jobs"}) | {"output": str(output)})
        return
    tell(f"{found.id}: {_jobs(found.count)} for {found.op} on {found.target} in {output}")
    if found.left:
        say(f"{_jobs(found.left)} more wait for another bundle")
    say(f"README.txt there says how to judge them; then: warpsmith merge {output}")


def merge(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A bundle's directory that came back, or its verdicts.jsonl.")
    ],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Bring the verdicts of a bundle in. Exit code 1 where a line was refused; every other line is merged."""
    if not directory.exists():
        misuse("DIR", str(directory), "a bundle's directory")
    try:
        lines, torn = read_verdicts(directory)
    except BadFolder as error:
        raise CommandError(str(error), 2) from None
    if torn:
        say(f"the last line was not finished: left out; python -m workers.judge {directory} judges that job again")
    told: list[MergedLine] = []
    with connected(url, key) as client:
        for before, content in chunks(lines):
            if content.strip():
                found = client.merge_verdicts(content).lines
                told += [line.model_copy(update={"line": line.line + before}) for line in found]
    counts = Counter(line.outcome for line in told)
    report = MergeReport(
        merged=counts["merged"], already=counts["already"], late=counts["late"], refused=counts["refused"], lines=told
    )
    if as_json:
        print_json(report)
    else:
        _tell_report(report, directory)
    if report.refused:
        raise typer.Exit(FAILED)


def _tell_report(report: MergeReport, directory: Path) -> None:
    worth_telling = [line for line in report.lines if line.outcome in ("refused", "late")]
    for line in worth_telling[:MOST_SHOWN]:
        if line.error is not None:
            error = line.error
            say(f"line {line.line}: refused: {error.field}: found {error.found!r}, expected {error.expected}")
        else:
            say(f"line {line.line}: too late: {line.detail}")
    if len(worth_telling) > MOST_SHOWN:
        say(f"... and {len(worth_telling) - MOST_SHOWN} more lines: --json has them all")
    others = {"already merged": report.already, "too late": report.late, "refused": report.refused}
    rest = "".join(f", {count} {word}" for word, count in others.items() if count)
    merged = f"{report.merged} verdict{'' if report.merged == 1 else 's'} merged"
    tell(f"{merged}{rest}" if report.lines else f"no verdicts in {directory}")
    for search_id in sorted({line.search_id for line in report.lines if line.search_id and line.outcome == "merged"}):
        say(f"the search goes on: warpsmith tree {search_id}")


def _drop(bundle_id: str, url: str | None, key: str | None, *, as_json: bool) -> None:
    directory = Path(bundle_id)
    if directory.is_dir():
        misuse("--drop", bundle_id, f"the bundle's id, which stands in {directory / HEADER}")
    with connected(url, key) as client:
        dropped = client.drop_bundle(bundle_id)
    if as_json:
        print_json(dropped)
    else:
        kept = f"; {dropped.merged} had their verdicts" if dropped.merged else ""
        tell(f"{_jobs(dropped.returned)} of {dropped.id} returned to the queue of {dropped.search_id}{kept}")


def _jobs(count: int) -> str:
    return f"{count} job" + ("" if count == 1 else "s")
