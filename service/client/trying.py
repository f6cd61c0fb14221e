"""Tries from a client: which node and which code a person or an agent means, and the wait for an answer."""

from __future__ import annotations

import time
from dataclasses import dataclass

from warpsmith.kernels_db.spec.op import Op
from warpsmith.service.client.errors import CommandError, ProblemError, ServiceUnreachableError
from warpsmith.service.client.http import Client
from warpsmith.service.documents.asks import AskDocument, AskIdeas
from warpsmith.service.documents.escaping import clean_line
from warpsmith.service.documents.figures import format_ratio
from warpsmith.service.documents.tries import TryDocument, TrySummary
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.reply.extract import blocks, defines_run
from warpsmith.workers.llm.reply.parsing import Unreadable, code, ideas, lessons, read_ideas
from warpsmith.workers.search.tree import ENDED

POLL_S = 0.2
ENDS = ("done", "failed")
LONGEST_REASON = 200
LONGEST_LACK = 600


@dataclass(frozen=True)
class Compilation:
    """The compiler's word on the code of an answer: the try that has it, or why there is none."""

    found: TryDocument | None
    missing: str | None = None


def read_candidate_text(text: str) -> str:
    """Return the candidate in a file or in a reply with one code block; raises Unreadable where a block is cut off."""
    if any(defines_run(block.text) for block in blocks(text)):
        return code(ModelReply(text, None, None, None, None, None, 0.0))
    return text  # the gate names what is wrong with a file


def find_fault(kind: str, text: str) -> str | None:
    """Return why a reply is no answer to an ask of this kind; None where the search can read all of it.

    A search goes on with the ideas that it can use. Who wrote the others would not learn of it.
    """
    reply = ModelReply(text, None, None, None, None, None, 0.0)
    try:
        if kind == "ideate":
            ideas(reply, 1)
            if unusable := read_ideas(reply, None).unusable:
                said = "; ".join(unusable[:3])
                return f"{len(unusable)} of the ideas cannot be used: {said}. --as-is sends the rest."
        elif kind == "reflect":
            lessons(reply)
        else:
            code(reply)
    except Unreadable as unreadable:
        return unreadable.problem
    return None


def describe_ideas(found: AskIdeas) -> str:
    """Say in one line how many ideas of an answer become nodes, and how many the ask wants."""
    count = len(found.taken)
    if count == 0:
        return "no idea becomes a node: the search says what was wrong, and asks again"
    said = "1 idea becomes a node" if count == 1 else f"{count} ideas become nodes"
    if found.wanted is None:
        return said
    return f"{said}, as many as the ask wants" if count == found.wanted else f"{said}; the ask wants {found.wanted}"


def find_search_of_op(client: Client, op: Op) -> str:
    """Return the id of the newest open search of an op; raises CommandError where there is none."""
    for stored in client.ops(name=op.name):
        if stored.digest == op.digest:
            for search in client.searches(op=stored.id):
                if search.state not in ENDED:
                    return search.id
    raise CommandError(
        f"found no search of {op.name} that has not ended, expected one: warpsmith search OP --model agent --detach "
        "begins one, and warpsmith judge OP FILE judges on this machine without any"
    )


def await_try(client: Client, try_id: str, wait_s: float) -> TryDocument:
    """Return the try once it has ended, or as it is after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    while True:
        found = client.get_try(try_id)
        if found.state in ENDS or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_S)


def try_reply(client: Client, ask: AskDocument, reply: str, wait_s: float) -> Compilation | None:
    """Have the code of an answer compiled, and wait for it.

    None for a reply without code, and where nobody waits. The answer was given all the same, so nothing of this is an
    error: where the service takes no try, the result says why.
    """
    if ask.kind not in ("code", "repair") or wait_s <= 0:
        return None
    try:
        asked = client.create_try(ask.node_id, read_candidate_text(reply), "compile", ask.answered_by)
        return Compilation(await_try(client, asked.id, wait_s))
    except Unreadable:  # sent as it is: the search says so, and asks again
        return None
    except (ProblemError, ServiceUnreachableError) as refused:  # no compiler, a search that ended, a key that may not
        return Compilation(None, clean_line(str(refused), LONGEST_LACK))


def describe_compiled(found: TryDocument) -> str | None:
    """Say in one line that a try at level compile has compiled, and what its kernels take; None where it has not.

    What Triton's interpreter finds wrong compiled all the same.
    """
    if found.level != "compile" or not (found.compiled or found.kernels):
        return None
    arch = found.target.partition(":")[2]
    return f"compiles for {arch}" + (f": {'; '.join(found.kernels)}" if found.kernels else "")


def describe_try(found: TrySummary) -> str:
    """Describe a try in one line: its level, its outcome, and what it held of the device."""
    held = f", {found.device_s:.1f} s on the device" if found.device_s else ""
    if found.state in ("pending", "running"):
        return f"{found.level} {found.state}"
    if found.verdict == "accepted":
        return f"{found.level} accepted {format_ratio(found.score, None)}{held}"
    where = "without a verdict" if found.verdict is None else f"{found.verdict} at {found.gate}"
    return f"{found.level} {where}{held}: {clean_line(found.reason or '', LONGEST_REASON)}"
