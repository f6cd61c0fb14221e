"""The resolved job and the verdict: the JSON documents into and out of the judge.

Standard library only. A job is *resolved*: concrete shapes, strides, dtypes, distributions and sources, so the
judge knows nothing of axes, YAML or tables. `kernels_db.spec.resolve` writes jobs; `workers.judge` reads them
and writes verdicts.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from warpsmith.kernels_db.job.attack_documents import Accuracy, Attack, InputValues, Recipe
from warpsmith.kernels_db.job.carried_builds import CarriedBuild
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.job.sweep_documents import Sweep

Level = Literal["baseline", "screen", "verify", "profile", "compile"]
"""How much of a job the judge does.

baseline: no candidate; examine the op and measure the baselines. screen: the bench workloads, two seeds, a
short timing. verify: every workload, more seeds, repeats, input families, full timing. profile: records a few
calls, without check or timing. compile: the gates `gate` and `compile` alone; without the target's device Triton's
interpreter too. docs/judge.md has the protocol.
"""

VerdictWord = Literal["accepted", "rejected", "quarantined", "ambiguous"]
Gate = Literal["gate", "compile", "sandbox", "memory", "reference", "admission", "screen", "verify", "time", "physics"]
"""The gates at which a verdict can be reached, in the order in which they are shown.

`reference`, `admission` and `memory` speak of the op: the user's reference is at fault, the spec cannot tell a wrong
answer from a right one (at level baseline), or a workload does not fit. `sandbox`: this host cannot confine as the job
demands. `physics`: a time that is too good to be true.
"""

HOLDOUT_LEFT_OUT = "left out: the reference is not right there"
"""In a verdict's reason, once for each drawn hold-out that was not judged because the reference fails on it."""

SandboxLevel = Literal["process", "filtered", "confined", "isolated"]
"""How a runner is confined, from the weakest.

`warpsmith.workers.judge.sandbox.sandbox` has the demands of each.
"""


CandidateLanguage = Literal["cpp", "triton", "cuda", "gluon", "cute", "tilelang", "python"]
"""The language of a candidate; python is free Python.

Its host code passes no allow-list, so it is run in nothing less than FREE_PYTHON_SANDBOX.
"""

Tier = Literal["gated", "sandbox"]
"""The trust behind a verdict on a candidate.

gated: the allow-list read the file, and the sandbox held the part that it does not reach (native code).
sandbox: nothing read it; the process boundary and the sandbox alone held it.
"""

FREE_PYTHON: CandidateLanguage = "python"
FREE_PYTHON_SANDBOX: SandboxLevel = "isolated"


def has_compiled(verdict: Verdict) -> bool:
    """Check whether a verdict that decides nothing says that the candidate compiled, and that nothing else failed."""
    return verdict["verdict"] == "ambiguous" and verdict["compile"] is not None and verdict["failure"] is None


def tier_of(language: str) -> Tier:
    """Return the tier of candidates in a language."""
    known = LANGUAGES.get(language)
    return "gated" if known is None or known.gated else "sandbox"


class ResolvedInput(TypedDict):
    """One input of `run`, in order.

    A scalar has `shape` None and carries `value`; an omitted optional input has both None and is passed as None.
    """

    name: str
    shape: list[int] | None
    strides: list[int] | None  # in elements; None means contiguous
    dtype: str  # torch's name: float32, bfloat16, int64, bool ...
    dist: dict[str, Any]  # {"kind": "normal", "mean": 0, "std": 1} ...
    value: float | int | bool | None
    mutated: bool  # written in place: checked as an output, refilled before every call
    alignment: NotRequired[int]  # bytes: the most that may be assumed of the data pointer; absent: the allocator's own
    values: NotRequired[InputValues]  # absent: whatever the dtype holds, of the sign that the distribution has


class ResolvedIndices(TypedDict):
    """What an output with a check of kind `indices` holds indices into, and which of equals are right.

    `of` and `axis`: an input and its axis; `of` null: the judge finds it.
    """

    ties: Literal["any", "first"]
    of: str | None
    axis: int


class ResolvedOutput(TypedDict):
    """One output buffer, passed to `run` after the inputs.

    For the reference, one returned tensor.
    """

    name: str
    shape: list[int]
    dtype: str
    tolerance: dict[str, float] | None  # {"rtol", "atol"} where the op sets its own; None: derived from float64
    indices: NotRequired[ResolvedIndices]  # where the op says so; absent: the judge finds out


class ResolvedWorkload(TypedDict):
    """One workload with every axis bound. `min_bytes` and `flops` feed the physical limit."""

    id: str
    role: Literal["bench", "test", "holdout"]
    axes: dict[str, int]
    inputs: list[ResolvedInput]
    outputs: list[ResolvedOutput]
    min_bytes: int
    flops: int | None
    weight: NotRequired[float]  # how often it occurs, above 0: its part in the score; absent: 1
    dtypes: NotRequired[dict[str, str]]  # of the op's named dtypes, for people; inputs and outputs have them
    derived: NotRequired[bool]  # true: the op does not declare it; a reference that fails on it is not at fault


class JobOp(TypedDict):
    """The op's part of a job.

    `reference` is the source of a module with `run(*inputs)`; it returns the outputs (one tensor or a tuple), or
    None where every result is a mutated input. `baselines` are those of the objective: eager, compile,
    max_autotune, and names of `experts`.
    """

    name: str
    digest: str
    reference: str
    math: Literal["ieee", "tf32"]
    library_calls: list[str]
    baselines: list[str]
    experts: NotRequired[dict[str, str]]  # by name: a module with `run(*inputs)`, as the reference is; absent: none
    accuracy: NotRequired[Accuracy]  # absent: componentwise, under tf32 with TF32's roundoff
    counterexamples: NotRequired[list[Recipe]]  # asked before anything else; those of other workloads are left out


class JobCandidate(TypedDict):
    """The candidate. build: what it was compiled to on another host, in place of compiling it here."""

    language: CandidateLanguage
    source: str
    build: NotRequired[CarriedBuild]


class JobLimits(TypedDict):
    """The limits of a job in seconds and bytes.

    compile_s: one compiler run; call_s: one call of `run`; time_s: the timing of one workload; memory_bytes: all
    of a job's buffers and processes (None: 80 % of the available memory when the job starts); sanitize: whether a
    verification on a GPU runs the candidate under compute-sanitizer, where that is installed (absent: it does);
    sweep_s: the device seconds that a sweep may hold (absent: the judge's own limit; 0: no sweep, the file's own
    numbers are judged). A sweep that reaches it ends with the timing under way.
    """

    compile_s: float
    call_s: float
    time_s: float
    memory_bytes: int | None
    sanitize: NotRequired[bool]
    sandbox: NotRequired[SandboxLevel]  # the least that every runner of the job must reach; absent: any
    attack_s: NotRequired[float]  # seconds of counterexample search a workload, at level verify; absent or 0: none
    sweep_s: NotRequired[float]


class Job(TypedDict):
    """One line into `python -m warpsmith.workers.judge`."""

    id: str
    level: Level
    op: JobOp
    target: str
    workloads: list[ResolvedWorkload]
    candidate: JobCandidate | None
    limits: JobLimits
    # At level screen: `compile.digest` of the candidates that this search has judged, with their nodes' numbers
    known_binaries: NotRequired[dict[str, int]]
    seed: NotRequired[int]  # tests only; otherwise the referee draws a secret one


class WrongElement(TypedDict):
    """One wrong element of a result."""

    index: list[int]
    expected: Any
    found: Any


class Failure(TypedDict):
    """The cause of a rejection, for machines.

    Wrong values: workload, tensor, index, expected, found, limit. Bad input: field, expected, found.
    """

    kind: str  # wrong_value, not_written, out_of_bounds, crash, timeout ...: docs/judge.md lists them
    message: str
    workload: NotRequired[str]
    family: NotRequired[str]  # the input family, where the inputs were not the declared ones
    field: NotRequired[str]
    tensor: NotRequired[str]
    index: NotRequired[list[int]]
    expected: NotRequired[Any]
    found: NotRequired[Any]
    limit: NotRequired[float]
    wrong_elements: NotRequired[int]
    elements: NotRequired[int]
    relative_l2: NotRequired[float]  # of all elements, where no single one is wrong and this is beyond its limit
    relative_l2_limit: NotRequired[float]
    samples: NotRequired[list[WrongElement]]  # the worst of the wrong elements that were looked at
    pattern: NotRequired[str]  # what they have in common: places along axes, values
    log: NotRequired[str]
    # Of kind counterexample: PyTorch eager's value of the element; the values, as a recipe and in plain words
    eager: NotRequired[Any]
    recipe: NotRequired[Recipe]
    description: NotRequired[str]
    # Of a rejection that the host or another user of it may have caused: a compiler's limit of time or memory, a
    # process that was killed or could not begin, a device that fell over
    cause: NotRequired[Literal["timeout", "memory", "died", "device"]]


class Configuration(TypedDict):
    """What Triton's autotuner took for a kernel at one value of its key, as `triton.Config.all_kwargs` gives it."""

    kernel: str
    key: list[bool | int | float | str]
    configuration: dict[str, bool | int | float | str]


class WorkloadVerdict(TypedDict):
    """The results of one workload.

    `time_us` and `speedup` are keyed by baseline (`time_us` also by "candidate"); `ci95` holds the 95 % interval of
    each speed-up ratio. `error` values are relative L2 errors against the float64 reference; `absolute` is the
    candidate's largest error of an element, where all results were compared as floats. At baseline level there is no
    candidate entry.
    """

    id: str
    role: str
    error: dict[str, float | None]  # candidate, eager, limit, absolute
    time_us: dict[str, float]
    speedup: dict[str, float]
    ci95: dict[str, list[float]]
    limit_us: float | None
    limit_by: Literal["bytes", "operations"] | None
    limit_fraction: float | None  # physical limit / candidate's time (eager's at baseline level)
    samples: dict[str, list[float]]  # per-block means in microseconds, by contender
    weight: NotRequired[float]  # the job's: how often it occurs; absent: 1
    families: NotRequired[dict[str, dict[str, float | None]]]  # by input family: the candidate's worst error and limit
    repeatable: NotRequired[bool]  # the same inputs gave the same bits every time; reported, never a reason to reject
    kernels: NotRequired[list[str]]  # names of the device kernels that one call ran, in order of first launch
    kernel_calls: NotRequired[list[int]]  # how often each of them ran in that call
    configurations: NotRequired[list[Configuration]]  # what Triton's autotuner took in that call
    deferred_us: NotRequired[float]  # of the candidate's time: what its calls took that decide no time
    late_calls: NotRequired[dict[str, int]]  # by contender: timed calls that the host launched too late, where any
    unsure: NotRequired[bool]  # true: so many that a time may be the host's, in every timing that there was time for
    clocks_us: NotRequired[dict[str, dict[str, float]]]  # by contender: {"events", "wall"} of one call, where both ran
    not_timed: NotRequired[dict[str, str]]  # of a timed workload: the op's baselines that were not timed, and why


class HostTime(TypedDict):
    """Microseconds of the calling thread for one call at the smallest verified shape; on a CPU with its work.

    run: of the candidate's `run` into outputs that are there; plan: of a call that a launch plan serves, as an export
    replays it (guard, outputs and launches); eager: of the reference. launches: in the plan; unplanned: why there is
    none.
    """

    workload: str
    run: float
    eager: float
    plan: NotRequired[float]
    launches: NotRequired[int]
    unplanned: NotRequired[str]


class AdmissionCheck(TypedDict):
    """The result of one deliberately wrong answer to the op.

    `caught`: some question told it from a right one; then workload, family (None: the declared inputs), tensor,
    error and limit say which. `needed`: an op on which it is not caught is not admitted. `field` and `remedy`: a
    change of the spec that would tell it.
    """

    answer: str
    caught: bool
    needed: bool
    field: str
    remedy: str
    workload: str | None
    family: str | None
    tensor: str | None
    error: float | None
    limit: float | None


class ProfileRow(TypedDict):
    """The activity of a profiled run under one name.

    kind: kernel, copy (of the device, fills too), region (`run`, or `kernels.NAME` for a C++ function), operator
    (of torch on the host), driver (a call of CUDA's). `launch`: of a kernel's first launch, {"grid", "block",
    "registers", "shared_bytes", "occupancy" in percent}.
    """

    name: str
    kind: str
    count: int
    total_us: float
    mean_us: float
    launch: NotRequired[dict[str, Any]]


class NsightKernel(TypedDict):
    """Nsight Compute's metrics of one kernel by their own names, means over its launches.

    Times in microseconds, sizes in bytes, shares in percent.
    """

    name: str
    launches: int
    metrics: dict[str, float]


class Nsight(TypedDict):
    """The measurements of `ncu`, the kernel that took longest first.

    `reason`: why there is nothing. `sandbox`: the confinement of the process, {"level", "layers"}; absent where
    none was started.
    """

    kernels: list[NsightKernel]
    reason: NotRequired[str]
    sandbox: NotRequired[dict[str, Any]]


class Profile(TypedDict):
    """A profiled run of `calls` calls on one workload.

    All of it comes from the runner and is unchecked. `nsight`: on a GPU, where there is `ncu`.
    """

    workload: str
    calls: int
    rows: list[ProfileRow]
    trace: dict[str, Any]  # a Chrome trace
    nsight: NotRequired[Nsight]


class Generated(TypedDict):
    """The code that torch.compile generated for the reference, as its runner reported it.

    It is text for a reader, of bounded size, which decides nothing.
    """

    language: Literal["triton", "cpp"]
    source: str


class Progress(TypedDict):
    """Where a job is that the judge works on: its gate, and the workload where the gate takes one after another.

    `workload`: its id; None where the gate is not at one, and for a hold-out, which is not named. `number` counts the
    job's workloads from 1, of `total`; 0 of 0 without one.
    """

    gate: Gate
    workload: str | None
    number: int
    total: int


class Verdict(TypedDict):
    """One line out of the judge.

    `score`: geometric mean over bench workloads, by their weights, of the speed-up over the fastest baseline.
    """

    id: str
    level: Level
    verdict: VerdictWord
    gate: Gate
    reason: str
    op: str
    target: str
    language: str | None
    tier: NotRequired[Tier]  # where there is a candidate
    workloads: list[WorkloadVerdict]
    failure: Failure | None
    # {"seconds", "log", "cached", "kernels": [{"name", "registers", "spills", "shared"}], "binaries"}; for CUDA also
    # "launches"; "digest": of the binaries and the host code, where anything was compiled
    compile: dict[str, Any] | None
    score: float | None
    score_ci95: list[float] | None
    sandbox: dict[str, Any]  # of the candidate's runner, {"level": "isolated", "layers": [...]}; "none": nothing ran;
    # "compiler": the same of the C++ compiler, where the judge had started one
    device: dict[str, Any]  # name, cores, measured peaks {"bandwidth_gbs": {bytes: GB/s}, "gflops": ...}
    versions: dict[str, str]
    fingerprint: str  # SHA-256 of device, versions and protocol: verdicts compare only under one fingerprint
    protocol: NotRequired[int]  # the judge's (job/protocol_number.py); absent: an early one
    admission: NotRequired[list[AdmissionCheck]]  # at level baseline
    attack: NotRequired[Attack]  # where `limits.attack_s` or `op.counterexamples` asked for one
    experts: NotRequired[dict[str, dict[str, str]]]  # of the op, by name: the distributions it imports, with versions
    sweep: NotRequired[
        Sweep
    ]  # at level screen, of a candidate with tunables: the verdict is on the chosen configuration
    sweep_seconds: NotRequired[float]  # device seconds that the sweep held, also where it found nothing right
    generated: NotRequired[Generated]  # at level baseline, for the largest bench workload, where `compile` made any
    profile: NotRequired[Profile]  # at level profile
    host_us: NotRequired[HostTime]  # at level verify, of an accepted candidate; absent: an earlier judge, or it failed
    # By the worker alone, at level verify: configurations that a sweep found faster on some workload
    configurations: NotRequired[list[VerifiedConfiguration]]
    # By the service alone, on a verdict that came in a bundle: {"id", "nonce", "merged_at", "digest", "host"}
    bundle: NotRequired[dict[str, Any]]
    calls: NotRequired[
        dict[str, int]
    ]  # of the candidate's `run`, by gate: what a kernel that counts calls had to outlast
    seconds: dict[str, float]  # per gate, wall clock; "exclusive": how long the device's lease was held


class VerifiedConfiguration(TypedDict):
    """Another configuration of a verified candidate, which led on some workload of its sweep, verified by itself.

    source, source_digest: the candidate's with the numbers of `values`. verdict: its own at level verify, without
    samples; absent where the judge made none, and `reason` says why.
    """

    values: dict[str, int]
    source: str
    source_digest: str
    reason: str
    verdict: NotRequired[dict[str, Any]]


def judged_elsewhere(verdict: Verdict) -> str | None:
    """Return a verdict's device, `type:arch`, where it is not its target's; otherwise None.

    A judge without the GPU of a job takes it as far as a CPU goes. A part that the verdict does not name counts as
    the target's.
    """
    device, _, arch = verdict["target"].partition(":")
    found = f"{verdict['device'].get('type', device)}:{verdict['device'].get('arch', arch)}"
    return None if found == verdict["target"] else found
