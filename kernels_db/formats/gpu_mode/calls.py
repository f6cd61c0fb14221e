"""The calls of a task: those that it lists, and what the sandbox says of them and of smaller ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.formats.shared.facts import (
    MOST_WORKLOADS,
    SmallCall,
    SmallCalls,
    TaskFacts,
    TaskWorkload,
    asked,
)
from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.job.file_analysis import Analyse, AnalysisFailed
from warpsmith.kernels_db.spec.basic_types import MAX_ITEMS, MAX_TENSORS
from warpsmith.kernels_db.spec.errors import SpecErrors

Call = tuple[str, str, dict[str, Any]]
"""Id and role of a workload, and the arguments of `generate_input`."""

LARGE = 1 << 24
"""Elements of a workload above which a smaller call is looked for, if the task has none with fewer."""


def listed(task: Mapping[str, Any], path: str) -> list[Call]:
    """Return id, role and arguments of each workload.

    A task without benchmarks is timed on its tests.
    """
    found = {key: task.get(key) or [] for key in ("tests", "benchmarks")}
    for key, items in found.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise refused(f"{path}: {key}", items, "a list of the arguments of generate_input")
    calls = [(f"test-{n}", "test", dict(item)) for n, item in enumerate(found["tests"])]
    calls += [(f"benchmark-{n}", "bench", dict(item)) for n, item in enumerate(found["benchmarks"])]
    if not 1 <= len(calls) <= MOST_WORKLOADS:
        raise refused(f"{path}: tests, benchmarks", f"{len(calls)} entries", f"1 to {MOST_WORKLOADS} in all")
    for name, _, arguments in calls:
        if not all(_is_argument(value) for value in arguments.values()):
            raise refused(f"{path}: {name}", arguments, "arguments that are numbers, texts or lists of these")
    return timed(calls)


def _is_argument(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_ITEMS and not any(isinstance(item, list) or not _is_argument(item) for item in value)
    return isinstance(value, bool | int | float | str) or value is None


def timed(calls: list[Call]) -> list[Call]:
    """Return the calls, all of them as benchmarks where none is one."""
    some = any(role == "bench" for _, role, _ in calls)
    return calls if some else [(name, "bench", call) for name, _, call in calls]


def analysed(analyse: Analyse | None, request: Mapping[str, Any], where: str, calls: int) -> tuple[TaskFacts, str]:
    """Return the facts and the sandbox's level. Raises SpecErrors.

    Where the workloads take more time or memory than the sandbox gives, those are asked for that need no values.
    """
    try:
        facts, sandbox = asked(analyse, {**request, "values": True}, TaskFacts, where)
    except SpecErrors as error:
        if not isinstance(error.__cause__, AnalysisFailed) or error.__cause__.kind not in ("memory", "timeout"):
            raise
        facts, sandbox = asked(analyse, {**request, "values": False}, TaskFacts, where)
        if not facts.understood:
            raise
    if len(facts.workloads) != calls:
        raise refused(where, f"{len(facts.workloads)} workloads", f"{calls}, as the task lists")
    return facts, sandbox


def smaller(
    analyse: Analyse | None,
    request: Mapping[str, Any],
    facts: TaskFacts,
    calls: Sequence[Call],
    where: str,
) -> SmallCall | None:
    """Return a call with smaller arguments where all of `calls` are large; None without one.

    It must take the same arguments: what a file says becomes part of a spec's sources.
    """
    least, number = min((workload.elements, number) for number, workload in enumerate(facts.understood))
    if least <= LARGE:
        return None
    wanted = calls[number][2]
    request = {"task": "smaller", "text": request["text"], "reference": request["reference"], "arguments": wanted}
    try:
        found = asked(analyse, request, SmallCalls, where)[0].calls
    except SpecErrors:  # it takes too long, or too much memory: the op has its own sizes alone
        return None
    if not found or set(found[0].arguments) != set(wanted) or not all(map(_is_argument, found[0].arguments.values())):
        return None
    return found[0]


def unlike(facts: TaskFacts, calls: Sequence[Call], where: str) -> list[str]:
    """Return the workloads that differ from most in more than sizes and numbers: no axes say that.

    Most: those alike with the most benchmarks among them, then with the most in all, then the first, of those for
    which a spec has room. Raises SpecErrors where there is none.
    """

    def kind(workload: TaskWorkload) -> str:
        tensors = [*workload.inputs, *workload.outputs]
        ranks = [None if leaf.shape is None else len(leaf.shape) for leaf in tensors]
        dtypes = [leaf.bytes_of or leaf.dtype for leaf in tensors]
        return repr([workload.structure, workload.result, ranks, dtypes, workload.written, workload.aliases])

    kinds = [kind(workload) for workload in facts.understood]
    timed = [each for each, (_, role, _) in zip(kinds, calls, strict=True) if role == "bench"]
    fitting = [each for each, workload in zip(kinds, facts.understood, strict=True) if workload.fits]
    if not fitting:
        found = max(len(leaves) for each in facts.understood for leaves in (each.inputs, each.outputs))
        raise refused(where, f"{found} inputs or outputs", f"a workload with at most {MAX_TENSORS} of each")
    most = max(dict.fromkeys(fitting), key=lambda each: (timed.count(each), kinds.count(each)))
    return [name for each, (name, _, _) in zip(kinds, calls, strict=True) if each != most]
