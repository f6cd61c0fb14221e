"""The command lines in README.md, CONTRIBUTING.md and docs/ parse; links lead somewhere; make targets exist."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from tests import REPOSITORY
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.service.cli import make_app

PAGES = sorted(path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md"))
DOCUMENTS = ("README.md", "CONTRIBUTING.md", *PAGES)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def command_lines(document: str) -> tuple[list[str], list[str]]:
    """The lines of every code block that names no language, and every inline code."""
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    commands = [block for language, block in FENCE.findall(text) if not language]
    joined = [block.replace("\\\n", " ") for block in commands]
    blocks = [line.strip() for block in joined for line in block.splitlines() if line.strip()]
    return blocks, INLINE.findall(FENCE.sub("", text))


def warpsmith_lines(inline: bool) -> list[str]:
    """The arguments of every `warpsmith` command in the documents."""
    found = set()
    for document in DOCUMENTS:
        for line in command_lines(document)[inline]:
            if "warpsmith" not in line:
                continue  # a tree of ideas is no shell
            words = shlex.split(line.replace("...", ""), comments=True)
            start = next((index for index, word in enumerate(words) if word.endswith("warpsmith")), None)
            if start is not None and (start == 0 or "run" in words[:start]) and words[start + 1 :]:
                found.add(shlex.join(words[start + 1 :]))
    return sorted(found)


@cache
def root_command() -> Any:
    """The `warpsmith` command; building its hundred commands takes longer than parsing a line."""
    return typer.main.get_command(make_app())


def parse(words: list[str]) -> str:
    """Parse a command line as the command would, without running it; returns the command's name."""
    command = root_command()
    context = command.make_context("warpsmith", list(words))
    names = []
    while hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if not rest:
            break
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None
        names.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(names)


def test_there_is_something_to_check() -> None:
    assert len(warpsmith_lines(inline=False)) > 20
    assert len(warpsmith_lines(inline=True)) > 10


@pytest.mark.parametrize("line", warpsmith_lines(inline=False))
def test_command_lines_parse(line: str) -> None:
    parse(shlex.split(line))


@pytest.mark.parametrize("line", warpsmith_lines(inline=True))
def test_commands_named_in_a_sentence_exist(line: str) -> None:
    try:
        parse(shlex.split(line))
    except typer.BadParameter as error:
        assert str(error).startswith("Missing"), error  # noqa: PT017 - a name without its arguments is well


def test_a_wrong_command_line_would_be_found() -> None:
    for wrong in (["serch", "x.yaml"], ["search", "x.yaml", "--bugdet", "a=1"], ["export"]):
        with pytest.raises(Exception, match=r"(?i)no such|missing"):
            parse(wrong)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_links_exist(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    for path in re.findall(r"\bexamples/\w+\.yaml", text):
        assert path == "examples/OP.yaml" or (REPOSITORY / path).is_file(), path
    prose = re.sub(r"`[^`\n]+`", "", FENCE.sub("", text))  # code has brackets, too
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
        assert ((REPOSITORY / document).parent / link).exists(), link


def anchors(page: Path) -> set[str]:
    """What `page#...` may name: one anchor for each heading."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_into_a_page_lead_somewhere(document: str) -> None:
    here = REPOSITORY / document
    for page, anchor in re.findall(r"\]\(([^)#:]*\.md)?#([^)]+)\)", here.read_text(encoding="utf-8")):
        assert anchor in anchors(here.parent / page if page else here), f"{page}#{anchor}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        blocks, inline = command_lines(document)
        for line in blocks + inline:
            if line.startswith("make "):
                assert line.split()[1] in targets, line


def test_the_guides_op_spec_is_valid() -> None:
    specs = re.findall(r"^```yaml\n(.*?)^```", (REPOSITORY / "docs/guide.md").read_text(encoding="utf-8"), re.M | re.S)
    assert [load_op(spec).name for spec in specs] == ["scaled_residual"]


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"^- .*?\]\((\S+?\.md)\)", (REPOSITORY / "docs/README.md").read_text(encoding="utf-8"), re.M)
    inside = [f"docs/{page}" for page in listed if not page.startswith("../")]
    assert sorted(inside) == [page for page in PAGES if page != "docs/README.md"]


def test_the_readme_keeps_a_place_for_the_measured_run() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- measured run: begin -->") == text.count("<!-- measured run: end -->") == 1
