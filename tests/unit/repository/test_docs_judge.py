"""docs/judge.md and docs/threat-model.md say what the code has: gates, fields, families, layers, constants, commands,
tests."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.redteam_catalogue import cheats
from tests import REPOSITORY
from tests.unit.repository.test_cli_docs import DOCUMENTS, command_lines
from warpsmith.kernels_db.job.documents import (
    AdmissionCheck,
    Failure,
    Gate,
    Level,
    SandboxLevel,
    Verdict,
    VerdictWord,
    WorkloadVerdict,
)
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Ability, Profile
from warpsmith.workers.judge.values import families

JUDGE, THREATS = "docs/judge.md", "docs/threat-model.md"


@cache
def text(document: str) -> str:
    return (REPOSITORY / document).read_text(encoding="utf-8")


def rows(document: str, section: str) -> list[list[str]]:
    """The cells of every row of the tables in a section, without code marks."""
    found = re.split(rf"^## {re.escape(section)}$", text(document), flags=re.MULTILINE)
    assert len(found) == 2, section
    body = re.split(r"^## ", found[1], flags=re.MULTILINE)[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def coded(document: str) -> set[str]:
    """Every word in code marks."""
    return set(re.findall(r"`([^`\n]+)`", text(document)))


def test_every_gate_is_described_in_the_order_of_the_protocol() -> None:
    gates = [row[0] for row in rows(JUDGE, "A job's way through the gates")][1:]
    assert sorted(gates) == sorted(get_args(Gate))
    assert gates[:2] == ["gate", "compile"]
    assert gates[-4:] == ["screen", "verify", "time", "physics"]


@pytest.mark.parametrize("word", [*get_args(VerdictWord), *get_args(Level)])
def test_words_of_a_verdict_are_explained(word: str) -> None:
    assert word in coded(JUDGE)


@pytest.mark.parametrize("document", [Verdict, WorkloadVerdict, AdmissionCheck, Failure])
def test_every_field_of_a_verdict_is_explained(document: type) -> None:
    assert set(document.__annotations__) <= coded(JUDGE)


def test_every_kind_of_failure_is_explained() -> None:
    """Kinds as the judge's sources spell them."""
    found = set()
    for file in (REPOSITORY / "workers" / "judge").rglob("*.py"):
        if file.parent.name == "analysis":  # answers an importer's questions, and writes no verdict
            continue
        source = file.read_text(encoding="utf-8")
        found |= set(re.findall(r'"kind": "(\w+)"', source))
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("RunnerFault", "ReferenceFault"):
                place = 1 if getattr(call.func, "id", "") == "RunnerFault" else 0
                kind = call.args[place]
                if isinstance(kind, ast.Constant):
                    found.add(str(kind.value))
    assert len(found) > 20
    assert found - {"message"} <= coded(JUDGE), found - coded(JUDGE)


def test_every_input_family_is_described() -> None:
    described = {row[0] for row in rows(JUDGE, "Inputs")} - {"family", "---"}
    assert described == set(families._OF_NORMAL)


def test_every_level_and_layer_of_the_sandbox_is_described() -> None:
    described = {row[0] for row in rows(THREATS, "The sandbox")}
    assert set(get_args(SandboxLevel)) <= described
    layers = set()
    for gpu in (False, True):
        for processes in (False, True):
            profile = Profile(processes=processes, gpu=gpu, tasks=64, readable=(), writable=())
            layers |= set(sandbox.expected(profile, Ability(7, True, "plain", "user")).layers)
    assert layers <= described, layers - described


def constants() -> list[tuple[str, str]]:
    return [(name, value) for name, value, *_ in rows(JUDGE, "Constants") if name.startswith("warpsmith.workers.")]


def test_there_are_constants_to_check() -> None:
    assert len(constants()) > 25


@pytest.mark.parametrize(("name", "value"), constants())
def test_constants_are_those_of_the_code(name: str, value: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert getattr(importlib.import_module(module), attribute) == ast.literal_eval(value)


def test_the_rounds_are_those_of_the_code() -> None:
    table = rows(JUDGE, "Rounds, ratios, intervals")[1:]
    assert len(table) == 4
    for kind, fewest, most, _, checks in table:
        device, _, level = kind.partition(", ")
        plan = timing.plan_for(level == "verify", device, 1.0)
        assert (plan.fewest_rounds, plan.most_rounds) == (int(fewest), int(most))
        assert checks == f"{plan.escape:.0%}, {plan.checks}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_that_are_run_exist_and_take_the_options(document: str) -> None:
    blocks, inline = command_lines(document)
    for line in blocks + inline:
        for module, rest in re.findall(r"python -m ([\w.]+)([^|#]*)", line):
            if module.startswith(("benchmarks.", "warpsmith.")):
                found = importlib.util.find_spec(module)
                assert found is not None, module
                assert found.origin is not None
                origin = Path(found.origin)
                source = (origin.with_name("__main__.py") if origin.name == "__init__.py" else origin).read_text()
                for option in re.findall(r"--[\w-]+", rest):
                    assert f'"{option}"' in source, f"{module} {option}"


@pytest.mark.parametrize("document", [JUDGE, THREATS])
def test_files_that_are_named_exist(document: str) -> None:
    named = re.findall(r"\b(?:workers|tests|kernels_db|benchmarks|examples)/[\w./]+\.(?:py|yaml)\b", text(document))
    assert named
    for path in named:
        assert (REPOSITORY / path).is_file(), path


def test_entries_of_the_red_team_that_are_named_exist() -> None:
    names = {cheat.name for device in ("cpu", "cuda") for cheat in cheats(device)}  # type: ignore[arg-type]  # literals
    sections = text(THREATS).partition("## Threats and defences")[2].partition("## The sandbox")[0]
    named = [name for row in re.findall(r"^\|.*\|$", sections, re.MULTILINE) for name in re.findall(r'"([^"]+)"', row)]
    assert len(named) > 40
    assert set(named) <= names, set(named) - names


@pytest.mark.parametrize("document", [JUDGE, THREATS])
def test_contents_lead_to_every_section_in_order(document: str) -> None:
    sections = re.findall(r"^## (.+)$", text(document), re.MULTILINE)
    listed = re.findall(r"^- \[(.+)\]\(#", text(document), re.MULTILINE)
    assert listed == sections
