"""The command that compares searches of one op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from warpsmith.service.cli.connection import connected
from warpsmith.service.cli.options import Json, Key, Url
from warpsmith.service.cli.output import print_json, print_wide, say, tell
from warpsmith.service.cli.search_argument import find_search_id
from warpsmith.service.documents.comparison import ComparedSearch, ComparisonDocument
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_dollars, format_duration, format_ratio

NONE = "-"
LONGEST_CELL = 80


def compare(
    searches: Annotated[
        list[str], typer.Argument(metavar="SEARCH SEARCH...", help="Two to eight searches, by id or name.")
    ],
    url: Url = None,
    key: Key = None,
    as_json: Json = False,
) -> None:
    """Compare searches of one op: results, what differed, and what each technique came to."""
    with connected(url, key) as client:
        found = client.compare([find_search_id(client, each) for each in searches])
    if as_json:
        print_json(found)
        return
    print_wide(_make_table(["", *map(_name, found.searches)], _list_results(found.searches)))
    for warning in found.warnings:
        say(f"note: {warning}")
    differing = [[fact.name, *(value or NONE for value in fact.values)] for fact in found.facts if fact.differs]
    tell("\nWhat differed:" if differing else "\nNo setting differed.")
    if differing:
        print_wide(_make_table(["", *map(_name, found.searches)], differing))
    tell("\nTechniques (gain: over what a candidate was built on):")
    header = [
        "technique",
        "search",
        "candidates",
        "accepted",
        "improved",
        "median gain",
        "range",
        "best",
        "code cost",
        "judged",
    ]
    print_wide(_make_table(header, _list_techniques(found)))


def _name(one: ComparedSearch) -> str:
    return f"{one.search.name or one.search.op_name}\n{one.search.id}"


def _list_results(searches: Sequence[ComparedSearch]) -> list[list[str]]:
    spends = [one.search.spend for one in searches]
    bests = [one.search.best for one in searches]
    return [
        ["state", *(one.search.state for one in searches)],
        ["best", *(NONE if best is None else f"{format_ratio(best.score, best.ci95)}" for best in bests)],
        ["", *("" if best is None else "verified" if best.verified else "screened" for best in bests)],
        ["candidates", *(str(spend.candidates) for spend in spends)],
        ["cost", *(format_dollars(spend.cost_usd) for spend in spends)],
        ["tokens", *(f"{spend.tokens:,}" for spend in spends)],
        ["time", *(format_duration(spend.wall_clock_s) for spend in spends)],
    ]


def _list_techniques(found: ComparisonDocument) -> list[list[str]]:
    rows = []
    for technique in dict.fromkeys(each.technique for one in found.searches for each in one.techniques):
        for number, one in enumerate(found.searches, start=1):
            rows += [
                [
                    technique,
                    f"{number}",
                    str(each.candidates),
                    str(each.accepted),
                    str(each.improved),
                    NONE if each.median_gain is None else f"{each.median_gain:.2f}x",
                    NONE if each.gain_range is None else f"{each.gain_range[0]:.2f}x to {each.gain_range[1]:.2f}x",
                    NONE if each.best_score is None else f"{each.best_score:.2f}x",
                    format_dollars(each.cost_usd),
                    format_duration(each.judge_s),
                ]
                for each in one.techniques
                if each.technique == technique
            ]
    return rows


def _make_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in header:
        table.add_column(Text("\n").join(_cell(line) for line in name.split("\n")))
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> Text:
    return Text(clean_line(text, LONGEST_CELL))
