"""The feedback on a candidate in a model's prompt: a pure function of its verdict, trimmed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warpsmith.kernels_db.job import nsight_metrics, shown_numbers
from warpsmith.kernels_db.job.documents import Failure, NsightKernel, ResolvedWorkload, Verdict, WorkloadVerdict
from warpsmith.kernels_db.job.sweep_documents import describe_sweep, describe_tuned
from warpsmith.workers.llm.prompt.facts import baseline_name, microseconds, rates, significant, visible
from warpsmith.workers.llm.prompt.kernel_words import kernel_lines, list_resources, resource_lines, shown_compile
from warpsmith.workers.llm.prompt.logs import first_error, trim_log
from warpsmith.workers.llm.prompt.searched_inputs import failing_inputs, own_message
from warpsmith.workers.text import one_line, without_directories

# Below this a call is mostly its own overhead: on a CPU the interpreter and starting threads, on a GPU latency.
OVERHEAD_US = 20.0
# One launch after another takes about so long to begin, whatever the kernel does (measured on an H200).
LAUNCH_US = 5.0
CLOSE = 0.75
"""Share of its limit from which what sets it is said to be close to binding: 12.9 us at 0.64 became 12.0."""

UNTOLD = "why is not told, because it may name a hold-out shape"

_ADVICE = {
    "gate": "Rewrite the offending lines; the rules of the language say what is allowed.",
    "compile": "Fix the first error first; later ones often follow from it.",
    "crash": "Look for an index out of bounds (tails, sizes that no tile divides), misaligned vectors, a large stack.",
    "out_of_bounds": "Look at the tail: the last vector, tile or thread that reaches past the end.",
    "timeout": "Look for an endless loop, a deadlock, or work that grows faster than intended.",
    "memory": "Allocate less scratch, where it allocates any.",
    "non_finite": "Look for a division by zero, an overflow in exp, or scratch that is read but never set.",
    "input_modified": "Inputs that are not marked as updated in place are read-only.",
    "state": "Clear counters and release locks before a call ends; scratch is for torch.empty in run.",
    "sanitizer": "The tool names the access: look at the bounds, the barrier or the initialisation before it.",
    "not_written": "Every element of every output must be written on every call.",
    "counterexample": (
        "Such inputs are allowed: look for an overflow, a cancellation (also of one product that is rounded in one "
        "place and contracted into a fused multiply-add in another) or a lost small term in between."
    ),
    "nondeterministic": "Look for a race: two threads that write one element, or a read of what is yet to be written.",
}
_SPREAD = (
    "Every element is within its own limit: small errors add up in all of them. Sum in float32 and in shorter chains "
    "(tensor cores cut their sums and do not round them), or compensate."
)


def feedback(
    verdict: Verdict,
    workloads: Sequence[ResolvedWorkload] = (),
    metrics: Sequence[NsightKernel] = (),
    *,
    resources: bool = True,
) -> str:
    """Write the judge's findings for the model.

    The failure where there is one, else times, rates and the limit that binds.

    `workloads` are the op's resolved ones; without them rates are left out. Of hold-out workloads nothing is told but
    that one failed, whatever the verdict. `metrics`: Nsight Compute's, of the same code. `resources`: whether to say
    what its kernels use, too; else that of the one with the most registers is told in a few words.
    """
    failure = verdict["failure"]
    if verdict["verdict"] == "rejected" and failure is not None:
        told = cause(verdict, workloads)
        hidden = _hides(verdict, workloads)
        lines = [f"Rejected at {verdict['gate']}: {told}", *_details(failure, workloads, told, hidden=hidden)]
        if advice := _SPREAD if _is_spread(failure) else _ADVICE.get(failure["kind"]):
            lines.append(advice)
        if (log := _log(verdict, failure)) and not hidden:
            lines += ["", "Log, trimmed:", "", *(f"    {line}" for line in log.splitlines())]
        return "\n".join(lines)
    lines = [_headline(verdict, workloads)]
    lines += [f"- {line}" for line in _workload_lines(verdict, workloads)]
    if (sweep := verdict.get("sweep")) is not None:
        lines.append(f"- Tunables, swept by the judge: {describe_sweep(sweep)}; the code has the best as its defaults")
    if (tuned := describe_tuned(verdict["workloads"])) is not None:
        lines.append(f"- Triton's tuner chose: {tuned}; an export ships what it took")
    if resources:
        lines += [f"- {line}" for line in kernel_lines(verdict)]
        lines += [f"- {line}" for line in resource_lines(verdict, workloads)]
    else:
        lines += [f"- {words}" for words in list_resources(shown_compile(verdict, workloads))]
    if metrics:
        lines += ["- Nsight Compute, on the largest bench workload, cold caches:", *nsight_metrics.lines(metrics)]
    return "\n".join(lines)


def cause(verdict: Verdict, workloads: Sequence[ResolvedWorkload] = ()) -> str:
    """Say in one line why it failed, or how fast it is and what holds it back."""
    failure = verdict["failure"]
    if failure is None:
        return _limit_cause(verdict) if verdict["verdict"] == "accepted" else _reason(verdict, workloads)
    if _is_hidden(failure, workloads):
        many = ": all elements together, none by itself" if _is_spread(failure) else ""
        return f"{failure['kind'].replace('_', ' ')} on a hold-out shape{many}"
    if _hides(verdict, workloads):
        return f"{failure['kind'].replace('_', ' ')}; {UNTOLD}"
    if failure["kind"] in _OF_ELEMENTS and failure.get("wrong_elements"):
        return f"{failure['kind'].replace('_', ' ')}{_place(failure)}, {_share(failure)}"
    if failure["kind"] in {"gate", "compile"}:
        return one_line(without_directories(first_error(failure) or failure["message"]))
    kind = failure["kind"].replace("_", " ")
    message = one_line(without_directories(own_message(failure)))
    return message if message.lower().startswith(kind) else f"{kind}: {message}"


def outcome(verdict: str | None, gate: str | None, score: float | None) -> str:
    """Return the ledger's word or two: a speed-up over the fastest baseline, or where it ended."""
    if verdict == "accepted" and score is not None:
        return f"{significant(score)}x"
    if verdict is None:
        return "no verdict"
    return f"{verdict} at {gate}" if gate else verdict


# Failures

# Failures whose element and numbers say all that the message says.
_TOLD_BY_NUMBERS = frozenset({"wrong_value", "counterexample", "non_finite", "not_written"})
_OF_ELEMENTS = frozenset({"wrong_value", "counterexample"})
_NUMBERS = {"expected": "expected", "found": "found", "eager": "PyTorch eager", "limit": "limit"}


def _details(failure: Failure, workloads: Sequence[ResolvedWorkload], told: str, *, hidden: bool) -> list[str]:
    """Describe the failure in lines; its message only where `told` does not have it whole.

    Of a `hidden` shape no place and no size.
    """
    lines = []
    if failure.get("workload") is not None:
        lines.append(f"- workload: {_workload_name(failure, workloads)}")
    if failure.get("family") is not None:
        lines.append(f"- inputs: {failure['family']} ones, for which PyTorch is right")
    lines += failing_inputs(failure, hidden=hidden)
    lines += _spread_lines(failure) if _is_spread(failure) else _element_lines(failure, hidden=hidden)
    if failure["kind"] not in _TOLD_BY_NUMBERS and not hidden and not failure.get("log"):
        said = own_message(failure).strip()
        lines += [f"- {line}" for line in trim_log(said).splitlines()] if one_line(said, 10_000) not in told else []
    return lines


def _spread_lines(failure: Failure) -> list[str]:
    """Describe an error of all elements together. The numbers of one, which is right, would mislead."""
    error, limit = failure["relative_l2"], failure["relative_l2_limit"]
    return [f"- relative L2 error of `{failure['tensor']}`: {error:.3g}", f"- limit: {limit:.3g}"]


def _element_lines(failure: Failure, *, hidden: bool) -> list[str]:
    """Describe the worst element, and how many are wrong."""
    lines = []
    if failure.get("tensor") is not None:
        index = failure.get("index")
        at = f" at index {index}" if index and not hidden else ""
        lines.append(f"- worst element: `{failure['tensor']}`{at}")
    # For other kinds the numbers may be bytes or times, which tell a size.
    if failure["kind"] in _TOLD_BY_NUMBERS if hidden else failure["kind"] not in {"gate", "compile"}:
        told = {key: _number(failure[key]) for key in _NUMBERS if key in failure}  # type: ignore[literal-required] # its names
        if "expected" in told and "found" in told:
            told["expected"], told["found"] = _apart(failure["expected"], failure["found"])
        lines += [f"- {name}: {told[key]}" for key, name in _NUMBERS.items() if key in told]
    if (share := _share(failure)) and not hidden:
        lines.append(f"- {share}")
    return lines if hidden else lines + _wrong_lines(failure)


def _wrong_lines(failure: Failure) -> list[str]:
    """List more of the wrong elements, and what they have in common."""
    others = [one for one in failure.get("samples", []) if one["index"] != failure.get("index")]
    lines = [f"- the wrong elements: {one_line(failure['pattern'], 400)}"] if failure.get("pattern") else []
    if others:
        pairs = [(one["index"], *_apart(one["expected"], one["found"])) for one in others]
        shown = [f"{index} expected {expected}, found {found}" for index, expected, found in pairs]
        lines.append(f"- others of them: {'; '.join(shown)}")
    return lines


def _place(failure: Failure) -> str:
    where = f" on `{failure['workload']}`" if "workload" in failure else ""
    if "tensor" in failure:
        where += f": {failure['tensor']}{failure.get('index') or ''}"
    if "expected" in failure and "found" in failure:
        expected, found = _apart(failure["expected"], failure["found"])
        where += f" expected {expected}, found {found}"
    return where


def _share(failure: Failure) -> str:
    wrong, total = failure.get("wrong_elements"), failure.get("elements")
    if wrong is None or not total:
        return ""
    return f"{wrong} of {total} elements wrong ({significant(100 * wrong / total)} %)"


def _number(value: Any) -> str:
    return one_line(shown_numbers.shown(value))


def _apart(expected: Any, found: Any) -> tuple[str, str]:
    """Write two values so that they differ as text where they differ."""
    one, other = shown_numbers.apart(expected, found)
    return one_line(one), one_line(other)


def _is_spread(failure: Failure) -> bool:
    """Check whether the elements are wrong together, and none of them by itself."""
    return "relative_l2" in failure


def _is_hidden(failure: Failure, workloads: Sequence[ResolvedWorkload]) -> bool:
    seen = {workload["id"] for workload in visible(workloads)}
    return bool(workloads) and "workload" in failure and failure["workload"] not in seen


def _hides(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> bool:
    """Check whether the judge's own words may name a hold-out shape.

    Its failure is of one, or of no workload that is named while hold-outs were run too. Words of the gate and the
    compilers are about the source.
    """
    failure = verdict["failure"]
    if failure is not None and "workload" in failure:
        return _is_hidden(failure, workloads)
    runs_holdouts = verdict["level"] not in ("screen", "compile") and "profile" not in verdict
    return runs_holdouts and (failure is None or failure["kind"] not in {"gate", "compile"})


def _reason(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> str:
    return UNTOLD if _hides(verdict, workloads) else one_line(verdict["reason"], 600)


def _workload_name(failure: Failure, workloads: Sequence[ResolvedWorkload]) -> str:
    if _is_hidden(failure, workloads):
        return "a hidden hold-out shape (the kernel must hold for all sizes that the constraints allow)"
    return f"`{failure['workload']}`"


def _log(verdict: Verdict, failure: Failure) -> str:
    log = failure.get("log") or ((verdict["compile"] or {}).get("log") if failure["kind"] == "compile" else "")
    return trim_log(str(log)) if log else ""


# Times


def _headline(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> str:
    if verdict["verdict"] != "accepted":
        return f"{verdict['verdict'].capitalize()} at {verdict['gate']}: {_reason(verdict, workloads)}"
    score = verdict["score"]
    if score is None:
        return f"Correct, not timed: {_reason(verdict, workloads)}"
    interval = verdict["score_ci95"]
    between = f" (95 % interval {significant(interval[0])} to {significant(interval[1])})" if interval else ""
    return f"Correct. {significant(score)} times as fast as the fastest baseline, geometric mean{between}."


def _workload_lines(verdict: Verdict, workloads: Sequence[ResolvedWorkload]) -> list[str]:
    resolved = {workload["id"]: workload for workload in visible(workloads)}
    lines = []
    for entry in _shown(verdict):
        time = entry["time_us"].get("candidate")
        if time is None:
            continue
        line = f"`{entry['id']}`: {microseconds(time)}"
        if entry["speedup"]:
            name, speedup = min(entry["speedup"].items(), key=lambda pair: pair[1])
            beside = entry["time_us"].get(name)
            line += f"; {significant(speedup)}x {baseline_name(name)}"
            line += "" if beside is None else f" ({microseconds(beside)} beside it)"
        if entry["id"] in resolved:
            line += f"; {rates(resolved[entry['id']], time)}"
        bound = binding(entry, time, verdict["target"], verdict["device"].get("exchange_us"))
        lines.append(f"{line}; {bound}" if bound else line)
    return lines


def binding(entry: WorkloadVerdict, time_us: float, target: str = "cpu", nothing_us: float | None = None) -> str:
    """Say in words which limit holds the time back; empty where no limit is known.

    `nothing_us`: the clock's reading of a call that runs nothing.
    """
    limit = entry["limit_us"]
    if not limit:
        return ""
    fraction = limit / time_us
    by = entry["limit_by"] or "bytes"
    what = {"bytes": "memory traffic", "operations": "arithmetic"}[by]
    at = f"{significant(100 * fraction, 2)} % of the physical limit, which is set by {by}"
    launches = sum(entry.get("kernel_calls") or ())
    if launches > 1 and launches * LAUNCH_US >= time_us / 2 and fraction < 0.6:
        return f"{at}: a call makes {launches} launches, which bind at about {significant(LAUNCH_US)} us each"
    if time_us < max(OVERHEAD_US, 2 * (nothing_us or 0.0)) and fraction < 0.5:
        told = "" if nothing_us is None else f", and {microseconds(nothing_us)} of it are read where nothing runs"
        overhead = (
            "latency (a launch, filling the device, steps that wait for each other)"
            if target.startswith("cuda")
            else "its own overhead (interpreter, threads)"
        )
        return f"{at}; so short a call is bound by {overhead} rather than by {what}{told}"
    if fraction >= 0.9:
        return f"{at}: little is left here{_yet_beaten(entry)}"
    if fraction >= CLOSE:
        rate = "bytes in flight, order of the accesses" if by == "bytes" else "fewer stalls, better overlap"
        return (
            f"{at}: {what} is close to binding; what is left is a better sustained rate ({rate}), and fewer {by} only "
            f"where it does more than the least{_yet_beaten(entry)}"
        )
    return f"{at}: {what} is not saturated: latency, instructions, imbalance or extra passes bind"


def _yet_beaten(entry: WorkloadVerdict) -> str:
    """Say that the fastest baseline is faster all the same, where it surely is."""
    beside = {name: time for name, time in entry["time_us"].items() if name != "candidate"}
    fastest = min(beside, key=lambda name: beside[name], default=None)
    if fastest is None or fastest not in entry["ci95"] or entry["ci95"][fastest][1] >= 1.0:
        return ""
    return f", yet {baseline_name(fastest)} does the same in {microseconds(beside[fastest])}"


def _limit_cause(verdict: Verdict) -> str:
    fractions = [(entry["limit_fraction"], entry) for entry in _shown(verdict) if entry["limit_fraction"]]
    if not fractions:
        return "correct"
    fraction, entry = min(fractions, key=lambda pair: pair[0] or 0.0)
    return (
        f"{significant(100 * (fraction or 0.0), 2)} % of the {entry['limit_by'] or 'physical'} limit on {entry['id']}"
    )


def _shown(verdict: Verdict) -> list[WorkloadVerdict]:
    return [entry for entry in verdict["workloads"] if entry["role"] != "holdout"]
