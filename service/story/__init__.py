"""The story of a search in prose: its task, ideas, successes, failures, cost and end.

Pure functions from plain records (`facts`) to sections, and from sections to text; `gather` reads the records. Ratios
are speed-ups over PyTorch's fastest baseline with their 95 % interval. Text of models, ops' authors and persons is
data: `warpsmith.service.documents.escaping` keeps it on one line and never lets it be markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from warpsmith.service.documents.escaping import mark_foreign, render_markdown, render_text
from warpsmith.service.documents.figures import format_ratio
from warpsmith.service.story import failures, parts
from warpsmith.service.story.facts import Answers, Section, Steer, StoryFacts, StoryNode

__all__ = ["Answers", "Section", "Steer", "Story", "StoryFacts", "StoryNode", "tell"]

WIDTH = 100

PARTS: tuple[Callable[[StoryFacts], Section | None], ...] = (
    parts.tell_task,
    parts.tell_attempts,
    parts.tell_successes,
    failures.tell_failures,
    parts.tell_winner,
    parts.tell_cost,
    parts.tell_steering,
    parts.tell_end,
)


@dataclass(frozen=True)
class Story:
    """A story; text of others in it is marked until it is rendered."""

    title: str
    sections: tuple[Section, ...]

    def plain(self) -> tuple[str, list[Section]]:
        """Render the title and the sections as plain text."""
        shown = [
            Section(part.heading, render_text(part.paragraph), tuple(map(render_text, part.items)))
            for part in self.sections
        ]
        return render_text(self.title), shown

    def text(self, width: int = WIDTH) -> str:
        """Render the story for a terminal, in lines of at most `width` columns."""
        title, sections = self.plain()
        blocks = [_wrap(title, width)]
        for section in sections:
            items = [_wrap(item, width, "  - ", "    ") for item in section.items]
            blocks.append("\n".join([section.heading.upper(), _wrap(section.paragraph, width), *items]))
        return "\n\n".join(blocks) + "\n"

    def markdown(self) -> str:
        """Render the story as Markdown, in which text of others is literal."""
        blocks = [f"# {render_markdown(self.title)}"]
        for section in self.sections:
            blocks += [f"## {section.heading}", render_markdown(section.paragraph)]
            if section.items:
                blocks.append("\n".join(f"- {render_markdown(item)}" for item in section.items))
        return "\n\n".join(blocks) + "\n"


def tell(facts: StoryFacts) -> Story:
    """Tell the story of a search in any state; leaves out empty parts."""
    sections = (part(facts) for part in PARTS)
    return Story(_make_title(facts), tuple(section for section in sections if section is not None))


def _make_title(facts: StoryFacts) -> str:
    search = facts.search
    what = f"{mark_foreign(search.op_name)} on {mark_foreign(search.target)}"
    match search.state:
        case "failed":
            return f"{what}: the search failed"
        case "finished" if search.kernels and search.best is not None and search.best.score is not None:
            return f"{what}: a kernel {search.best.score:.2f} times as fast as PyTorch's fastest"
        case "finished":
            return f"{what}: nothing was found that is surely faster than PyTorch"
    so_far = (
        "nothing right so far" if search.best is None else f"{format_ratio(search.best.score, search.best.ci95)} so far"
    )
    return f"{what}: {search.state}, {so_far}"


def _wrap(text: str, width: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
