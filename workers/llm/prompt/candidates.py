"""Candidates as a request shows them: idea, code or what it changes, and what the judge found. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.job.documents import NsightKernel, ResolvedWorkload, Verdict
from warpsmith.workers.llm.prompt.feedback import feedback

MOST_DETAIL_CHARS = 320
"""Longest detail of an idea that was judged, in its first sentences: its code and its results say more."""
MOST_DIFFERENCE = 0.5
"""Longest difference from the kernel to build on that is shown, as a share of the code that has it."""
MOST_DIFFERENCE_CHARS = 1_600


@dataclass(frozen=True)
class NodeFacts:
    """A node with code: the parent, the best so far, or the candidate that failed.

    `idea` is None where the node has none. `metrics`: Nsight Compute's, where they are known.
    """

    seq: int
    idea: Mapping[str, Any] | None
    source: str
    source_digest: str
    verdict: Verdict | None
    metrics: tuple[NsightKernel, ...] = ()


def shown_node(node: NodeFacts, workloads: Sequence[ResolvedWorkload], *, resources: bool = True) -> dict[str, Any]:
    """Return a candidate with its code; of its idea title, technique and the first sentences of its mechanism."""
    found = "It has not been judged."
    if node.verdict is not None:
        found = feedback(node.verdict, workloads, node.metrics, resources=resources)
    return {
        "seq": node.seq,
        "idea": _shortened(node.idea, ("mechanism",)),
        "source": node.source,
        "feedback": found,
    }


def shown_change(node: NodeFacts, parent: NodeFacts | None, *, is_shown: bool = False) -> dict[str, Any]:
    """Return a candidate by its idea and by what it changes in the kernel to build on; nothing of one that is shown.

    Where the two have little in common, or there is no such kernel, the idea's sketch takes the place of code, and its
    code that of an idea which it does not have.
    """
    found: dict[str, Any] = {"seq": node.seq, "is_shown": is_shown, "idea": None, "change": None, "source": None}
    found["beside"] = parent is not None
    if is_shown:
        return found
    change = None if parent is None else difference(parent.source, node.source)
    details = ("mechanism", "sketch") if change is None else ("mechanism",)
    source = node.source if change is None and node.idea is None else None
    return found | {"idea": _shortened(node.idea, details), "change": change, "source": source}


def shown_beside(node: NodeFacts, parent: NodeFacts | None, workloads: Sequence[ResolvedWorkload]) -> dict[str, Any]:
    """Return a candidate beside the kernel to build on: idea, change, times, and its heaviest kernel's use."""
    return shown_node(node, workloads, resources=False) | shown_change(node, parent)


def difference(before: str, after: str) -> str | None:
    """Return a source's unified diff from another; None where it is empty, long, or longer than half of the source."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    text = "\n".join(lines)
    return text if lines and len(text) <= min(MOST_DIFFERENCE * len(after), MOST_DIFFERENCE_CHARS) else None


def _shortened(idea: Mapping[str, Any] | None, details: Sequence[str]) -> dict[str, Any] | None:
    if idea is None:
        return None
    cut = {name: first_sentences(str(idea[name]), MOST_DETAIL_CHARS) for name in details if name in idea}
    return {name: idea[name] for name in ("title", "technique") if name in idea} | cut


def first_sentences(text: str, most: int) -> str:
    """Return as many whole sentences of `text` as fit into `most` characters, and the first in any case."""
    sentences = re.split(r"(?<=[.;]) ", " ".join(text.split()))
    told = sentences[0]
    for sentence in sentences[1:]:
        if len(told) + 1 + len(sentence) > most:
            break
        told = f"{told} {sentence}"
    return told
