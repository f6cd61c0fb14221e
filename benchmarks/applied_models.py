"""Measure kernels in both example models, through `warpsmith profile`, `apply` and `ablate`.

    python -m benchmarks.applied_models [--device cpu|cuda] [--time S] [--cache DIR] [--json FILE]

Profiles each model of `examples/models`, judges every candidate of `benchmarks/model_kernels/MODEL` that is
written for the device (OP.LANGUAGE.py, where OP is a spec that the profile writes) in full, makes packages of
the accepted ones, compiles the model with them wherever they are right, faster or not, and measures it with
and without each. Prints for each model the profile, the verdicts, the places with what a kernel takes there
and what Inductor's code takes, and the times with the largest difference of the results. The C++ candidates
are plain loops: they show the way, and no gain.

Needs torch, pydantic, PyYAML and what the candidates' languages need: triton, cuda-core and NVRTC, or a C++
compiler. Exits with 1 where a spec was not written, a candidate is not accepted or has no place in its model,
or results do not agree.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from benchmarks.showcase import ROOT, ask, columns, judge_job
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.spec.op import Op, Target, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.optimize import client as models

MODELS = ROOT / "examples" / "models"
KERNELS = ROOT / "benchmarks" / "model_kernels"
NAMES = ("transformer", "recommender")
DEVICE_OF = {"cpp": "cpu", "triton": "cuda", "cuda": "cuda"}
"""Where a candidate of a language runs."""
TOP = 20
"""Specs that a profile writes: all of them, for these models have fewer regions."""
AT_ONCE = 4
"""Jobs that are with the judge at once: it prepares some while it times one."""
TIME_S = 0.5
"""Of timing a workload."""


@dataclass(frozen=True)
class Candidate:
    """A kernel for an op that the profile of a model is expected to write."""

    model: str
    op: str
    language: str
    file: Path


@dataclass(frozen=True)
class Judged:
    """A judged candidate; `package` is its project directory, None where it was not accepted."""

    candidate: Candidate
    said: str
    verdict: Verdict | None = None
    package: Path | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"file": self.candidate.file.name, "said": self.said, "verdict": self.verdict}


def candidates(model: str, device: str) -> list[Candidate]:
    """Return the candidates beside this file for a model and a device, by name."""
    found = []
    for file in sorted((KERNELS / model).glob("*.py")):
        op, language, _ = file.name.split(".")
        if DEVICE_OF[language] == device:
            found.append(Candidate(model, op, language, file))
    return found


def judged(client: JudgeClient, candidate: Candidate, specs: Path, target: str, packages: Path) -> Judged:
    """Judge a candidate against its spec and build its package where it is accepted.

    The spec is in the directory `specs`; the package is written below `packages`.
    """
    spec = specs / f"{candidate.op}.yaml"
    if not spec.exists():
        return Judged(candidate, "the profile wrote no spec of this name")
    op, source = load_op(spec), candidate.file.read_text(encoding="utf-8")
    shown = ask(client, judge_job(op, target, candidate.language, source, TIME_S))
    verdict = shown.verdict
    if verdict is None:
        return Judged(candidate, f"no verdict: {shown.error}")
    if verdict["verdict"] != "accepted":
        return Judged(candidate, f"{verdict['verdict']} at {verdict['gate']}: {verdict['reason']}", verdict)
    package = build(kernel(candidate, op, target, source, verdict), packages)
    return Judged(candidate, f"accepted, {verdict['score']:.2f}x over the fastest baseline", verdict, package)


def kernel(candidate: Candidate, op: Op, target: str, source: str, verdict: Verdict) -> ExportedKernel:
    """Return an accepted candidate as exporters take it, good for its verdict's workloads."""
    seen = {workload["id"] for workload in verdict["workloads"]}
    workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse(target)) if each.id in seen]
    return ExportedKernel(
        id=f"kn_{candidate.op}",
        spec=op.document(),
        target=target,
        language=candidate.language,
        source=source,
        source_digest=normalised_digest(source),
        envelope=build_envelope(op.digest, target, workloads, verdict["versions"]),
        evidence=cast("dict[str, Any]", verdict),
        lineage=[],
        verified_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def measured(device: str, time_s: float, scratch: Path, cache: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each model's name with `profile`, `kernels`, and perhaps `apply` and `ablate`.

    The last two are there where a candidate was accepted; all are as the commands return them. Raises
    models.Refused, models.Died.
    """
    profiles = {}
    for name in NAMES:
        request = {"command": "profile", "top": TOP, "force": False, "cache": str(cache), "output": str(scratch / name)}
        profiles[name] = models.ask(request | _of(name, device))
    todo = [candidate for name in NAMES for candidate in candidates(name, device)]

    def one(candidate: Candidate) -> Judged:
        target = profiles[candidate.model]["target"]
        done = judged(client, candidate, scratch / candidate.model, target, scratch / "packages")
        print(f"{candidate.model}, {candidate.file.name}: {done.said}", file=sys.stderr, flush=True)
        return done

    with JudgeClient(cache=cache) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        kernels = list(pool.map(one, todo))
    for name in NAMES:  # the judge has ended: nothing else runs beside the models
        found: dict[str, Any] = {"profile": profiles[name]}
        found["kernels"] = [each for each in kernels if each.candidate.model == name]
        packages = [str(each.package) for each in found["kernels"] if each.package is not None]
        if packages:
            request = _of(name, device) | {"packages": packages, "keep": "right"}
            found["apply"] = models.ask(request | {"command": "apply"})
            found["ablate"] = models.ask(request | {"command": "ablate", "time_s": time_s})
        yield name, found


def _of(name: str, device: str) -> dict[str, Any]:
    return {"model": str(MODELS / f"{name}.py"), "device": device}


def problems(found: dict[str, Any]) -> list[str]:
    """Return what is wrong with a model's results, for people; empty where all is well."""
    said = [f"{each.candidate.file.name}: {each.said}" for each in found["kernels"] if each.package is None]
    if "apply" not in found:
        return [*said, "no kernel to put into the model"]
    applied, variants = found["apply"], found["ablate"]["variants"]
    used = {place["kernel"] for place in applied["places"] if place["replaced"]}
    packages = [each.package.name for each in found["kernels"] if each.package is not None]
    said += [f"{name} has no place in the model" for name in packages if name not in used]
    said += [] if applied["agrees"] else ["the results with the kernels do not agree"]
    said += [] if applied["weights_untouched"] and applied["unchanged"] else ["the model itself was changed"]
    return said + [f"ablate: the results of {row['variant']!r} do not agree" for row in variants if not row["agrees"]]


def report(found: dict[str, Any]) -> str:
    """Return a model's tables."""
    profile, title = found["profile"], f"{found['profile']['model']} on {found['profile']['device']}"
    parts = [f"{title}: {profile['model_us'] / 1e3:.3f} ms a call", columns(_opportunities(profile))]
    parts += ["", "kernels", columns([[e.candidate.op, e.candidate.language, e.said] for e in found["kernels"]])]
    if "apply" in found:
        applied, ablated = found["apply"], found["ablate"]
        places = [[place["op"], place["where"], _outcome(place)] for place in applied["places"]]
        parts += ["", "places", columns(places), "", f"{title}, {ablated['rounds']} rounds"]
        parts += [columns(_variants(ablated["variants"]))]
    return "\n".join(parts)


def _opportunities(profile: dict[str, Any]) -> list[list[str]]:
    rows = [["operators", "places", "us", "limit us", "by", "saves us", "spec"]]
    for one in profile["opportunities"]:
        limit = "-" if one["limit_us"] is None else f"{one['limit_us']:.1f}"
        spec = one["reason"] if one["file"] is None else Path(one["file"]).stem
        times = [f"{one['time_us']:.1f}", limit, one["limit_by"] or "-", f"{one['saving_us']:.1f}"]
        rows.append([one["operators"], str(len(one["places"])), *times, spec or "-"])
    return rows


def _outcome(place: dict[str, Any]) -> str:
    return f"{place['us']:.1f} us for {place['inductor_us']:.1f}" if place["replaced"] else f"not: {place['reason']}"


def _variants(variants: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = [["variant", "ms", "over model", "over compiled", "95 %", "largest difference", "argmax", "agrees"]]
    for row in variants:
        low_high, largest, argmax = row["over_compiled_ci95"], row["largest_difference"], row["argmax_agreement"]
        interval = "-" if low_high is None else f"{low_high[0]:.3f} to {low_high[1]:.3f}"
        compared = ["not finite" if largest is None else f"{largest:.2e}", "-" if argmax is None else f"{argmax:.2%}"]
        times = [f"{row['ms']:.3f}", f"{row['speedup']:.3f}x", f"{row['over_compiled']:.3f}x", interval]
        rows.append([row["variant"], *times, *compared, "yes" if row["agrees"] else "NO"])
    return rows


def main() -> int:
    """Print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.applied_models", description="Kernels in the example models."
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run")
    parser.add_argument("--time", type=float, default=20.0, metavar="S", help="seconds of timing for each ablate")
    parser.add_argument("--cache", type=Path, help="the judge's cache directory; by default one for this run alone")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write all of it here")
    arguments = parser.parse_args()
    start = time.monotonic()
    kept: dict[str, dict[str, Any]] = {}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="warpsmith-models-") as scratch:
        cache = (arguments.cache or Path(scratch, "cache")).resolve()
        try:
            for name, found in measured(arguments.device, arguments.time, Path(scratch), cache):
                print(report(found), end="\n\n", flush=True)
                wrong += [f"{name}: {said}" for said in problems(found)]
                kept[name] = found | {"kernels": [each.document() for each in found["kernels"]]}
        except (models.Refused, models.Died) as error:
            wrong.append(str(error))
    if arguments.json:
        arguments.json.write_text(json.dumps(kept, indent=1))
    print("\n".join([*wrong, f"in {time.monotonic() - start:.0f} s"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
