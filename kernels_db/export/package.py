"""The `package` format: a wheel-ready directory with a PyTorch op and its evidence.

Around the op are its guards and the PyTorch fallback. The package needs PyTorch and the language's own
compiler, never Warpsmith: it carries a copy of `kernels_db.runtime`.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from warpsmith.kernels_db.export.evidence import in_docstring, license_text, provenance, published
from warpsmith.kernels_db.export.fold import renamed_imports
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import (
    ExportedKernel,
    export_version,
    kernel_name,
    module_name,
    runtime_needs,
    verified_workloads,
    write_project,
)
from warpsmith.kernels_db.export.kernel_facts import configurations, file_of, verified_numbers
from warpsmith.kernels_db.export.spec_module import render_spec_module, scalar_type
from warpsmith.kernels_db.export.stand_in_source import carried
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.op import Input, Op, Target
from warpsmith.kernels_db.spec.resolve import arguments, reference_source

STATIC_FILES = (
    "_calls.py",
    "_compare.py",
    "_control.py",
    "_guard.py",
    "_load.py",
    "_math.py",
    "_op.py",
    "_plans.py",
    "_shadow.py",
    "overhead.py",
    "selfcheck.py",
    "verify.py",
)
_TEMPLATES = Environment(
    loader=PackageLoader("warpsmith.kernels_db.export", "package_files"),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
    autoescape=False,  # noqa: S701 - the results are Python, TOML and Markdown, not markup
)
PROVENANCE = "provenance.json"
"""The file with the kernel's origin, and a SHA-256 of every other file of the package and beside it."""

BESIDE = ("pyproject.toml", "README.md", "LICENSE")
"""The files of the project beside the package."""
_TEMPLATES.filters["in_docstring"] = in_docstring
REFERENCE_HEADER = '"""The PyTorch reference: the fallback, and what the kernel was checked against."""\n\n'


def build(kernel: ExportedKernel, directory: Path, *others: ExportedKernel, name: str | None = None) -> Path:
    """Write the package below `directory` and return its project directory.

    It holds the other kernels as well. Raises FileExistsError where that project directory exists: an export never
    overwrites what may have been changed. Raises SpecErrors where the others are not of the same op (`joining`).
    """
    kernels = joined([kernel, *others])
    module = name or module_name(*kernels)
    return write_project(directory, module, project_files(kernels, module))


def project_files(kernels: Sequence[ExportedKernel], module: str, vllm_layer: str | None = None) -> dict[str, str]:
    """Return every file of the export by its path below the project directory.

    `kernels` are in the order of `joined`. `vllm_layer`: the module `_layer` of a package that is a plugin of vLLM.
    """
    context = {**_context(kernels, module), "vllm": vllm_layer is not None}
    files = importable_files(kernels, module)
    if vllm_layer is not None:
        static = resources.files("warpsmith.kernels_db.export") / "package_files"
        files |= {"_vllm.py": (static / "_vllm.py").read_text("utf-8"), "_layer.py": vllm_layer}
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    rendered = (_TEMPLATES.get_template(f"{name}.j2").render(context) for name in BESIDE[:2])
    around = dict(zip(BESIDE, [*rendered, license_text()], strict=True))
    beside = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in around.items()}
    files[PROVENANCE] = json.dumps({**provenance(*kernels), "files": digests, "beside": beside}, indent=1)
    return {f"{module}/{name}": text for name, text in files.items()} | around


def importable_files(kernels: Sequence[ExportedKernel], module: str) -> dict[str, str]:
    """Return the files of the importable package `module` by their path inside it.

    They are all that the op needs to run. `kernels` are in the order of `joined`.
    """
    static = resources.files("warpsmith.kernels_db.export") / "package_files"
    files = {name: (static / name).read_text("utf-8") for name in STATIC_FILES}
    files["__init__.py"] = _TEMPLATES.get_template("init.py.j2").render(_context(kernels, module))
    files["_spec.py"] = render_spec_module(kernels, module)
    reference, stand_in = carried(reference_source(kernels[0].op))
    files |= {"_reference.py": REFERENCE_HEADER + reference, **stand_in}
    workloads = [{**w, "kernel": kernel_name(kernel)} for kernel in kernels for w in verified_workloads(kernel)]
    files["workloads.json"] = json.dumps(workloads, indent=1)
    for kernel in kernels:
        documents = {
            "envelope": json.dumps(kernel.envelope, indent=1, sort_keys=True),
            "evidence": json.dumps(published(kernel.evidence), indent=1, sort_keys=True),
            "lineage": json.dumps(kernel.lineage, indent=1),
        }
        name = kernel_name(kernel)
        files |= {file_of(name, kernels, stem): text for stem, text in documents.items()}
        files[file_of(name, kernels, "_kernel", ".py")] = _relocate_runtime(kernel.source)
    for stem in ("axis_relations", "draws", "float64"):
        files[f"_{stem}.py"] = (resources.files("warpsmith.kernels_db.job") / f"{stem}.py").read_text("utf-8")
    for entry in resources.files("warpsmith.kernels_db.runtime").iterdir():
        if entry.name.endswith(".py"):
            files[f"_runtime/{entry.name}"] = entry.read_text("utf-8")
    return files


def _context(kernels: Sequence[ExportedKernel], module: str) -> dict[str, Any]:
    """Return the values that the templates use."""
    op = kernels[0].op
    needs = [set(runtime_needs([kernel])) for kernel in kernels]
    always = set.intersection(*needs)
    languages = list(dict.fromkeys(kernel.language for kernel in kernels))
    extras: dict[str, list[str]] = {
        language: [need for need in runtime_needs([k for k in kernels if k.language == language]) if need not in always]
        for language in languages
    }
    return {
        "kernels": [_told(kernel, kernels) for kernel in kernels],
        "op": op,
        "targets": list(dict.fromkeys(str(Target.parse(kernel.target)) for kernel in kernels)),
        "languages": languages,
        "module": module,
        "description": " ".join(op.description.split()).removesuffix("."),
        "parameters": _parameters(op),
        "names": ", ".join(i.name for i in arguments(op)),
        "numbers": [i.name for i in arguments(op) if i.shape is None],
        "returns": _return_annotation(len(op.outputs)),
        "mutated": [i.name for i in arguments(op) if i.mutated],
        "strided": any(i.strides is not None for i in arguments(op)),
        "dependencies": ["torch>=2.4", *(need for need in runtime_needs(kernels) if need in always)],
        "extras": {language: more for language, more in extras.items() if more},
        "warpsmith_version": version("warpsmith"),
        "version": export_version(*kernels),
    }


def _told(kernel: ExportedKernel, kernels: Sequence[ExportedKernel]) -> dict[str, Any]:
    """Return the templates' values for one kernel."""
    bench = [w for w in kernel.evidence["workloads"] if w["role"] == "bench"]
    return {
        "kernel": kernel,
        "name": kernel_name(kernel),
        "evidence_file": file_of(kernel_name(kernel), kernels, "evidence"),
        "bench": bench,
        "baselines": list(dict.fromkeys(name for w in bench for name in w["speedup"])),
        "numbers": verified_numbers(kernel),
        "autotuned": LANGUAGES[kernel.language].compiler == "triton" and "autotune" in kernel.source,
        "configurations": configurations(kernel),
    }


def _parameters(op: Op) -> str:
    """Return the parameters of the op's function: names of the spec, defaults of the reference."""
    return ", ".join(
        f"{i.name}: {_annotation(i, default)}{'' if default is None else f' = {default}'}"
        for i, default in zip(arguments(op), argument_defaults(op), strict=True)
    )


def argument_defaults(op: Op) -> list[str | None]:
    """Return the Python source of each argument's default, None where there is none.

    It is the reference's own, or "None" for an optional input. Python takes defaults from the last argument on, so
    one before an argument without any is left out.
    """
    functions = {node.name: node for node in ast.walk(parse_module(op.reference)) if isinstance(node, ast.FunctionDef)}
    entry = functions.get("run") or functions.get("forward")
    taken = [] if entry is None else [a.arg for a in entry.args.args if a.arg != "self"]
    given = [] if entry is None else entry.args.defaults
    own = {len(taken) - len(given) + i: ast.unparse(node) for i, node in enumerate(given) if _is_literal(node)}
    defaults: list[str | None] = [None] * len(arguments(op))
    for position in reversed(range(len(op.inputs) if not op.state else 0)):
        defaults[position] = own.get(position) or ("None" if op.inputs[position].optional else None)
        if defaults[position] is None:
            break
    return defaults


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _annotation(parameter: Input, default: str | None) -> str:
    name = scalar_type(parameter.dtype) if parameter.shape is None else "torch.Tensor"
    return f"{name} | None" if parameter.optional or default == "None" else name


def _return_annotation(outputs: int) -> str:
    if outputs == 0:
        return "None"
    return "torch.Tensor" if outputs == 1 else f"tuple[{', '.join(['torch.Tensor'] * outputs)}]"


def _relocate_runtime(source: str) -> str:
    """Let the imports of `kernels_db.runtime` in `source` use the copy in the package."""
    return renamed_imports(source, "kernels_db.runtime", "._runtime")


def restore_runtime(source: str) -> str:
    """Return the source that a package's `_kernel.py` was written from."""
    return renamed_imports(source, "._runtime", "kernels_db.runtime")
