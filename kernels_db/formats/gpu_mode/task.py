"""GPU MODE tasks: a `task.yml` with the files that it names, `reference.py` among them.

    data of generate_input        inputs, in order; a number becomes a scalar input, a text or None stays a constant
    arguments of generate_input   axes, where a dimension has an argument's sizes (`axes`)
    tests, benchmarks             workloads of role test and bench
    ref_kernel                    reference: `run` puts the data together and calls it
    data that ref_kernel writes   mutated inputs
    rtol, atol of the checker     tolerance of every output

Everything else in the files stays in `origin`.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.formats.gpu_mode import calls as calls_of
from warpsmith.kernels_db.formats.gpu_mode import inputs as task_inputs
from warpsmith.kernels_db.formats.gpu_mode.axes import Axes
from warpsmith.kernels_db.formats.gpu_mode.checker import CHECKER, tolerance_of
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.embedded import embedding
from warpsmith.kernels_db.formats.shared.facts import (
    TaskFacts,
)
from warpsmith.kernels_db.formats.shared.files import RawFile, beside, origin_of, refused
from warpsmith.kernels_db.formats.shared.imported_op import Imported, drawn_apart
from warpsmith.kernels_db.formats.shared.tensors import dist_of
from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.kernels_db.spec.basic_types import MAX_PYTHON
from warpsmith.kernels_db.spec.document import read_document
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.names import identifier, unique

FORMAT = "gpu-mode"
CANDIDATE = "custom_kernel"
EXPECTED = "a task.yml with files, tests or benchmarks, and the files that it names"
REFERENCE = "reference.py"

_SUBMISSION = "@SUBMISSION@"
NOT_NEEDED = ("eval.py", "submission.py", "template.py")
"""Files of a task that no submission imports."""


def claim(file: RawFile) -> str | None:
    """Say in words why a file belongs to a task; None where nothing shows it."""
    if file.path.endswith((".yml", ".yaml")):
        task = _task_or_none(file)
        return None if task is None else "a task with files"
    if file.path.endswith(".py"):
        try:
            names = python_source.defined(python_source.parse(file))
        except SpecErrors:
            return None
        found = [name for name in ("generate_input", "ref_kernel", CANDIDATE) if name in names]
        return " and ".join(found) or None
    return None


def read_task(file: RawFile) -> dict[str, Any]:
    """Return the mapping in a task's file. Raises SpecErrors."""
    try:
        task = read_document(file.data)
    except SpecErrors as error:
        raise SpecErrors(
            [SpecError(f"{file.path}: {item.field}", item.found, item.expected) for item in error.errors]
        ) from None
    if not isinstance(task, dict):
        raise refused(file.path, None if task is None else f"a {type(task).__name__}", EXPECTED)
    return task


def _task_or_none(file: RawFile) -> dict[str, Any] | None:
    try:
        task = read_task(file)
    except SpecErrors:
        return None
    return task if "files" in task and ("tests" in task or "benchmarks" in task) else None


def references(files: Sequence[RawFile]) -> list[str]:
    """Return the paths of the Python files that a task names: it needs no others."""
    return [
        beside(file.path, source)
        for file in files
        if file.path.endswith((".yml", ".yaml")) and (task := _task_or_none(file)) is not None
        for source in sources(task, file.path).values()
        if source.endswith(".py")
    ]


def sources(task: Mapping[str, Any], path: str) -> dict[str, str]:
    """Return the files of a task by the name under which they are imported. Raises SpecErrors."""
    listed = task.get("files")
    if not isinstance(listed, list):
        raise refused(f"{path}: files", listed, "a list of {name, source}")
    found = {}
    for position, item in enumerate(listed):
        name, source = (item.get("name"), item.get("source")) if isinstance(item, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(source, str):
            raise refused(f"{path}: files[{position}]", item, "a name and a source")
        if source != _SUBMISSION:
            found[name] = source
    return found


def read(files: Sequence[RawFile], analyse: Analyse | None) -> Imported:
    """Read the spec of a task. Raises SpecErrors."""
    tasks = [file for file in files if file.path.endswith((".yml", ".yaml"))]
    if len(tasks) != 1:
        raise refused("files", f"{len(tasks)} YAML files", f"one: {EXPECTED}")
    file = tasks[0]
    task = read_task(file)
    if task.get("multi_gpu"):
        raise refused(f"{file.path}: multi_gpu", "true, a task for several devices at once", "a task for one device")
    source = _read_source(task, file, files)
    calls = calls_of.listed(task, file.path)
    request = {
        "task": "task",
        "text": embedding(source.texts),
        "reference": task_inputs.MODULE,
        "workloads": [call for _, _, call in calls],
    }
    facts, sandbox = calls_of.analysed(analyse, request, source.where, len(calls))
    notes = [f"kept in origin, and not part of the op: {path}" for path in _not_named(task, file, files)]
    inferred = [calls[number][0] for number in facts.inferred if number < len(calls)]
    too_much = [name for (name, _, _), found in zip(calls, facts.workloads, strict=True) if found is None]
    calls = [call for call in calls if call[0] not in too_much]
    unlike = calls_of.unlike(facts, calls, source.where)
    alike = [found for found, (name, _, _) in zip(facts.understood, calls, strict=True) if name not in unlike]
    facts = facts.model_copy(update={"workloads": alike})
    calls = calls_of.timed([call for call in calls if call[0] not in unlike])
    document, said = _document(task, file, source, facts, calls)
    document["origin"] = origin_of(FORMAT, files)
    for what, left in (
        ("left out, for they take more than the sandbox gives", too_much),
        ("left out, for they differ from the others in structure, texts, dtypes, ranks or what is written", unlike),
        (
            "too large to compute here: the sizes of their results are those that smaller calls show",
            [name for name in inferred if name not in unlike],
        ),
    ):
        if left:
            notes.append(f"{what}: {', '.join(left)}")
    small = calls_of.smaller(analyse, request, facts, calls, source.where)
    if small is None:
        return Imported(document, notes + said, sandbox)
    one = facts.model_copy(update={"workloads": [small.workload]})
    lowered, _ = _document(task, file, source, one, [("small", "bench", small.arguments)])
    sizes = {name: value for name, value in small.arguments.items() if type(value) is int and name != "seed"}
    return Imported(document, notes + said, sandbox, sizes, lowered)


@dataclass(frozen=True)
class _Source:
    """reference.py, parsed, and the texts of the modules that it imports; `where` names it in errors."""

    texts: dict[str, str]
    where: str
    tree: ast.Module
    functions: Mapping[str, ast.FunctionDef]


def _read_source(task: Mapping[str, Any], file: RawFile, files: Sequence[RawFile]) -> _Source:
    """Return the source of a task. Raises SpecErrors where it lacks a function."""
    texts = _texts(task, file, files)
    where = f"{file.path}: {REFERENCE}"
    tree = python_source.parse(RawFile(where, texts[task_inputs.MODULE].encode("utf-8")))
    functions = python_source.top_level(tree, ast.FunctionDef)
    missing = [name for name in ("generate_input", "ref_kernel") if name not in functions]
    if missing:
        raise refused(where, f"no {' and no '.join(missing)}", "functions generate_input and ref_kernel")
    return _Source(texts, where, tree, functions)


def _not_named(task: Mapping[str, Any], file: RawFile, files: Sequence[RawFile]) -> list[str]:
    named = {file.path, *(beside(file.path, source) for source in sources(task, file.path).values())}
    return [item.path for item in files if item.path not in named]


def _document(
    task: Mapping[str, Any],
    file: RawFile,
    source: _Source,
    facts: TaskFacts,
    calls: Sequence[calls_of.Call],
) -> tuple[dict[str, Any], list[str]]:
    """Return the spec of a task with these workloads, and notes on it. Raises SpecErrors."""
    text = embedding(source.texts)
    names = task_inputs.names(facts, source.functions["ref_kernel"])
    taken = [
        number for number, alias in enumerate(facts.understood[0].aliases) if alias not in facts.understood[0].written
    ]
    arguments = [call for _, _, call in calls]
    axes = Axes(arguments, source.where)
    generators = _generators(_for_inputs(source.texts, source.tree), facts, arguments, MAX_PYTHON - 2 * len(text))
    free = task_inputs.unread(facts, source.functions["ref_kernel"])
    generate_input = source.functions["generate_input"]
    inputs = task_inputs.inputs(facts, names, axes, generators, generate_input, arguments, free)
    tolerance, notes = tolerance_of(source.tree, source.where)
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": identifier(posixpath.basename(posixpath.dirname(file.path)) or "task", "task").lower(),
        "description": str(task.get("description") or "").strip()[:4000],
        "inputs": inputs.declared,
        "outputs": [
            {
                "name": name,
                "shape": axes.shape(name, _shapes(facts, number), derived=True),
                "dtype": facts.understood[0].outputs[number].dtype,
            }
            | ({"tolerance": tolerance} if tolerance and is_float(facts.understood[0].outputs[number].dtype) else {})
            for number, name in zip(taken, _output_names(names, len(taken)), strict=True)
        ],
        "reference": text + task_inputs.run(facts, names, taken, names_gpu=_names_gpu(source.tree)),
        "workloads": [
            {"id": name, "role": role, "axes": axes.sizes(number), "inputs": inputs.overrides[number]}
            for number, (name, role, _) in enumerate(calls)
        ],
        "axes": axes.declared(),
    }
    if free:
        said = ", ".join(names[number] for number in sorted(free))
        notes.append(
            f"ref_kernel does not read {said}: here they are zeros, and a submission must not read them either"
        )
    coded = [item["name"] for item in inputs.declared if item.get("dist", {}).get("kind") == "code"]
    if "code" in inputs.kinds:
        notes.append("some inputs are made by the task's own generate_input")
    return document, notes + drawn_apart(coded, "generate_input")


def _texts(task: Mapping[str, Any], file: RawFile, files: Sequence[RawFile]) -> dict[str, str]:
    """Return reference.py and the task's modules that it imports, directly or not, by name. Raises SpecErrors.

    Where one of them may import by a text (`python_source.BY_TEXT`), any module of the task that is at hand may be
    meant, but for those that import reference.py themselves.
    """
    at_hand = {item.path: item for item in files}
    named = sources(task, file.path)
    listed = {name.removesuffix(".py"): name for name in named if name.endswith(".py")}
    own = REFERENCE.removesuffix(".py")
    if own not in listed:
        raise refused(f"{file.path}: files", ", ".join(listed) or "no Python file", "reference.py among them")
    texts: dict[str, str] = {}
    left = [own]
    while left:
        name = listed[module := left.pop()]
        found = at_hand.get(beside(file.path, named[name]))
        if found is None:
            raise refused(f"{file.path}: files, {name}", f"no file {named[name]}", f"it beside {file.path}")
        tree = python_source.parse(found)
        imported = {each for each in python_source.imported(tree) if each in listed}
        if own in imported:
            raise refused(
                found.path, "it imports reference", f"files that do not import {REFERENCE}, which imports them"
            )
        texts[task_inputs.MODULE if module == own else module] = found.text().removeprefix("\ufeff")
        if python_source.reaches_by_text(tree):
            imported |= _at_hand(task, file, at_hand)
        left += [each for each in imported if each != own and each not in texts and each not in left]
    return texts


def _at_hand(task: Mapping[str, Any], file: RawFile, files: Mapping[str, RawFile]) -> set[str]:
    """Return the task's modules that were given and that reference.py can import. Raises SpecErrors."""
    found = {
        name.removesuffix(".py"): python_source.parse(files[path])
        for name, source in sources(task, file.path).items()
        if name.endswith(".py") and name not in NOT_NEEDED and (path := beside(file.path, source)) in files
    }
    own = REFERENCE.removesuffix(".py")
    return {module for module, tree in found.items() if own not in python_source.imported(tree)}


def _names_gpu(tree: ast.Module) -> bool:
    """Check whether what `ref_kernel` needs of reference.py says `.cuda()`, or a device by the name `cuda`."""
    part = parse_module(python_source.needed_for(tree, "ref_kernel", {CHECKER}))
    return any(
        (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cuda")
        or (isinstance(node, ast.Constant) and str(node.value).partition(":")[0] == "cuda")
        for node in ast.walk(part)
    )


def _for_inputs(texts: Mapping[str, str], tree: ast.Module) -> dict[str, str]:
    """Return of the task's modules what `generate_input` needs: each input of each workload may carry it."""
    found = {task_inputs.MODULE: python_source.needed_for(tree, "generate_input", {CHECKER})}
    left = [found[task_inputs.MODULE]]
    while left:
        part = parse_module(left.pop())
        for name in texts if python_source.reaches_by_text(part) else python_source.imported(part):
            if name in texts and name not in found:
                found[name] = texts[name]
                left.append(texts[name])
    return found


def _generators(texts: Mapping[str, str], facts: TaskFacts, calls: Sequence[Mapping[str, Any]], room: int) -> str:
    """Return the source that embeds `texts`, packed where it must be repeated for more than `room` characters."""
    found = embedding(texts)
    leaves = zip(*(workload.inputs for workload in facts.understood), strict=True)
    made = sum(
        any(dist_of(leaf.dist, leaf.dtype) is None for leaf in each if leaf.shape is not None) for each in leaves
    )
    different = len({repr({name: value for name, value in call.items() if name != "seed"}) for call in calls})
    return embedding(texts, packed=True) if len(found) * made * different > room else found


def _shapes(facts: TaskFacts, number: int) -> list[list[int]]:
    return [workload.outputs[number].shape or [] for workload in facts.understood]


def _output_names(names: Sequence[str], count: int) -> list[str]:
    wanted = ["out"] if count == 1 else [f"out_{number}" for number in range(count)]
    return unique([*names, *wanted])[len(names) :]
