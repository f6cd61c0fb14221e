"""Commands for bundles: take judge jobs to another host, merge the verdicts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from warpsmith.kernels_db.job.bundle import HEADER
from warpsmith.service.bundles.folder import (
    JUDGE,
    JUDGE_ABOVE,
    JUDGE_BESIDE,
    JUDGE_INSTALLED,
    BadFolder,
    check_free,
    find_bundle_directories,
    find_returned_files,
    read_lines,
    split_lines,
    write_bundle,
)
from warpsmith.service.bundles.judge_copy import copy_judge
from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, say, tell
from warpsmith.service.cli.search_argument import find_search_id
from warpsmith.service.client.errors import FAILED, MISUSE, CommandError, ProblemError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.bundles import BundleDocument, DroppedBundle, MergedLine, MergeReport, UnjudgedJob
from warpsmith.workers.judging.builds import CannotBuild, write_builds

MOST_SHOWN = 20
GONE = (409, 404)
"""Statuses of a search of which nothing waits for a judge any more, or that was deleted."""


def bundle(
    search: Annotated[
        str | None, typer.Argument(metavar="SEARCH", help="The search whose jobs wait: its id, its name, or its op's.")
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Instead of SEARCH: every search whose jobs no live worker takes, a directory each."
        ),
    ] = False,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="With --all: only searches for this target.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="New directory for the bundle.")
    ] = None,
    with_judge: Annotated[
        bool, typer.Option("--with-judge", help="Put the judge itself into the directory, for hosts without Warpsmith.")
    ] = False,
    with_builds: Annotated[
        bool,
        typer.Option(
            "--with-builds",
            help="Compile candidates in CuTe DSL and TileLang here, for hosts without these compilers.",
        ),
    ] = False,
    drop: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="Give the jobs of a bundle back to the queue instead.")
    ] = None,
    show: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="Show what the host of a bundle could not judge, and why.")
    ] = None,
    requeue: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="Give what its host could not judge back to the queue.")
    ] = None,
    give_up: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="End the branches of what its host could not judge.")
    ] = None,
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Take a search's waiting judge jobs to a host that the service cannot reach."""
    of_a_bundle = {"--drop": drop, "--show": show, "--requeue": requeue, "--give-up": give_up}
    given = [(option, bundle_id) for option, bundle_id in of_a_bundle.items() if bundle_id is not None]
    if given:
        (option, bundle_id), *others = given
        if others or search or every or target is not None or output is not None or with_judge or with_builds:
            misuse(option, bundle_id, "nothing beside it: it names a bundle, and writes nothing")
        if Path(bundle_id).is_dir():
            misuse(option, bundle_id, f"the bundle's id, which is in {Path(bundle_id) / HEADER}")
        with connected(url, key) as client:
            _handle_bundle(client, option, bundle_id, as_json=as_json)
        return
    if search is None and not every:
        misuse("SEARCH", None, "the search whose jobs wait for a judge, or --all")
    if search is not None and every:
        misuse("--all", search, "no SEARCH beside it: it takes every search that waits")
    if target is not None and not every:
        misuse("--target", target, "--all beside it: a search has its own target")
    if output is None:
        misuse("--output", None, "a new directory for the bundle")
    try:
        check_free(output)
    except BadFolder as error:
        raise CommandError(str(error), 2) from None
    with connected(url, key) as client:
        if search is None:
            _bundle_all(client, output, target, with_judge=with_judge, with_builds=with_builds, as_json=as_json)
            return
        search_id = find_search_id(client, search)
        if with_judge:
            found = _write_one(client, search_id, output, JUDGE_BESIDE, judge=output / JUDGE, builds=with_builds)
        else:
            found = _write_one(client, search_id, output, JUDGE_INSTALLED, builds=with_builds)
    if as_json:
        print_json(_describe(found, output))
        return
    _print_bundle(found, output)
    say(f"README.txt there says how to judge them; then: warpsmith merge {output}")


def _bundle_all(
    client: Client, output: Path, target: str | None, *, with_judge: bool, with_builds: bool, as_json: bool
) -> None:
    """Bundle every search whose jobs no live judge worker takes, each in a directory of its own in `output`.

    All of them are for one target: the directory goes to one machine.
    """
    command = JUDGE_ABOVE if with_judge else JUDGE_INSTALLED
    waiting = _find_unserved(client, target)
    targets = sorted(set(waiting.values()))
    if len(targets) > 1:
        misuse("--target", None, f"one of {', '.join(targets)}, for which searches wait: a directory goes to one host")
    written: list[dict[str, Any]] = []
    for search_id in waiting:
        directory = output / search_id
        judge = output / JUDGE if with_judge and not written else None  # beside the first: what fails is given back
        try:
            found = _write_one(client, search_id, directory, command, judge=judge, builds=with_builds)
        except ProblemError as error:
            if error.status not in GONE:
                raise
            continue
        written.append(_describe(found, directory))
        if not as_json:
            _print_bundle(found, directory)
    if as_json:
        print_json({"bundles": written})
    elif written:
        there = f"cd {output} && " + ("PYTHONPATH=judge " if with_judge else "")
        say(f"to judge them: {there}python -m warpsmith.workers.judge sr_*; then: warpsmith merge {output}")
    else:
        tell("no search has jobs that wait for a judge")


def _find_unserved(client: Client, target: str | None) -> dict[str, str]:
    """Find the searches with jobs that no live worker takes; returns their targets by id.

    Of one that is paused these are profiles and tries alone; of one that has ended nothing is looked for.
    """
    found: dict[str, str] = {}
    for search in client.searches(state=["queued", "running", "paused"]):
        if target not in (None, search.target):
            continue
        try:
            waiting_for = client.search(search.id).waiting_for
        except ProblemError as error:
            if error.status not in GONE:
                raise
            continue
        if any(item.what == "worker" and item.role == "judge" for item in waiting_for):
            found[search.id] = search.target
    return found


def _write_one(
    client: Client, search_id: str, directory: Path, judged_by: str, *, judge: Path | None = None, builds: bool
) -> BundleDocument:
    """Bundle one search into `directory`, the judge into `judge` where one is named; what fails is given back.

    builds: with what its candidates in CuTe DSL and TileLang compile to here.
    """
    found = client.create_bundle(search_id, idempotency_key=uuid.uuid4().hex)
    try:
        if judge is not None:
            copy_judge(judge)
        write_bundle(directory, found, judged_by=judged_by)
        if builds:
            say(f"{_format_jobs(write_builds(directory))} of {found.id} compiled here")
    except CannotBuild as error:
        client.drop_bundle(found.id)
        raise CommandError(f"--with-builds: {error}", FAILED) from error
    except BaseException:
        client.drop_bundle(found.id)  # it was not written: its steps must not wait for it
        raise
    return found


def _describe(found: BundleDocument, directory: Path) -> dict[str, Any]:
    return found.model_dump(mode="json", exclude={"jobs", "verifications"}) | {"output": str(directory)}


def _print_bundle(found: BundleDocument, directory: Path) -> None:
    tell(f"{found.id}: {_format_jobs(found.count)} for {found.op} on {found.target} in {directory}")
    if found.left:
        say(f"{_format_jobs(found.left)} more wait for another bundle")


@dataclass(frozen=True)
class Returned:
    """What came back of a bundle: its files, each with its lines and whether an unfinished last one was left out."""

    directory: Path
    files: list[tuple[Path, list[bytes], bool]]


def read_returned(paths: list[Path]) -> tuple[list[Returned], dict[Path, str]]:
    """Read what came back in directories, and why nothing is to be merged of some.

    Raises CommandError where there is nothing to merge at all.
    """
    found: list[Returned] = []
    left: dict[Path, str] = {}
    for directory in (each for path in paths for each in find_bundle_directories(path)):
        try:
            files = [(file, *read_lines(file)) for file in find_returned_files(directory)]
        except (BadFolder, OSError) as error:
            left[directory] = str(error)
        else:
            found.append(Returned(directory, files))
    if not found:
        raise CommandError("\n".join(left.values()), MISUSE)
    return found, left


def merge(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Bundles' directories that came back, one that holds some, or their verdicts.jsonl."
        ),
    ],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Merge the verdicts of bundles.

    Exit code 1 where a line was refused or a directory left out; all others are merged.
    """
    for directory in directories:
        if not directory.exists():
            misuse("DIR", str(directory), "a bundle's directory")
    returned, left = read_returned(directories)
    for directory, why in left.items():
        say(f"{directory}: left out: {why}")
    directories = [each.directory for each in returned]
    merged_lines: list[tuple[Path, MergedLine]] = []
    with connected(url, key) as client:
        for file, lines, torn in (file for each in returned for file in each.files):
            if torn:
                name = _display_name(file, directories)
                say(f"the last line of {name} was not finished: left out; the judge writes it again")
            for before, content in split_lines(lines):
                if content.strip():
                    found = client.merge_verdicts(content).lines
                    merged_lines += [(file, line.model_copy(update={"line": line.line + before})) for line in found]
    if not merged_lines:
        where = " ".join(map(str, directories))
        raise CommandError(f"DIR: found no verdicts in {where}, expected at least one", MISUSE)
    report = MergeReport.of([line for _, line in merged_lines])
    if as_json:
        lines_of_files = [
            {"file": _display_name(file, directories), **line.model_dump(mode="json")} for file, line in merged_lines
        ]
        left_out = [{"directory": str(directory), "reason": why} for directory, why in left.items()]
        print_json({**report.model_dump(mode="json"), "lines": lines_of_files, "left_out": left_out})
    else:
        _print_report(report, merged_lines, directories)
    if report.refused or left:
        raise typer.Exit(FAILED)


def _display_name(file: Path, directories: list[Path]) -> str:
    """Return the name to print for a file: with its directory where there are several."""
    return file.name if len(directories) == 1 else str(file)


def _print_report(report: MergeReport, merged_lines: list[tuple[Path, MergedLine]], directories: list[Path]) -> None:
    notable = [(file, line) for file, line in merged_lines if line.outcome in ("refused", "late", "unjudged")]
    for file, line in notable[:MOST_SHOWN]:
        place = f"{_display_name(file, directories)}, line {line.line}"
        if line.error is not None:
            error = line.error
            say(f"{place}: refused: {error.field}: found {error.found!r}, expected {error.expected}")
        elif line.outcome == "late":
            say(f"{place}: too late: {line.detail}")
        else:
            say(f"{place}: {line.nonce} has no verdict: {line.detail}")
    if len(notable) > MOST_SHOWN:
        say(f"... and {len(notable) - MOST_SHOWN} more lines: --json has them all")
    others = {
        "not judged": report.unjudged,
        "already merged": report.already,
        "too late": report.late,
        "refused": report.refused,
    }
    rest = "".join(f", {count} {word}" for word, count in others.items() if count)
    merged = f"{report.merged} verdict{'' if report.merged == 1 else 's'} merged"
    tell(f"{merged}{rest}")
    of_steps = [line for line in report.lines if line.of == "step"]
    for search_id in sorted({line.search_id for line in of_steps if line.search_id and line.outcome == "merged"}):
        say(f"the search goes on: warpsmith tree {search_id}")
    for bundle_id in sorted({line.bundle_id for line in of_steps if line.bundle_id and line.outcome == "unjudged"}):
        _print_next_steps(bundle_id)


def _print_next_steps(bundle_id: str) -> None:
    say(f"judge the rest there again, or: warpsmith bundle --requeue {bundle_id}, or --give-up {bundle_id}")


def _handle_bundle(client: Client, option: str, bundle_id: str, *, as_json: bool) -> None:
    """Show, drop, requeue or give up the jobs of a bundle that was made before."""
    match option:
        case "--show":
            _print_unjudged(client.unjudged(bundle_id), bundle_id, as_json=as_json)
        case "--drop":
            _print_dropped(client.drop_bundle(bundle_id), "returned to the queue", as_json=as_json)
        case "--requeue":
            _print_dropped(client.settle_unjudged(bundle_id, "queue"), "returned to the queue", as_json=as_json)
        case "--give-up":
            _print_dropped(client.settle_unjudged(bundle_id, "fail"), "given up", as_json=as_json)


def _print_unjudged(jobs: list[UnjudgedJob], bundle_id: str, *, as_json: bool) -> None:
    if as_json:
        print_json(jobs)
        return
    for job in jobs:
        tell(f"#{job.seq} {job.step}: {job.nonce} has no verdict: {job.reason}")
    if jobs:
        _print_next_steps(bundle_id)
    else:
        tell(f"no unjudged jobs are known of {bundle_id}")


def _print_dropped(dropped: DroppedBundle, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(dropped)
        return
    kept = f"; {dropped.merged} had their verdicts" if dropped.merged else ""
    count = dropped.returned + dropped.failed
    tell(f"{_format_jobs(count)} of {dropped.id} {done} in {dropped.search_id}{kept}")


def _format_jobs(count: int) -> str:
    return f"{count} job" + ("" if count == 1 else "s")
