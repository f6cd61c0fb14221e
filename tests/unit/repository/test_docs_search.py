"""docs/search.md says what the code has: policies, their parameters, limits, steps, constants, files."""

from __future__ import annotations

import ast
import importlib
import json
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from tests import REPOSITORY
from warpsmith.workers.search.fields import describe
from warpsmith.workers.search.policy import POLICIES
from warpsmith.workers.search.tree import Budget, Step

TEXT = (REPOSITORY / "docs" / "search.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of the table in a section, without its head and code marks."""
    found = re.split(rf"^## {re.escape(section)}$", TEXT, flags=re.MULTILINE)
    assert len(found) == 2, section
    body = re.split(r"^## ", found[1], flags=re.MULTILINE)[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_parameters_are_those_of_the_policy(name: str) -> None:
    documented = {cells[0]: (json.loads(cells[1]), cells[2]) for cells in rows(name)}
    parameters = {
        field.name: (
            field.default,
            "true or false" if field.metadata["kind"] is bool else describe(field.metadata),
        )
        for field in fields(POLICIES[name])
    }
    assert documented == parameters
    assert list(documented) == list(parameters)


def test_limits_are_those_of_a_budget() -> None:
    assert [cells[0] for cells in rows("Budget")] == [field.name for field in fields(Budget)]


def test_steps_are_those_that_there_are() -> None:
    assert {cells[0] for cells in rows("Tree, rounds, steps")} == set(get_args(get_type_hints(Step)["kind"]))


def test_constants_are_those_of_the_code() -> None:
    constants = rows("Constants")
    assert len(constants) == 6
    for name, value, _ in constants:
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute) == ast.literal_eval(value)


def test_contents_lead_to_every_section_in_order() -> None:
    sections = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert re.findall(r"^- \[(.+)\]\(#", TEXT, re.MULTILINE) == sections


def test_files_that_are_named_exist() -> None:
    named = re.findall(r"\b(?:workers|tests|prompts)/[\w./]*\w", TEXT)
    assert len(named) > 5
    for path in named:
        assert (REPOSITORY / path).exists(), path
