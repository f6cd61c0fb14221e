"""A small search whose tree does not depend on timing: an op of two flops, and a recorded pool of two rounds.

The reference takes five hundred passes where one will do: what is right is surely faster, however busy the machine, and
is kept.

round 1   on the reference: `loop` (good), `unrolled` (wrong, repaired), `unheard` (the pool has no code for it)
round 2   on `loop`: `restrict` (good); on `unrolled`: `threads` (never compiles; the pool has two repairs and no third)
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.store.pool_file import Pool, PoolHeader, PoolReply
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import RequestContext, identity
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.search.idea_beam import IdeaBeam

OP = """
schema_version: 1
name: scale_shift
axes:
  n: {kind: var}
inputs:
  - {name: x, shape: [n], dtype: float32}
outputs:
  - {name: "y", shape: [n], dtype: float32}
reference: |
  def run(x):
      for _ in range(500):
          x = x * 1.0
      return x * 2 + 1
workloads:
  - {id: even, role: bench, axes: {n: 4096}}
  - {id: odd, role: test, axes: {n: 1021}}
limits: {bytes: 1}
objective: {rank: geomean, baselines: [eager]}
"""

POLICY = IdeaBeam(
    beam=8,
    diverse=0,
    ideas=3,
    codes=1,
    repairs=3,
    rounds=2,
    max_rounds=2,
    flat_rounds=100,
    stop_fraction=1.0,
    restart=False,
)
"""Every accepted candidate is a parent and no measured number decides anything; nor does the limit, one byte far
away."""

LOOP = "for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;"
WRONG = "for (int64_t i = 0; i + 4 < n; i += 4) for (int64_t j = 0; j < 4; ++j) y[i + j] = x[i + j] * 2.0f + 1.0f;"
UNROLLED = f"{WRONG}\n  for (int64_t i = (n - 1) / 4 * 4; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;"
RESTRICT = "#pragma GCC ivdep\n  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;"
BROKEN = "#pragma omp parallel for\n  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * two + 1.0f;"


def candidate(body: str) -> str:
    """A candidate of the op around the body of its kernel."""
    return (
        "from kernels_db.runtime import cpp\n\n"
        'kernels = cpp.compile(r"""\n'
        f'extern "C" void scale_shift(const float* x, float* y, int64_t n) {{\n  {body}\n}}\n'
        '""")\n\n\n'
        "def run(x, y):\n    kernels.scale_shift(x, y, x.numel())\n"
    )


def op() -> Op:
    """The op."""
    return load_op(OP)


@dataclass
class Recorder:
    """Builds a pool, request by request, with the identities that the real requests have."""

    op: Op
    target: Target
    replies: list[PoolReply] = field(default_factory=list)

    def ideas(self, parent: str | None, *titles: str) -> list[parsing.Idea]:
        """Record ideas on the candidate `parent` (None: the reference) and return them as they will be read."""
        written = [
            {"technique": "control_flow", "title": title, "mechanism": f"It works by {title}.", "sketch": "A loop."}
            for title in titles
        ]
        text = f"```json\n{json.dumps(written)}\n```"
        self._record(self._context("ideate", parent), text)
        return parsing.ideas(ModelReply(text, None, "stop", None, None, None, 0.0), len(titles))

    def code(self, parent: str | None, idea: parsing.Idea | None, source: str) -> str:
        """Record the code of `idea` (None: without one) on `parent`; returns it."""
        self._record(self._context("code", parent, idea=idea), f"```python\n{source}```")
        return source

    def repair(self, parent: str | None, idea: parsing.Idea | None, failing: str, source: str) -> str:
        """Record the repair of `failing`; returns the repaired source."""
        context = self._context("repair", parent, idea=idea, failing=_node(failing))
        self._record(context, f"```python\n{source}```")
        return source

    def _context(self, kind: Any, parent: str | None, **more: Any) -> RequestContext:
        return RequestContext(
            kind=kind,
            attempt_id="",
            op=self.op,
            target=self.target,
            language="cpp",
            workloads=(),
            baselines=None,
            parent=_node(parent) if parent is not None else None,
            **more,
        )

    def _record(self, context: RequestContext, text: str) -> None:
        self.replies.append(
            PoolReply(identity(context), 0, context.kind, context.kind, text, "stop", "scripted", 100, 50, 0.1)
        )

    def pool(self) -> Pool:
        """What was recorded."""
        header = PoolHeader(
            self.op.name, self.op.semantic_digest, str(self.target), "cpp", "a test", 0.0, "0.1.0", {}, {}
        )
        return Pool(header, tuple(self.replies))


def _node(source: str) -> NodeFacts:
    return NodeFacts(seq=0, idea=None, source=source, source_digest=normalised_digest(source), verdict=None)


def pool() -> Pool:
    """The pool that this module's docstring draws."""
    record = Recorder(op(), Target.parse("cpu"))
    loop, unrolled, _ = record.ideas(None, "loop", "unrolled", "unheard")
    plain = record.code(None, loop, candidate(LOOP))
    wrong = record.code(None, unrolled, candidate(WRONG))
    repaired = record.repair(None, unrolled, wrong, candidate(UNROLLED))
    (restrict,) = record.ideas(plain, "restrict")
    record.code(plain, restrict, candidate(RESTRICT))
    (threads,) = record.ideas(repaired, "threads")
    failing = record.code(repaired, threads, candidate(BROKEN))
    for name in ("duo", "pair"):
        failing = record.repair(repaired, threads, failing, candidate(BROKEN.replace("two", name)))
    return record.pool()


def chain() -> Pool:
    """One idea a round, for policies that go step by step: `unrolled` (wrong, repaired), and on it `restrict`."""
    record = Recorder(op(), Target.parse("cpu"))
    (unrolled,) = record.ideas(None, "unrolled")
    wrong = record.code(None, unrolled, candidate(WRONG))
    repaired = record.repair(None, unrolled, wrong, candidate(UNROLLED))
    (restrict,) = record.ideas(repaired, "restrict")
    record.code(repaired, restrict, candidate(RESTRICT))
    return record.pool()


def bare() -> Pool:
    """The candidates of `chain`, asked for without ideas."""
    record = Recorder(op(), Target.parse("cpu"))
    wrong = record.code(None, None, candidate(WRONG))
    repaired = record.repair(None, None, wrong, candidate(UNROLLED))
    record.code(repaired, None, candidate(RESTRICT))
    return record.pool()


EXPECTED = {
    None: ("judged", "accepted"),
    "loop": ("judged", "accepted"),
    "unrolled": ("judged", "accepted"),
    "unheard": ("closed", None),
    "restrict": ("judged", "accepted"),
    "threads": ("closed", "rejected"),
}
"""How every node of the search ends: state and verdict by the idea's title; None is the root."""

WRITTEN = {
    "loop": (candidate(LOOP), 0),
    "unrolled": (candidate(UNROLLED), 1),
    "restrict": (candidate(RESTRICT), 0),
    "threads": (candidate(BROKEN.replace("two", "pair")), 3),
}
"""The code that a node ends with, and how often a repair was asked for, by the idea's title; others have none."""


def outcome() -> list[tuple[str, str, int, str, str]]:
    """What must depend on no timing and no accident: each node's title, digest of its code, repairs, state, verdict."""
    found = []
    for title, (state, verdict) in EXPECTED.items():
        source, repairs = WRITTEN.get(title or "", (None, 0))
        digest = "" if source is None else normalised_digest(source)
        found.append((title or "", digest, repairs, state, verdict or ""))
    return sorted(found)


def candidates() -> int:
    """How many the search screens: every code and every repair that the pool holds."""
    return sum(reply.kind in ("code", "repair") for reply in pool().replies)


def answered() -> Counter[tuple[str, int]]:
    """How often each request is answered: whatever the pool holds once."""
    return Counter((reply.request, reply.ordinal) for reply in pool().replies)
