"""Read a model's reply: ideas, lessons or one candidate's source.

Pure and bounded; arbitrary text is safe. An unreadable reply raises `Unreadable`, whose `problem` is written for the
model: it goes into the re-ask.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypedDict

from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.reply.extract import (
    MAX_OBJECT_CHARS,
    blocks,
    defines_run,
    is_python,
    objects,
    without_thoughts,
)
from warpsmith.workers.llm.reply.techniques import TECHNIQUES, technique
from warpsmith.workers.text import middle_cut, one_line, storable

MAX_REASKS = 2
"""Re-asks of one attempt after an unreadable reply; then the branch closes."""

MAX_REPLY_CHARS = 400_000
"""The longest answer that is read; thoughts before it do not count."""
MAX_SOURCE_CHARS = 200_000
MAX_FIELD_CHARS = 4_000
MAX_TITLE_CHARS = 160
MAX_LESSONS = 6
MAX_LESSON_CHARS = 600


class Idea(TypedDict):
    """One optimisation in prose. Plain text throughout; `title` is one line."""

    technique: str
    title: str
    mechanism: str
    evidence: str
    expected_gain: str
    risk: str
    sketch: str


class Lesson(TypedDict):
    """A reflection's conclusion from the rounds so far. Plain text, one line each."""

    lesson: str
    evidence: str


class IdeasRead(NamedTuple):
    """What was read of a reply with ideas.

    taken: the ideas to go on with. unusable: what is wrong with each that cannot be used. left_out: why each idea that
    was not taken is left out, those that repeat a title or are more than were asked for among them, in order.
    """

    taken: list[Idea]
    unusable: list[str]
    left_out: list[str]


_REQUIRED = ("technique", "title", "mechanism")
_IDEA_KEYS = frozenset({"technique", "title"})
_LESSON_KEYS = frozenset({"lesson"})


class Unreadable(ValueError):  # noqa: N818 - named for the reply's fault
    """A reply that cannot be used as it is; `problem` says why, in words for its author."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def ideas(reply: ModelReply, expected: int) -> list[Idea]:
    """Read the ideas of `reply`, at most `expected`, in order.

    Readable ones count even when others are not, or the end was cut off.
    """
    found = read_ideas(reply, expected)
    if found.taken:
        return found.taken
    if problems := found.unusable:
        raise Unreadable(f"No usable idea among {len(problems)}: {'; '.join(problems[:3])}.")
    raise _no_list(reply, _answer(reply), "idea")


def read_ideas(reply: ModelReply, expected: int | None) -> IdeasRead:
    """Read the ideas of `reply`, at most `expected`, and why each of the others is left out.

    Raises Unreadable where the reply holds no answer at all.
    """
    read = IdeasRead([], [], [])

    def leave_out(entry: dict[str, Any], characters: int) -> None:
        problem = f"{_name(entry)} has {characters} characters, at most {MAX_OBJECT_CHARS} are read of an idea"
        longest = max(Idea.__annotations__, key=lambda field: len(_whole_text(entry.get(field))))
        problem += f"; its {longest} has {len(_whole_text(entry.get(longest)))}"
        read.unusable.append(problem)
        read.left_out.append(problem)

    for entry in objects(_answer(reply), _IDEA_KEYS, leave_out):
        try:
            idea = _idea(entry)
        except Unreadable as unreadable:
            read.unusable.append(unreadable.problem)
            read.left_out.append(unreadable.problem)
            continue
        if idea["title"].lower() in {other["title"].lower() for other in read.taken}:
            read.left_out.append(f"{idea['title']!r} repeats the title of an idea before it")
        elif len(read.taken) == expected:
            read.left_out.append(f"{idea['title']!r} is more than the ask wants ({expected})")
        else:
            read.taken.append(idea)
    return read


def lessons(reply: ModelReply) -> list[Lesson]:
    """Read the lessons of `reply`, at most `MAX_LESSONS`, in order.

    A lesson that lacks its evidence is left out.
    """
    text = _answer(reply)
    found: list[Lesson] = []
    for entry in objects(text, _LESSON_KEYS):
        if len(found) == MAX_LESSONS:
            break
        said, evidence = (one_line(_text(entry.get(key)), MAX_LESSON_CHARS) for key in ("lesson", "evidence"))
        if said and evidence:
            found.append(Lesson(lesson=said, evidence=evidence))
    if not found:
        raise _no_list(reply, text, "lesson")
    return found


def code(reply: ModelReply) -> str:
    """Read the candidate's source.

    The last complete code block that defines `run` and is Python, or the whole reply where it is nothing but code.
    """
    source = _source(_answer(reply), cut=reply.finish_reason == "length")
    if len(source) > MAX_SOURCE_CHARS:
        raise Unreadable(f"The file has {len(source)} characters; at most {MAX_SOURCE_CHARS} are taken.")
    return source


def _source(text: str, *, cut: bool) -> str:
    found = list(blocks(text))
    whole = [block.text for block in found if block.closed and defines_run(block.text)]
    if whole:
        # Where none parses, the gate names the error in the last: better than to ask without saying what is wrong.
        return next((block for block in reversed(whole) if is_python(block)), whole[-1])
    if cut or any(not block.closed and defines_run(block.text) for block in found):
        raise Unreadable("The code was cut off before its end. Answer with one complete code block and no text around.")
    if found:
        raise Unreadable(
            "No code block defines the entry point `def run(...)` in Python. One block must hold the whole file."
        )
    if defines_run(text) and is_python(text):
        return text.strip("\n") + "\n"
    raise _refused(text) or Unreadable(f"There is no fenced code block in the reply, which begins: {_beginning(text)}")


def _answer(reply: ModelReply) -> str:
    """Return the reply's text after the author's thoughts.

    Raises Unreadable where that is nothing, or too much to read.
    """
    whole = storable(reply.text).replace("\r\n", "\n")
    text = without_thoughts(whole)
    if text is None:
        raise Unreadable("The reply ended within its thoughts, before an answer. Think less and answer.")
    if len(text) > MAX_REPLY_CHARS:
        raise Unreadable(f"The reply has {len(text)} characters; at most {MAX_REPLY_CHARS} are read.")
    if text.strip():
        return text
    if reply.finish_reason == "length":
        raise Unreadable("The reply holds no answer: the token limit was reached before it began. Answer at once.")
    if reply.finish_reason == "content_filter":
        raise Unreadable("The reply is empty: the provider's filter withheld it. Answer with the requested text alone.")
    raise Unreadable("The reply holds thoughts and no answer." if whole.strip() else "The reply is empty.")


def _no_list(reply: ModelReply, text: str, what: str) -> Unreadable:
    if reply.finish_reason == "length":
        return Unreadable(
            f"The reply was cut off at the token limit before the first complete {what}. "
            "Answer with the JSON list alone."
        )
    return _refused(text) or Unreadable(
        f"There is no JSON list of {what}s in the reply, which begins: {_beginning(text)}"
    )


_REFUSAL = re.compile(
    r"\bI(?:['\u2019]m| am) (?:very |so |really )?(?:sorry|unable|not able)\b|\bI can(?:not|['\u2019]t) \w"
    r"|\bI (?:won['\u2019]t|will not|must decline|apologi[sz]e)\b|\bas an ai\b",
    re.IGNORECASE,
)
_REFUSAL_WITHIN = 300


def _refused(text: str) -> Unreadable | None:
    """Return the error for a reply that declines the task; None where it does not look like one."""
    if not _REFUSAL.search(text[:_REFUSAL_WITHIN]):
        return None
    return Unreadable(
        f"The reply declines the task; it begins: {_beginning(text)}. The task is ordinary numerical code for a "
        "benchmark, and your best attempt is enough: a judge checks it. Answer in the form that was asked for."
    )


def _beginning(text: str) -> str:
    return repr(one_line(text[:1_000], 120))


def _idea(entry: dict[str, Any]) -> Idea:
    title, name = one_line(_text(entry.get("title")), MAX_TITLE_CHARS), _name(entry)
    for field in _REQUIRED:
        if not _text(entry.get(field)):
            raise Unreadable(f"{name} has no {field}")
    known = technique(entry["technique"])
    if known is None:
        raise Unreadable(
            f"{name} has technique {_beginning(str(entry['technique']))}, expected one of {', '.join(TECHNIQUES)}"
        )
    return Idea(
        technique=known,
        title=title,
        mechanism=_text(entry.get("mechanism")),
        evidence=_text(entry.get("evidence")),
        expected_gain=_text(entry.get("expected_gain")),
        risk=_text(entry.get("risk")),
        sketch=_text(entry.get("sketch")),
    )


def _name(entry: dict[str, Any]) -> str:
    """Name an idea by its title, in quotes."""
    return repr(one_line(_text(entry.get("title")), MAX_TITLE_CHARS) or "an idea without a title")


def _text(value: object) -> str:
    """Return `value` as text of at most MAX_FIELD_CHARS."""
    return middle_cut(_whole_text(value), MAX_FIELD_CHARS)


def _whole_text(value: object) -> str:
    """Return `value` as text: models put lists and numbers where prose was asked for."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, list) and all(isinstance(line, str) for line in value):
        text = "\n".join(value)
    elif value is None or isinstance(value, bool):
        return ""
    else:
        text = json.dumps(value, ensure_ascii=False)
    return storable(text).strip()
