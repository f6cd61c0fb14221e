"""What the catalogue holds: ops, cheats and controls. Values alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from benchmarks.jobs import Language
from warpsmith.kernels_db.job.documents import Gate, Level, ResolvedWorkload

Device = Literal["cpu", "cuda"]

ON_A_CPU: tuple[Language, ...] = ("cpp", "python")
"""Free Python is timed on a CPU alone, so it is attacked there."""


def device_of(language: Language) -> Device:
    """Where entries in a language run."""
    return "cpu" if language in ON_A_CPU else "cuda"


WRONG = frozenset({"wrong_value", "non_finite", "not_written", "state"})
"""Failures of a candidate whose values are not right, or that was seen to keep something from one call to the next."""
MEMORY = frozenset({"input_modified", "out_of_bounds", "ahead", "late"})
"""Failures of a candidate that wrote where it may not, or for a call that was not made."""
KEPT = frozenset({"state"})
"""Failures of a candidate that keeps something on the device from call to call."""
SANITIZED = frozenset({"sanitizer"})
"""Failures that compute-sanitizer or a build with sanitizers tells."""
REFUSED = frozenset({"gate"})
ENDED = frozenset({"crash", "timeout", "memory", "raises", "protocol"})
"""Failures of a candidate whose process or call did not end as it should."""

CHECKED: frozenset[Gate] = frozenset({"screen", "verify", "time"})
"""Gates at which results are compared."""


@dataclass(frozen=True)
class Op:
    """An op of a few small workloads: the first is timed, the last is kept from the model.

    spec: its document as JSON, where a verification is to have the hold-outs that are derived for a candidate.
    """

    name: str
    reference: str
    workloads: tuple[ResolvedWorkload, ...] = field(repr=False)
    spec: str = field(default="", repr=False)

    @property
    def parameters(self) -> list[str]:
        """What `run` takes: inputs, then outputs."""
        first = self.workloads[0]
        return [item["name"] for item in (*first["inputs"], *first["outputs"])]


@dataclass(frozen=True)
class Cheat:
    """A candidate that must not be accepted.

    lines: of the field's list of cheats (`shared/notes/judge-redteam.md`); none: our own.
    gates, kinds: where it may be caught and as what; another end means that the cheat itself is broken.
    says: what the reason says where the gate or the compiler refuses it; a refusal for any other reason is no catch.
    level: the cheapest that catches it.
    before: a candidate that is judged first, whatever comes of it.
    honest: the same op done right. It must be accepted after a cheat that `harms`; for one that gains at best time
    (`gains`), it is the measure: being accepted without being faster than it is being caught, too, and so is being too
    fast to be believed where the honest one is believed.
    """

    name: str
    lines: tuple[int, ...]
    language: Language
    op: Op
    source: str = field(repr=False)
    does: str
    gates: frozenset[Gate] = CHECKED
    kinds: frozenset[str] = WRONG
    says: str = ""
    level: Level = "screen"
    before: str | None = field(default=None, repr=False)
    honest: str | None = field(default=None, repr=False)
    harms: bool = False
    gains: bool = False
    call_s: float = 10.0
    memory_bytes: int | None = None
    attack_s: float = 0.0

    @property
    def device(self) -> Device:
        """Where it runs."""
        return device_of(self.language)

    @property
    def id(self) -> str:
        """Name and language."""
        return f"{self.name} [{self.language}]"


@dataclass(frozen=True)
class Control:
    """An honest candidate that must be accepted, by every gate. `why`: what could lead a judge to reject it."""

    name: str
    language: Language
    op: Op
    source: str = field(repr=False)
    why: str
    dtype: str = "float32"
    lines: tuple[int, ...] = ()
    call_s: float = 10.0
    attack_s: float = 0.0

    @property
    def device(self) -> Device:
        """Where it runs."""
        return device_of(self.language)

    @property
    def id(self) -> str:
        """Name and language."""
        return f"{self.name} [{self.language}]"

    @property
    def shapes(self) -> str:
        """The shape of the first input or output of each workload."""
        shapes = []
        for workload in self.op.workloads:
            first = next((item["shape"] for item in workload["inputs"] if item["shape"] is not None), [])
            shapes.append("x".join(map(str, first)) or "scalar")
        return ", ".join(shapes)
