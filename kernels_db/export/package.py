"""The `package` format: a wheel-ready directory with a PyTorch op, its guards, the PyTorch fallback and the evidence.

The package needs PyTorch and the language's own compiler, never Warpsmith: it carries a copy of `kernels_db.runtime`.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kernels_db.export.spec_module import render_spec_module, scalar_type
from kernels_db.job import ResolvedWorkload
from kernels_db.op import Input, Op, Target, parse_op
from kernels_db.resolve import arguments, reference_source, resolve_workload

STATIC_FILES = ("_op.py", "selfcheck.py")
REFERENCE_HEADER = '"""The PyTorch reference: the fallback, and what the kernel was checked against."""\n\n'
RUNTIME_DEPENDENCIES = {"cpp": [], "triton": ["triton"], "cuda": ["cuda-core", "nvidia-cuda-nvrtc"]}
"""What a candidate's language needs beside torch."""


@dataclass(frozen=True)
class ExportedKernel:
    """What an exporter needs of a stored kernel; plain values, so that exporters know no tables."""

    id: str
    spec: dict[str, Any]
    target: str
    language: str
    source: str
    source_digest: str
    envelope: dict[str, Any]
    evidence: dict[str, Any]
    lineage: list[dict[str, Any]]


def module_name(op_name: str, source_digest: str) -> str:
    """Name of the package, its op namespace and its directory; the content's hash keeps two exports of one op apart."""
    return f"warpsmith_{op_name}_{source_digest[:8]}"


def build(kernel: ExportedKernel, directory: Path) -> Path:
    """Write the package below `directory` and return its project directory.

    Raises FileExistsError where that project directory exists: an export never overwrites what may have been changed.
    """
    op = parse_op(kernel.spec)
    module = module_name(op.name, kernel.source_digest)
    project = directory / module
    project.mkdir(parents=True)
    package = project / module
    package.mkdir()
    for path, text in _files(kernel, op, module).items():
        destination = project / path
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_text(text, encoding="utf-8")
    return project


def _files(kernel: ExportedKernel, op: Op, module: str) -> dict[str, str]:
    """Every file of the export by its path below the project directory."""
    templates = Environment(
        loader=PackageLoader("kernels_db.export", "package_files"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - the results are Python, TOML and Markdown, not markup
    )
    target = Target.parse(kernel.target)
    workloads = verified_workloads(op, target, kernel.envelope)
    context = {
        "kernel": kernel,
        "op": op,
        "target": target,
        "module": module,
        "description": " ".join(op.description.split()),
        "parameters": ", ".join(f"{i.name}: {_annotation(i)}" for i in arguments(op)),
        "names": ", ".join(i.name for i in arguments(op)),
        "returns": _return_annotation(len(op.outputs)),
        "mutated": [i.name for i in arguments(op) if i.mutated],
        "dependencies": ["torch>=2.4", *RUNTIME_DEPENDENCIES[kernel.language]],
        "warpsmith_version": version("warpsmith"),
        "bench": [w for w in kernel.evidence["workloads"] if w["role"] == "bench"],
    }
    static = resources.files("kernels_db.export") / "package_files"
    files = {name: (static / name).read_text("utf-8") for name in STATIC_FILES}
    files["__init__.py"] = templates.get_template("init.py.j2").render(context)
    files["_spec.py"] = render_spec_module(op, target, module, kernel.envelope)
    files["_kernel.py"] = _relocate_runtime(kernel.source)
    files["_reference.py"] = REFERENCE_HEADER + reference_source(op)
    files["workloads.json"] = json.dumps(workloads, indent=1)
    files["envelope.json"] = json.dumps(kernel.envelope, indent=1, sort_keys=True)
    files["evidence.json"] = json.dumps(kernel.evidence, indent=1, sort_keys=True)
    files["lineage.json"] = json.dumps(kernel.lineage, indent=1)
    files["_draws.py"] = (resources.files("kernels_db") / "draws.py").read_text("utf-8")
    for entry in (resources.files("kernels_db") / "runtime").iterdir():
        if entry.name.endswith(".py"):
            files[f"_runtime/{entry.name}"] = entry.read_text("utf-8")
    packaged = {f"{module}/{name}": text for name, text in files.items()}
    packaged["pyproject.toml"] = templates.get_template("pyproject.toml.j2").render(context)
    packaged["README.md"] = templates.get_template("README.md.j2").render(context)
    packaged["LICENSE"] = (static / "LICENSE").read_text("utf-8")
    return packaged


def verified_workloads(op: Op, target: Target, envelope: dict[str, Any]) -> list[ResolvedWorkload]:
    """The op's workloads that the envelope names, resolved."""
    verified = {shape["id"] for shape in envelope["shapes"]}
    return [resolve_workload(op, w) for w in op.workloads_for(target) if w.id in verified]


def _annotation(parameter: Input) -> str:
    name = scalar_type(parameter.dtype) if parameter.shape is None else "torch.Tensor"
    return f"{name} | None" if parameter.optional else name


def _return_annotation(outputs: int) -> str:
    if outputs == 0:
        return "None"
    return "torch.Tensor" if outputs == 1 else f"tuple[{', '.join(['torch.Tensor'] * outputs)}]"


def _relocate_runtime(source: str) -> str:
    """`source` with its imports of `kernels_db.runtime` pointing at the copy that the package carries."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernels_db.runtime"):
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line.replace("kernels_db.runtime", "._runtime", 1)
    return "".join(lines)
