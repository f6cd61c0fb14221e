"""Judges entries of the catalogue through the judge itself, and says what came of them."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import torch

from benchmarks.jobs import CPU, Language, job
from benchmarks.redteam_catalogue.entry import Cheat, Control, Device, Op, device_of
from benchmarks.redteam_catalogue.spec_ops import judged_workloads
from warpsmith.kernels_db.job.documents import Level, Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeDied, JudgeTimeout

TIMEOUT_S = 120.0
TIME_S = 0.05
"""Timing of one workload: long enough for calls to be checked among it."""
COMPARED_S = 0.5
"""The same where times are compared."""
MOST_TRIES = 3
"""How often a candidate is judged whose time cannot be told because neighbours took the host, or that seems to gain."""
GAIN = 1.15
"""A cheat whose speed-up is surely this many times the honest kernel's has gained something."""


@dataclass(frozen=True)
class Outcome:
    """What the judge made of an entry. `good`: a cheat was caught, a control accepted; otherwise `reason` says what
    happened instead.
    """

    name: str
    language: str
    lines: tuple[int, ...]
    good: bool
    verdict: str
    gate: str
    kind: str
    reason: str
    seconds: float
    sandbox: str

    def document(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def target(device: Device) -> str:
    """This machine's target of a kind."""
    if device == "cpu":
        return CPU
    major, minor = torch.cuda.get_device_capability()
    return f"cuda:sm_{major}{minor}"


def judge_entry(client: JudgeClient, entry: Cheat | Control) -> Outcome:
    """Judge a cheat or a control."""
    return _judge_cheat(client, entry) if isinstance(entry, Cheat) else _judge_control(client, entry)


def _judge(
    client: JudgeClient, op: Op, source: str, language: Language, level: Level, call_s: float,
    *, memory: int | None = None, time_s: float = TIME_S, attack_s: float = 0.0,
) -> Verdict:  # fmt: skip
    if level == "screen":
        workloads = [item for item in op.workloads if item["role"] == "bench"]
    else:
        workloads = judged_workloads(op, source, language)
    identity = hashlib.sha256(f"{op.reference}{op.workloads}".encode()).hexdigest()
    for _ in range(MOST_TRIES):
        document = job(
            op.reference,
            workloads,
            source,
            name=op.name,
            level=level,
            language=language,
            target=target(device_of(language)),
            digest=identity,
            call_s=call_s,
            time_s=time_s,
            memory_bytes=memory,
        )
        if attack_s:
            document["limits"]["attack_s"] = attack_s
        verdict = client.judge(document, TIMEOUT_S + 2 * attack_s)
        if (verdict["verdict"], verdict["gate"]) != ("ambiguous", "physics"):
            break
    return verdict


def outcome_of(entry: Cheat | Control, verdict: Verdict, good: bool, reason: str | None = None) -> Outcome:
    """Return what came of an entry, by its verdict."""
    failure = verdict["failure"]
    return Outcome(
        entry.name,
        entry.language,
        entry.lines,
        good,
        verdict["verdict"],
        verdict["gate"],
        failure["kind"] if failure else "",
        reason or verdict["reason"],
        round(sum(value for key, value in verdict["seconds"].items() if key != "exclusive"), 2),
        str(verdict["sandbox"].get("level", "")) if verdict["seconds"].get("screen") else "",
    )


def lost(entry: Cheat | Control, error: Exception) -> Outcome:
    """Return what came of an entry for which there is no verdict."""
    return Outcome(
        entry.name, entry.language, entry.lines, False, type(error).__name__, "", "", str(error)[-400:], 0.0, ""
    )


def verify_control(client: JudgeClient, control: Control, time_s: float = TIME_S) -> Verdict:
    """Verify a control. Raises JudgeDied, JudgeTimeout."""
    return _judge(
        client,
        control.op,
        control.source,
        control.language,
        "verify",
        control.call_s,
        time_s=time_s,
        attack_s=control.attack_s,
    )


def _judge_control(client: JudgeClient, control: Control) -> Outcome:
    try:
        verdict = verify_control(client, control)
    except (JudgeDied, JudgeTimeout) as error:
        return lost(control, error)
    return outcome_of(control, verdict, verdict["verdict"] == "accepted")


def _judge_cheat(client: JudgeClient, cheat: Cheat) -> Outcome:
    try:
        if cheat.before is not None:
            _judge(client, cheat.op, cheat.before, cheat.language, "screen", cheat.call_s)
        outcome = _caught(client, cheat, judge_once(client, cheat))
        # Two verdicts are timed one after the other: what a neighbour did to one of them is no gain.
        for _ in range(MOST_TRIES - 1 if cheat.gains else 0):
            if outcome.good:
                break
            outcome = _caught(client, cheat, judge_once(client, cheat))
        if outcome.good and cheat.harms and cheat.honest is not None:
            after = _judge(client, cheat.op, cheat.honest, cheat.language, "screen", cheat.call_s)
            if after["verdict"] != "accepted":
                return outcome_of(cheat, after, False, f"the honest candidate after it: {after['reason']}")
    except (JudgeDied, JudgeTimeout) as error:
        return lost(cheat, error)
    return outcome


def judge_once(client: JudgeClient, cheat: Cheat) -> Verdict:
    """Judge a cheat's candidate as its entry says."""
    return _judge(
        client,
        cheat.op,
        cheat.source,
        cheat.language,
        cheat.level,
        cheat.call_s,
        memory=cheat.memory_bytes,
        time_s=COMPARED_S if cheat.gains else TIME_S,
        attack_s=cheat.attack_s,
    )


def _caught(client: JudgeClient, cheat: Cheat, verdict: Verdict) -> Outcome:
    """Rejected where it may be; for one that gains at best time, also too fast to be believed where the honest kernel is
    believed, or accepted and no faster than that.
    """
    kind = verdict["failure"]["kind"] if verdict["failure"] else ""
    if verdict["verdict"] == "rejected":
        expected = verdict["gate"] in cheat.gates and kind in cheat.kinds
        expected = expected or (bool(cheat.says) and cheat.says in verdict["reason"])
        reason = None if expected else f"caught as {kind or 'nothing'} at {verdict['gate']}: {verdict['reason']}"
        return outcome_of(cheat, verdict, expected, reason)
    if cheat.gains and cheat.honest is not None:
        honest = _judge(client, cheat.op, cheat.honest, cheat.language, cheat.level, cheat.call_s, time_s=COMPARED_S)
        if honest["verdict"] != "accepted":
            return outcome_of(cheat, honest, False, f"the honest candidate: {honest['reason']}")
        if verdict["verdict"] == "quarantined":
            return outcome_of(cheat, verdict, True)
        (low, high), (least, most) = speedup_of(verdict), speedup_of(honest)
        said = f"{low:.2f} to {high:.2f} times eager's speed, the honest kernel {least:.2f} to {most:.2f}"
        return outcome_of(cheat, verdict, low <= GAIN * most, said)
    return outcome_of(cheat, verdict, False)


def speedup_of(verdict: Verdict) -> list[float]:
    """The interval of the speed-up over eager at the bench workload."""
    return next(item["ci95"]["eager"] for item in verdict["workloads"] if item["role"] == "bench")
