"""The `library` format: a kernel as another Warpsmith takes it in, nothing left out.

`kernels_db.library` reads such directories. The op is its whole spec, the verdict the judge's whole document with its
raw samples; the lineage is told in prose beside them, for people.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.export.evidence import LICENSE, published
from warpsmith.kernels_db.export.kernel import ExportedKernel, kernel_name, write_project
from warpsmith.kernels_db.job.means import limit_fraction

NAME = "library"
FORMAT, VERSION = "warpsmith-kernel", 1

OP, CANDIDATE, VERDICT, KERNEL, LINEAGE = "op.json", "candidate.py", "verdict.json", "kernel.json", "LINEAGE.md"
FILES = (OP, CANDIDATE, VERDICT, KERNEL, LINEAGE)


def build(kernel: ExportedKernel, directory: Path) -> Path:
    """Write the kernel into a new directory below `directory` and return that.

    Raises FileExistsError where it exists.
    """
    verdict = json.dumps(published(kernel.evidence), allow_nan=False, separators=(",", ":")) + "\n"
    files = {
        OP: _json(kernel.spec),
        CANDIDATE: kernel.source,
        VERDICT: verdict,
        KERNEL: _json({**_document(kernel), "verdict_sha256": _sha256(verdict)}),
        LINEAGE: _prose(kernel),
    }
    return write_project(directory, f"{kernel.spec['name']}_{kernel_name(kernel)}", files)


def _document(kernel: ExportedKernel) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "license": LICENSE,
        "warpsmith": version("warpsmith"),
        "id": kernel.id,
        "target": kernel.target,
        "language": kernel.language,
        "source_digest": kernel.source_digest,
        "candidate_sha256": _sha256(kernel.source),
        "verified_at": kernel.verified_at,
        "envelope": kernel.envelope,
        "lineage": kernel.lineage,
        "prompts": kernel.prompts,
    }


def _prose(kernel: ExportedKernel) -> str:
    """Return the ideas that led to the kernel, from the root, with the last one's measurements."""
    lines = [f"# {kernel.spec['name']} on {kernel.target}, in {kernel.language}", ""]
    lines += [_quoted(kernel.spec.get("description", "")), "", *_measured(kernel), ""]
    lines += ["## Ideas, in their order"] if kernel.lineage else ["Written outside of a search."]
    for step in kernel.lineage:
        idea = step.get("idea")
        if not idea:
            continue
        repairs, score = step.get("repairs") or 0, step.get("score")
        told = [str(step["technique"]), f"round {step['round']}"]
        told += [f"repaired {repairs} time{'s' * (repairs != 1)}"] * (repairs > 0)
        told += [] if score is None else [f"{score:.2f}x the fastest baseline"]
        lines += ["", f"### #{step['seq']} {_line(idea['title'])}", "", ", ".join(told)]
        for part in ("mechanism", "evidence", "expected_gain", "risk"):
            if text := str(idea.get(part, "")).strip():
                lines += ["", f"{part.replace('_', ' ').capitalize()}:", "", _quoted(text)]
    return "\n".join(lines) + "\n"


def _measured(kernel: ExportedKernel) -> list[str]:
    evidence = kernel.evidence
    lines = [f"Verified on {evidence['device'].get('name', 'a device')}, {kernel.verified_at}."]
    if evidence.get("score") is not None:
        low, high = evidence["score_ci95"] or (evidence["score"], evidence["score"])
        share = limit_fraction(evidence["workloads"])
        among = "baseline, experts included" if evidence.get("experts") else "PyTorch baseline"
        said = f"{evidence['score']:.2f}x [{low:.2f}, {high:.2f}] the fastest {among}"
        said += "" if share is None else f", {share:.0%} of the physical limit"
        lines += [f"{said}: geometric means over the bench workloads."]
    rows = [row for row in evidence["workloads"] if "candidate" in row["time_us"]]
    lines += ["", "| workload | time | speed-up over the fastest baseline |", "|---|---|---|"] if rows else []
    for row in rows:
        baseline, gained = min(row["speedup"].items(), key=lambda each: each[1], default=("-", float("nan")))
        lines.append(f"| {row['id']} | {row['time_us']['candidate']:.1f} us | {gained:.2f}x {baseline} |")
    if host := evidence.get("host_us"):
        spent = host.get("plan", host["run"])
        said = f"{spent:.1f} us at {host['workload']}; in eager mode {host['eager']:.1f}"
        lines += ["", f"A call costs the calling thread {said}."]
    return lines


def _line(text: object) -> str:
    """Return a model's words on one line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def _quoted(text: str) -> str:
    return "\n".join(f"> {_line(line)}".rstrip() for line in text.strip().splitlines())


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"
