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
import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.formats.gpu_mode import inputs as task_inputs
from warpsmith.kernels_db.formats.gpu_mode.axes import Axes
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.embedded import embedding
from warpsmith.kernels_db.formats.shared.facts import MOST_WORKLOADS, TaskFacts, TaskWorkload, asked
from warpsmith.kernels_db.formats.shared.files import RawFile, beside, origin_of, refused
from warpsmith.kernels_db.formats.shared.imported_op import Imported, drawn_apart
from warpsmith.kernels_db.formats.shared.tensors import dist_of
from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.job.file_analysis import Analyse, AnalysisFailed
from warpsmith.kernels_db.spec.basic_types import MAX_ITEMS, MAX_PYTHON, MAX_TENSORS
from warpsmith.kernels_db.spec.document import read_document
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.names import identifier, unique

FORMAT = "gpu-mode"
CANDIDATE = "custom_kernel"
CHECKER = "check_implementation"
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
    texts = _texts(task, file, files)
    where = f"{file.path}: {REFERENCE}"
    tree = python_source.parse(RawFile(where, texts[task_inputs.MODULE].encode("utf-8")))
    functions = python_source.top_level(tree, ast.FunctionDef)
    missing = [name for name in ("generate_input", "ref_kernel") if name not in functions]
    if missing:
        raise refused(where, f"no {' and no '.join(missing)}", "functions generate_input and ref_kernel")
    calls = _calls(task, file.path)
    text = embedding(texts)
    request = {
        "task": "task",
        "text": text,
        "reference": task_inputs.MODULE,
        "workloads": [call for _, _, call in calls],
    }
    facts, sandbox = _asked(analyse, request, where, len(calls))
    too_much = [name for (name, _, _), found in zip(calls, facts.workloads, strict=True) if found is None]
    calls = [call for call in calls if call[0] not in too_much]
    unlike = _unlike(facts, calls, where)
    alike = [found for found, (name, _, _) in zip(facts.understood, calls, strict=True) if name not in unlike]
    facts = facts.model_copy(update={"workloads": alike})
    calls = _timed([call for call in calls if call[0] not in unlike])
    names = task_inputs.names(facts, functions["ref_kernel"])
    taken = [
        number for number, alias in enumerate(facts.understood[0].aliases) if alias not in facts.understood[0].written
    ]
    axes = Axes([call for _, _, call in calls], where)
    arguments = [call for _, _, call in calls]
    generators = _generators(_for_inputs(texts, tree), facts, arguments, MAX_PYTHON - 2 * len(text))
    free = task_inputs.unread(facts, functions["ref_kernel"])
    inputs = task_inputs.inputs(facts, names, axes, generators, functions["generate_input"], arguments, free)
    tolerance, doubt = _tolerance(tree, where)
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
        "reference": text + task_inputs.run(facts, names, taken, names_gpu=_names_gpu(tree)),
        "workloads": [
            {"id": name, "role": role, "axes": axes.sizes(number), "inputs": inputs.overrides[number]}
            for number, (name, role, _) in enumerate(calls)
        ],
        "axes": axes.declared(),
        "origin": origin_of(FORMAT, files),
    }
    named = {file.path, *(beside(file.path, source) for source in sources(task, file.path).values())}
    notes = [f"kept in origin, and not part of the op: {item.path}" for item in files if item.path not in named] + doubt
    if too_much:
        notes.append(f"left out, for they take more than the sandbox gives: {', '.join(too_much)}")
    if unlike:
        notes.append(
            "left out, for they differ from the others in structure, texts, dtypes, ranks or what is written: "
            + ", ".join(unlike)
        )
    if free:
        said = ", ".join(names[number] for number in sorted(free))
        notes.append(
            f"ref_kernel does not read {said}: here they are zeros, and a submission must not read them either"
        )
    coded = [item["name"] for item in inputs.declared if item.get("dist", {}).get("kind") == "code"]
    if "code" in inputs.kinds:
        notes.append("some inputs are made by the task's own generate_input")
    notes += drawn_apart(coded, "generate_input")
    return Imported(document, notes, sandbox)


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
            raise refused(f"{file.path}: files, {name}", f"no file {named[name]}", "the file among those of the import")
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
    part = ast.parse(python_source.needed_for(tree, "ref_kernel", {CHECKER}))
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
        part = ast.parse(left.pop())
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


def _calls(task: Mapping[str, Any], path: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Return id, role and arguments of each workload.

    A task without benchmarks is timed on its tests.
    """
    listed = {key: task.get(key) or [] for key in ("tests", "benchmarks")}
    for key, items in listed.items():
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise refused(f"{path}: {key}", items, "a list of the arguments of generate_input")
    calls = [(f"test-{n}", "test", dict(item)) for n, item in enumerate(listed["tests"])]
    calls += [(f"benchmark-{n}", "bench", dict(item)) for n, item in enumerate(listed["benchmarks"])]
    if not 1 <= len(calls) <= MOST_WORKLOADS:
        raise refused(f"{path}: tests, benchmarks", f"{len(calls)} entries", f"1 to {MOST_WORKLOADS} in all")
    for name, _, arguments in calls:
        if not all(_is_argument(value) for value in arguments.values()):
            raise refused(f"{path}: {name}", arguments, "arguments that are numbers, texts or lists of these")
    return _timed(calls)


def _is_argument(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_ITEMS and not any(isinstance(item, list) or not _is_argument(item) for item in value)
    return isinstance(value, bool | int | float | str) or value is None


def _timed(calls: list[tuple[str, str, dict[str, Any]]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the calls, all of them as benchmarks where none is one."""
    timed = any(role == "bench" for _, role, _ in calls)
    return calls if timed else [(name, "bench", call) for name, _, call in calls]


def _asked(analyse: Analyse | None, request: Mapping[str, Any], where: str, calls: int) -> tuple[TaskFacts, str]:
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


def _unlike(facts: TaskFacts, calls: Sequence[tuple[str, str, dict[str, Any]]], where: str) -> list[str]:
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


def _shapes(facts: TaskFacts, number: int) -> list[list[int]]:
    return [workload.outputs[number].shape or [] for workload in facts.understood]


def _output_names(names: Sequence[str], count: int) -> list[str]:
    wanted = ["out"] if count == 1 else [f"out_{number}" for number in range(count)]
    return unique([*names, *wanted])[len(names) :]


def _tolerance(tree: ast.Module, where: str) -> tuple[dict[str, float] | None, list[str]]:
    """Return rtol and atol of `check_implementation`, or None, and notes.

    They are taken where it, or a function that it names in the file, gives a call both as numbers. Two different
    pairs are no tolerance. Raises SpecErrors where a number is none.
    """
    pairs = {
        (_finite(rtol, f"{where}: rtol"), _finite(atol, f"{where}: atol"))
        for call in _calls_under(tree, CHECKER)
        if (rtol := _number(call, "rtol")) is not None and (atol := _number(call, "atol")) is not None
    }
    if len(pairs) > 1:
        said = "; ".join(f"rtol={rtol:g}, atol={atol:g}" for rtol, atol in sorted(pairs))
        return None, [f"the checker has several tolerances ({said}), and the op none of them"]
    return next(({"rtol": rtol, "atol": atol} for rtol, atol in pairs), None), []


def _calls_under(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the calls in a name's top-level definitions, and in those of the names in these."""
    definitions: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for defined in python_source.bound(statement):
            definitions.setdefault(defined, []).append(statement)
    left, seen = [name], {name, "ref_kernel", "generate_input"}  # which compute, and check nothing
    while left:
        for statement in definitions.get(left.pop(), []):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    yield node
                elif isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    left.append(node.id)


def _number(call: ast.Call, name: str) -> int | float | None:
    """Return a keyword argument where it is written as a number."""
    for item in call.keywords:
        if item.arg == name and isinstance(item.value, ast.Constant):
            value = item.value.value
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def _finite(value: Any, field: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise refused(field, value, "a finite number")
    return number
