"""The prompts for the model.

Templates (`*.md.j2`), facts about each language (`languages/`), the playbook of techniques, a page for each
family of architectures, and one minimal kernel per language (`examples/`).

Templates are plain text: nothing is escaped. Text that others wrote (a reference, a reply, a log) goes through the
filters `fenced` or `quoted`, so that it cannot end its own block and read as part of the request. A name that the
caller did not give is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Play:
    """One technique of the playbook, its `summary` in one line.

    By device type: `signs`, the signs in one line that it is worth trying, and `advice`, a list in Markdown whose items
    may be marked as those of a `Page`.
    """

    technique: str
    title: str
    summary: str
    signs: Mapping[str, str]
    advice: Mapping[str, str]

    def advice_for(self, device: str, kinds: frozenset[str], language: str) -> str:
        """Return the advice for candidates in a language on an op of these kinds; on any op where none is known."""
        return _fitting(self.advice[device], kinds, language)

    def first(self, device: str) -> str:
        """Return the first sentence of the advice for a type of device; the weightiest item comes first."""
        return re.split(r"(?<=[.;]) ", self.advice[device].splitlines()[0].removeprefix("- "))[0].rstrip(";.") + "."


@dataclass(frozen=True)
class Page:
    """Advice for one family of architectures: `targets` as `cuda sm_90`, `advice` in Markdown.

    An item that begins with `[product]` or the like is for ops of that kind alone (`kernels_db.store.structure`), one
    that begins with `[; triton]` or `[product; triton]` for candidates in that language alone.
    """

    title: str
    targets: frozenset[str]
    advice: str

    def advice_for(self, kinds: frozenset[str], language: str) -> str:
        """Return the advice for candidates in a language on an op of these kinds; on any op where none is known."""
        return _fitting(self.advice, kinds, language)


def _fitting(advice: str, kinds: frozenset[str], language: str) -> str:
    """Return the items that carry no mark, or one that has a kind of the op and the language."""
    lines = []
    for line in advice.splitlines():
        tagged = re.match(r"- \[([a-z ]*)(?:; ([a-z ]+))?\] ", line)
        if tagged is None:
            lines.append(line)
            continue
        of, languages = set(tagged[1].split()), tagged[2]
        if (not kinds or not of or kinds & of) and (languages is None or language in languages.split()):
            lines.append(f"- {line[tagged.end() :]}")
    return "\n".join(lines)


class PromptError(ValueError):
    """A file of this package that is not as the code expects it."""


def render(name: str, **context: object) -> str:
    """Return the template `name` (as `ideate.md.j2`) filled with `context`.

    It ends with one newline. Raises jinja2.UndefinedError for a name that `context` lacks, jinja2.TemplateNotFound
    for an unknown template.
    """
    return _tidy(_environment().get_template(name).render(**context))


def example(language: str) -> str:
    """Return the minimal candidate in a language of searches."""
    return (_HERE / "examples" / f"{language}.py").read_text(encoding="utf-8")


@lru_cache
def playbook() -> tuple[Play, ...]:
    """Return the techniques, in the order of their files' names."""
    return tuple(_play(path) for path in sorted((_HERE / "playbook").glob("*.md")))


@lru_cache
def architectures() -> tuple[Page, ...]:
    """Return the pages, in the order of their files' names."""
    return tuple(_page(path) for path in sorted((_HERE / "architectures").glob("*.md")))


def architecture(device: str, arch: str) -> Page | None:
    """Return the page for a target; None where none fits.

    A target is a device and an architecture: ("cuda", "sm_90a") or ("cpu", "x86_64").
    """
    family = arch.rstrip("af") if device == "cuda" else arch  # sm_90a is sm_90 with instructions of its own
    return next((page for page in architectures() if f"{device} {family}" in page.targets), None)


def fenced(text: str, language: str = "") -> str:
    """Return `text` as a code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"


def quoted(text: str) -> str:
    """Return `text` as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _tidy(text: str) -> str:
    """Keep one blank line where templates left several, except inside fences."""
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        opened = re.match(r"`{3,}", line)
        if fence:
            if line == fence:
                fence = ""
        elif opened:
            fence = opened[0]
        elif not line.strip():
            if not lines or lines[-1] == "":
                continue
            line = ""  # noqa: PLW2901 - blanks alone are no text
        lines.append(line)
    return "\n".join(lines).strip("\n") + "\n"


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - a prompt is rendered, not a page
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fenced"] = fenced
    environment.filters["quoted"] = quoted
    return environment


def _play(path: Path) -> Play:
    text = path.read_text(encoding="utf-8")
    section = r"\n\n## {}\n\n- Signs: ([^\n]+)\n(.+?)"
    match = re.fullmatch(rf"# (.+)\n\n(.+){section.format('CPU')}{section.format('GPU')}\n", text, re.DOTALL)
    if match is None or "\n" in match[1] or "\n" in match[2]:
        raise PromptError(
            f"{path.name}: expected '# title', one line, '## CPU' and '## GPU', each with '- Signs: ...' first, and "
            "blank lines between"
        )
    title, summary, *parts = match.groups()
    return Play(
        technique=path.stem,
        title=title,
        summary=summary,
        signs={"cpu": parts[0], "cuda": parts[2]},
        advice={"cpu": parts[1], "cuda": parts[3]},
    )


def _page(path: Path) -> Page:
    match = re.fullmatch(
        r"# ([^\n]+)\n\nFor: (cpu|cuda) ([^\n]+)\n\n(.+)\n", path.read_text(encoding="utf-8"), re.DOTALL
    )
    if match is None:
        raise PromptError(f"{path.name}: expected '# title', 'For: cuda sm_90 ...' and text, with blank lines between")
    title, device, names, advice = match.groups()
    return Page(title, frozenset(f"{device} {name}" for name in names.split()), advice)
