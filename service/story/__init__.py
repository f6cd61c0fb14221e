"""A search told in prose: what was asked and tried, what worked, what failed and why, what it cost, how it ended.

Pure functions from plain records (`facts`) to sections, and from sections to text; `gather` reads the records. Ratios
are speed-ups over PyTorch's fastest baseline with their 95 % interval. What a model, an op's author or a person wrote
is data: `warpsmith.service.documents.escaping` keeps it on one line and never lets it be markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from warpsmith.service.documents.escaping import as_markdown, as_text, said
from warpsmith.service.documents.figures import ratio
from warpsmith.service.story import failures, parts
from warpsmith.service.story.facts import Answers, Section, Steer, StoryFacts, StoryNode

__all__ = ["Answers", "Section", "Steer", "Story", "StoryFacts", "StoryNode", "tell"]

WIDTH = 100

PARTS: tuple[Callable[[StoryFacts], Section | None], ...] = (
    parts.asked,
    parts.tried,
    parts.worked,
    failures.failed,
    parts.winner,
    parts.cost,
    parts.steered,
    parts.ended,
)


@dataclass(frozen=True)
class Story:
    """A story; its foreign text is marked until it is rendered."""

    title: str
    sections: tuple[Section, ...]

    def plain(self) -> tuple[str, list[Section]]:
        """The title and the sections as plain text."""
        shown = [
            Section(part.heading, as_text(part.paragraph), tuple(map(as_text, part.items))) for part in self.sections
        ]
        return as_text(self.title), shown

    def text(self, width: int = WIDTH) -> str:
        """The story for a terminal, in lines of at most `width` columns."""
        title, sections = self.plain()
        blocks = [_wrapped(title, width)]
        for section in sections:
            items = [_wrapped(item, width, "  - ", "    ") for item in section.items]
            blocks.append("\n".join([section.heading.upper(), _wrapped(section.paragraph, width), *items]))
        return "\n\n".join(blocks) + "\n"

    def markdown(self) -> str:
        """The story as Markdown, in which foreign text is literal."""
        blocks = [f"# {as_markdown(self.title)}"]
        for section in self.sections:
            blocks += [f"## {section.heading}", as_markdown(section.paragraph)]
            if section.items:
                blocks.append("\n".join(f"- {as_markdown(item)}" for item in section.items))
        return "\n\n".join(blocks) + "\n"


def tell(facts: StoryFacts) -> Story:
    """The story of a search, whatever state it is in; parts with nothing to tell are left out."""
    sections = (part(facts) for part in PARTS)
    return Story(_title(facts), tuple(section for section in sections if section is not None))


def _title(facts: StoryFacts) -> str:
    search = facts.search
    what = f"{said(search.op_name)} on {said(search.target)}"
    match search.state:
        case "failed":
            return f"{what}: the search failed"
        case "finished" if search.kernels and search.best is not None and search.best.score is not None:
            return f"{what}: a kernel {search.best.score:.2f} times as fast as PyTorch's fastest"
        case "finished":
            return f"{what}: nothing was found that is surely faster than PyTorch"
    so_far = "nothing right so far" if search.best is None else f"{ratio(search.best.score, search.best.ci95)} so far"
    return f"{what}: {search.state}, {so_far}"


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
