"""An export's statement of a kernel's origin and measurements, as plain values and text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from importlib import resources
from importlib.metadata import version
from typing import Any

from warpsmith.kernels_db.export.kernel import ExportedKernel, export_version, kernel_name
from warpsmith.kernels_db.job.protocol_number import read_protocol

LICENSE = "Apache-2.0"
LICENSE_HEADER = f"# SPDX-License-Identifier: {LICENSE}\n# Exported by Warpsmith; edit it as your own.\n"
WIDTH = 118

_FAULT = re.compile(r"((?:baseline \S+ )?does not run(?: on \S+)?)(?:: | \()(?:([a-z_]+): )?.*", re.DOTALL)
"""What a verdict says of a baseline that does not run: that, the kind of its fault, and the fault's own words."""


def published(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kernel's evidence for others: as it is, but without the words of the baselines' faults.

    They are what PyTorch and compilers wrote on the judge's host, and may name its files.
    """
    rows = [
        {**row, "not_timed": {name: _without_words(why) for name, why in row["not_timed"].items()}}
        if "not_timed" in row
        else row
        for row in evidence["workloads"]
    ]
    notes = {"notes": [_without_words(note) for note in evidence["notes"]]} if "notes" in evidence else {}
    return {**evidence, "workloads": rows, **notes}


def _without_words(text: str) -> str:
    fault = _FAULT.fullmatch(text)
    return text if fault is None else ": ".join(filter(None, fault.groups()))


def provenance(*kernels: ExportedKernel) -> dict[str, Any]:
    """Return the version of an export, and the origin and measurements of each kernel, as a JSON document.

    For each: its op, the lineage of ideas, the model and its prompts, versions, device, errors and times.
    """
    op = kernels[0].op
    return {
        "license": LICENSE,
        "warpsmith": version("warpsmith"),
        "version": export_version(*kernels),
        "op": {"name": op.name},
        "kernels": [_origin(kernel) for kernel in kernels],
    }


def _origin(kernel: ExportedKernel) -> dict[str, Any]:
    op, evidence = kernel.op, published(kernel.evidence)
    return {
        "name": kernel_name(kernel),
        "kernel": kernel.id,
        "op": {"name": op.name, "digest": op.digest, "semantic_digest": op.semantic_digest},
        "target": kernel.target,
        "language": kernel.language,
        "source_digest": kernel.source_digest,
        "device": evidence.get("device", {}).get("name"),
        "versions": evidence.get("versions", kernel.envelope["versions"]),
        **({"experts": evidence["experts"]} if evidence.get("experts") else {}),
        "fingerprint": evidence.get("fingerprint"),
        "protocol": read_protocol(evidence),
        "sandbox": evidence.get("sandbox", {}).get("level"),
        "verified_at": kernel.verified_at,
        "lineage": [_step(step) for step in kernel.lineage if step.get("idea")],
        "prompts": kernel.prompts,
        "workloads": [_figures(row) for row in evidence["workloads"]],
        "host_us": evidence.get("host_us"),
    }


def summary(*kernels: ExportedKernel) -> list[str]:
    """Return the same for a reader as lines, one kernel after the other.

    A line has at most 118 characters where no word is longer.
    """
    lines: list[str] = []
    for kernel in kernels:
        lines += ["", *_told(kernel)] if lines else _told(kernel)
    return [part for line in lines for part in _wrapped(line)]


def _told(kernel: ExportedKernel) -> list[str]:
    said = _origin(kernel)
    lines = [
        f"A {kernel.language} kernel for {kernel.target}, found and verified by Warpsmith {version('warpsmith')}.",
        f"Kernel {kernel.id} ({said['name']}), source SHA-256 {kernel.source_digest}.",
        f"Op {said['op']['name']}, specification SHA-256 {said['op']['digest']}.",
        "",
        f"Measured on {said['device']} with {_pairs(said['versions'])}{_on(kernel.verified_at)}, "
        f"under the judge's protocol {said['protocol']}:",
    ]
    lines += [f"  {line}" for row in said["workloads"] for line in _row(row)]
    lines += [f"  {name} is {_pairs(packages)}" for name, packages in said.get("experts", {}).items() if packages]
    lines += _host(said["host_us"])
    lines += ["", "Envelope (every other call goes to PyTorch):"]
    lines += [f"  {name}: {_span(axis)}" for name, axis in kernel.envelope["axes"].items()]
    lines += [f"  {item['name']}: {item['dtype']}" for item in kernel.envelope["inputs"]]
    if said["lineage"]:
        lines += ["", "Ideas that led here:"]
        lines += [f"  round {step['round']}, {step['technique']}: {step['title']}" for step in said["lineage"]]
    if kernel.prompts:
        lines += ["", "Model calls (SHA-256 of the prompt):"]
        lines += [
            f"  {call['kind']} by {call['model'] or 'an unnamed model'} ({call['provider']}): {call['prompt']}"
            for call in kernel.prompts
        ]
    return lines


def license_text() -> str:
    """Return the text of the licence."""
    return (resources.files("warpsmith.kernels_db.export") / "package_files" / "LICENSE").read_text("utf-8")


def docstring(title: str, description: str, lines: list[str]) -> str:
    """Return a module's docstring; its content cannot end it."""
    text = "\n".join([*_wrapped(f"{title}: {' '.join(description.split())}"), "", *lines])
    return f'"""{in_docstring(text)}\n"""\n'


def in_docstring(text: str) -> str:
    """Escape `text` for a docstring of three double quotes.

    It neither ends the docstring nor is read as anything but text.
    """
    kept = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)
    return kept.replace("\\", "\\\\").replace('"""', "'''")


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    idea = step["idea"]
    names = ("seq", "round", "technique", "score")
    return {name: step.get(name) for name in names} | {"title": " ".join(_printed(str(idea.get("title", ""))).split())}


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "role", "error", "time_us", "speedup", "ci95", "limit_us", "limit_by", "limit_fraction")
    others = {name: row[name] for name in ("weight", "not_timed") if name in row}
    return {name: row.get(name) for name in names} | others


def _row(row: Mapping[str, Any]) -> list[str]:
    error, times = row["error"] or {}, row["time_us"] or {}
    weight = f", weight {row['weight']:g}" if row.get("weight", 1.0) != 1.0 else ""
    said = [f"{row['id']} ({row['role']}{weight}):"]
    if "candidate" in times:
        said.append(f"{times['candidate']:.1f} us")
    for baseline, ratio in (row["speedup"] or {}).items():
        low, high = row["ci95"][baseline]
        said.append(f"{ratio:.2f}x {baseline} [{low:.2f}, {high:.2f}]")
    said += [f"{baseline} not timed: {reason}" for baseline, reason in row.get("not_timed", {}).items()]
    if error.get("candidate") is not None and error.get("limit") is not None:
        said.append(f"relative L2 error {error['candidate']:.1e} of {error['limit']:.1e} allowed")
    return _wrapped(f"{said[0]} {', '.join(said[1:]) or 'checked, not timed'}")


def _host(host: Mapping[str, Any] | None) -> list[str]:
    """Return what a call costs the calling thread; nothing for a verdict of before it was measured."""
    if host is None:
        return []
    planned = f"{host['plan']:.1f} us by its launch plan, " if "plan" in host else ""
    said = f"{planned}{host['run']:.1f} us by the kernel's run, {host['eager']:.1f} us in eager mode"
    return [f"A call costs the calling thread {said}, at {host['workload']}."]


def _wrapped(line: str) -> list[str]:
    """Wrap the line at `WIDTH`, without the characters that do not print.

    Others wrote the titles and names in it.
    """
    printed = _printed(line)
    indent = printed[: len(printed) - len(printed.lstrip())]
    wrapped = textwrap.wrap(
        printed, WIDTH, subsequent_indent=f"{indent}  ", break_long_words=False, break_on_hyphens=False
    )
    return wrapped or [""]


def _printed(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _span(axis: Mapping[str, Any]) -> str:
    if axis["min"] == axis["max"]:
        return str(axis["min"])
    step = axis.get("step", 1)
    return f"{axis['min']} to {axis['max']}" + (f" in multiples of {step}" if step > 1 else "")


def _pairs(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {found}" for name, found in versions.items()) or "versions unknown"


def _on(moment: str) -> str:
    return f" on {moment}" if moment else ""
