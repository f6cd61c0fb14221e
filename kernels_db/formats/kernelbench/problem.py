"""KernelBench problems: a Python file with `Model`, `get_inputs` and `get_init_inputs`.

    Model.forward's parameters   inputs, of the shapes, dtypes and distributions of get_inputs()
    get_init_inputs()            init
    parameters and buffers       state: candidates are given them, so nothing need be reseeded for weights to match
    the file                     reference, and origin

Problems as KernelBook has them become such files (`kernelbook`).

A problem has one shape, so the spec has one workload. Integers stay integers. The format has no tolerance.

The reference keeps the class of the file, which may name itself (`super(Model, self)`): its methods are replaced, not
the class. A spec counts as imported once its reference was seen to compute what the file's module computes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from warpsmith.kernels_db.formats.kernelbench import added_source, kernelbook
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.embedded import packed_source
from warpsmith.kernels_db.formats.shared.facts import ConstantInput, ModuleFacts, ReferenceFacts, StateLeaf, asked
from warpsmith.kernels_db.formats.shared.files import RawFile, origin_of, refused, stem
from warpsmith.kernels_db.formats.shared.imported_op import Imported, drawn_apart
from warpsmith.kernels_db.formats.shared.source_room import SourceRoom
from warpsmith.kernels_db.formats.shared.tensors import dist_of, is_contiguous
from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.job.file_constants import with_constants
from warpsmith.kernels_db.job.file_sizes import with_sizes
from warpsmith.kernels_db.spec.basic_types import MAX_PYTHON
from warpsmith.kernels_db.spec.dist import Code
from warpsmith.kernels_db.spec.document import MAX_BYTES
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.names import identifier, unique
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.spec.resolve import reference_source, resolve_workload

FORMAT = "kernelbench"
CANDIDATE = "ModelNew"
EXPECTED = "a Python file with a class Model, get_inputs() and get_init_inputs()"

MOST_LISTED = 8
"""Names that a note says; of further ones it says how many."""


@dataclass(frozen=True)
class Parameters:
    """The inputs of a `forward` by name; `more`: the name of those beyond them, where it takes any number."""

    names: Sequence[str]
    more: str | None = None


@dataclass(frozen=True)
class Module:
    """A module with its inputs: `text` defines `Model`, `get_inputs` and `get_init_inputs`.

    `path` names it in errors, `name` is the op's. `gradients`: its results are gradients, and need not depend on every
    parameter.
    """

    path: str
    name: str
    text: str
    parameters: Parameters
    gradients: bool = False


def claim(file: RawFile) -> str | None:
    """Say in words why a file is such a problem; None where nothing shows it."""
    names = defined(file)
    if "forward_fn" in names and "get_init_inputs" not in names:
        return None  # a task of robust-kbench
    found = [name for name in ("Model", "get_inputs", "get_init_inputs", CANDIDATE) if name in names]
    return " and ".join(found) if set(found) - {"Model"} else None


def defined(file: RawFile) -> set[str]:
    """Return the names that a Python file binds.

    There are none of any other file, or of one that does not parse.
    """
    if not file.path.endswith(".py"):
        return set()
    try:
        return python_source.defined(python_source.parse(file))
    except SpecErrors:
        return set()


def is_constructed(reference: str) -> bool:
    """Check whether a spec's reference calls `get_init_inputs` itself.

    It does so because JSON cannot carry the result.
    """
    return any(
        mark in reference for mark in (added_source.CONSTRUCTED.strip().partition("\n")[0], "\n_Constructed = Model\n")
    )


def references(files: Sequence[RawFile]) -> list[str]:
    """Return the paths of further files that the set names: none, a problem is one file."""
    return []


def read(files: Sequence[RawFile], analyse: Analyse | None) -> Imported:
    """Read the spec of a problem, and see its reference compute as the problem does. Raises SpecErrors."""
    problems = [file for file in files if "get_inputs" in defined(file)]
    candidates = [file.path for file in files if file not in problems and CANDIDATE in defined(file)]
    if len(problems) != 1 or len(files) != 1 + len(candidates):
        paths = ", ".join(file.path for file in files[:5])
        raise refused("files", f"{len(problems)} problems in {paths}", f"one problem: {EXPECTED}")
    file = problems[0]
    tree = python_source.parse(file)
    text = file.text().removeprefix("\ufeff")
    name = kernelbook.module_of(file, tree)
    if name is None:
        named = _forward_parameters(file, tree)  # what is no problem is refused before anything of it runs
    else:
        forward = kernelbook.find_forward(tree, name)
        named = Parameters((), "x") if forward is None else parameters_of(forward)
        text = kernelbook.as_problem(text, name)
    module = Module(file.path, identifier(stem(file.path), "problem").lower(), text, named)
    described = {"description": description(tree, name or "Model"), "origin": origin_of(FORMAT, files)}
    notes = [f"kept in origin, and not part of the op: {path} with a {CANDIDATE}" for path in candidates]
    return read_module(module, described, notes, analyse)


def read_module(module: Module, described: dict[str, Any], notes: list[str], analyse: Analyse | None) -> Imported:
    """Read the spec of a module with its inputs, and see its reference compute as the module does.

    `described`: the spec's description and origin. Raises SpecErrors.
    """
    facts, sandbox = asked(analyse, {"task": "module", "text": module.text}, ModuleFacts, module.path)
    if facts.constants:
        module, said = _with_constants(module, facts.constants)
        notes.append(f"part of the op, for they are no tensors or numbers: {said}")
    document = _fitting(module, facts, len(json.dumps(described))) | described
    coded = [item["name"] for item in document["inputs"] if item.get("dist", {}).get("kind") == "code"]
    notes += drawn_apart(coded, "get_inputs")
    if facts.written.state:
        changed = _listed(facts.written.state)
        notes.append(f"a call changes the module's own {changed}; as in KernelBench, only what it returns is checked")
    if plain := [leaf.attribute for leaf in facts.state if leaf.plain]:
        notes.append(f"the module keeps {_listed(plain)} as plain tensors; here they are state, as buffers are")
    sizes, compared, small = {}, module, None
    if facts.small is not None:
        sizes = facts.small.sizes
        try:
            compared = replace(module, text=with_sizes(module.text, sizes))
        except ValueError as error:
            raise refused(module.path, str(error), "sizes that the file sets at its top") from None
        small = _fitting(compared, facts.small.facts)
    found = _compared(analyse, compared, document, small)
    if found.compared == "shapes":
        notes.append("too large to be run as the problem does: only shapes and dtypes of its results were compared")
    else:
        said = ", ".join(f"{name} {size}" for name, size in sizes.items())
        notes.append(f"compared with the problem on values, with {said or 'its own sizes'}")
    floats = {leaf.attribute for leaf in facts.state if is_float(leaf.dtype)}
    unread = floats.intersection(found.unread)
    if free := _zeroed(document, unread):
        notes.append(f"whatever the values of {_listed(free)}, the results are the same: here they are zeros")
    if small is not None:
        _zeroed(small, unread)
    return Imported(document, notes, sandbox, sizes, small)


def _with_constants(module: Module, constants: Sequence[ConstantInput]) -> tuple[Module, str]:
    """Return a module that has these inputs as values of its own, and what they are in words. Raises SpecErrors."""
    names = list(module.parameters.names)
    by_position = {item.position: item.source for item in constants}
    beyond = [position for position in by_position if position >= len(names)]
    if beyond:
        found = f"a value that is no tensor or number at position {beyond[0]}"
        raise refused(f"{module.path}: get_inputs", found, f"such values among the {len(names)} that forward names")
    left = tuple(name for position, name in enumerate(names) if position not in by_position)
    said = ", ".join(f"{names[position]} {source}" for position, source in by_position.items())
    text = with_constants(module.text, by_position)
    return replace(module, text=text, parameters=replace(module.parameters, names=left)), said


def _listed(names: Sequence[str]) -> str:
    """Return names as a note says them: a deep network has hundreds."""
    more = [f"{len(names) - MOST_LISTED} more"] if len(names) > MOST_LISTED else []
    return ", ".join([*names[:MOST_LISTED], *more])


def _zeroed(document: dict[str, Any], unread: Collection[str]) -> list[str]:
    """Make zeros of the state at these attributes that a spec draws; return which it drew."""
    free = [item for item in document["state"] if item["attribute"] in unread and item["dist"]["kind"] != "constant"]
    for item in free:
        item["dist"] = {"kind": "constant", "value": 0.0}
    return [item["attribute"] for item in free]


def _fitting(module: Module, facts: ModuleFacts, beside: int = 0) -> dict[str, Any]:
    """Return the spec of a module, but for its description and origin of `beside` bytes.

    Where a spec has no room for it, its generators are the text without comments and docstrings; where it has none
    for that either, that compressed. Raises SpecErrors where there is no room at all.
    """
    for shorter in (str, python_source.without_comments):
        try:
            document = _document(module, facts, shorter(module.text))
            if len(json.dumps(document)) + beside < MAX_BYTES and _python_in(document) <= MAX_PYTHON:
                return document
        except SpecErrors:
            continue  # the error of the shortest is raised, if it has one
    return _document(module, facts, packed_source(python_source.without_comments(module.text)))


def _python_in(document: Mapping[str, Any]) -> int:
    """Return how many characters of Python a spec has."""
    drawn = [item.get("dist") or {} for item in [*document["inputs"], *document["state"]]]
    return len(document["reference"]) + sum(len(dist.get("source", "")) for dist in drawn)


def _document(module: Module, facts: ModuleFacts, generating: str) -> dict[str, Any]:
    """Return the spec of a module; `generating` is what its generators carry."""
    code = _Code(generating)
    names = _input_names(module, len(facts.inputs))
    return {
        "schema_version": 1,
        "name": module.name,
        "inputs": _inputs(code, names, facts),
        "outputs": [
            {"name": name, "shape": leaf.shape, "dtype": leaf.dtype}
            for name, leaf in zip(_output_names(names, facts), facts.outputs, strict=True)
        ],
        "reference": _reference(module.text, names, facts),
        "init": facts.init or [],
        "state": [_state(code, name, leaf) for name, leaf in zip(_state_names(names, facts), facts.state, strict=True)],
        "workloads": [{"id": "problem", "role": "bench"}],
    }


def _compared(
    analyse: Analyse | None, module: Module, document: dict[str, Any], small: dict[str, Any] | None
) -> ReferenceFacts:
    """Have the reference of a spec compared with the module, on values with small sizes where those are known.

    `module` has the sizes of `small`, which is its spec; without, those of `document`. Raises SpecErrors where the
    reference computes something else.
    """
    whole = parse_op(document)
    compared = whole if small is None else parse_op(small)
    request = {
        "task": "reference",
        "text": module.text,
        "gradients": module.gradients,
        "reference": reference_source(compared),
        "state": [item.attribute for item in compared.state],
        "mutated": [position for position, item in enumerate(compared.inputs) if item.mutated],
        "together": sum(isinstance(item.dist, Code) for item in compared.inputs) > 1,
        "workload": resolve_workload(compared, compared.workloads[0]),
        "whole": {"reference": reference_source(whole), "workload": resolve_workload(whole, whole.workloads[0])},
    }
    return asked(analyse, request, ReferenceFacts, module.path)[0]


def _reference(text: str, names: Sequence[str], facts: ModuleFacts) -> str:
    """Return the file, followed by the code that the spec's way to call a module needs."""
    parameters, added = ", ".join(names), ""
    if facts.init is None:
        added += added_source.CONSTRUCTED
    if any(leaf.plain for leaf in facts.state):
        added += added_source.REGISTERED
    if facts.written.state:
        # Without values not every write is seen: one buffer of a module represents all of it.
        owners = tuple(dict.fromkeys(name.rpartition(".")[0] for name in facts.written.state))
        added += added_source.KEEPING.format(parameters=parameters, owners=owners)
    return text.rstrip("\n") + "\n" + added if added else text


def _forward_parameters(file: RawFile, tree: ast.Module) -> Parameters:
    return parameters_of(find_forward(file, tree, ("get_inputs", "get_init_inputs")))


def parameters_of(forward: ast.FunctionDef) -> Parameters:
    """Return the names of the inputs that a method `forward` takes."""
    more = forward.args.vararg
    return Parameters(tuple(python_source.parameters(forward)[1:]), None if more is None else more.arg)


def find_forward(file: RawFile, tree: ast.Module, needed: Sequence[str]) -> ast.FunctionDef:
    """Find `Model.forward` in a file that must have the functions `needed`, too. Raises SpecErrors."""
    model = python_source.top_level(tree, ast.ClassDef).get("Model")
    functions = python_source.top_level(tree, ast.FunctionDef)
    missing = [name for name in needed if name not in functions]
    missing += ["class Model"] if model is None else []
    if missing or model is None:
        raise refused(file.path, f"no {' and no '.join(missing)}", EXPECTED)
    found = [node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    if not found:
        raise refused(f"{file.path}: Model", "no method forward", "forward(self, ...) with a parameter for each input")
    return found[-1]


def _input_names(module: Module, count: int) -> list[str]:
    names = list(module.parameters.names)
    if module.parameters.more is not None:
        names += [f"{module.parameters.more}_{number}" for number in range(count - len(names))]
    if not 1 <= count <= len(names):
        raise refused(
            f"{module.path}: get_inputs", f"{count} inputs", f"1 to {len(names)}, as Model.forward takes them"
        )
    return unique(identifier(name, "x") for name in names[:count])


def _output_names(inputs: Sequence[str], facts: ModuleFacts) -> list[str]:
    count = len(facts.outputs)
    wanted = ["out"] if count == 1 else [f"out_{number}" for number in range(count)]
    return unique([*inputs, *wanted])[len(inputs) :]


def _state_names(inputs: Sequence[str], facts: ModuleFacts) -> list[str]:
    taken = [*inputs, *_output_names(inputs, facts)]
    return unique([*taken, *(identifier(leaf.attribute, "state") for leaf in facts.state)])[len(taken) :]


def _inputs(code: _Code, names: Sequence[str], facts: ModuleFacts) -> list[dict[str, Any]]:
    found = []
    for number, (name, leaf) in enumerate(zip(names, facts.inputs, strict=True)):
        item: dict[str, Any] = {"name": name, "dtype": leaf.dtype}
        if leaf.shape is None:
            found.append(item | {"value": leaf.value})
            continue
        item["shape"] = leaf.shape
        item["dist"] = dist_of(leaf.dist, leaf.dtype) or code.made_by(added_source.INPUT.format(number=number))
        if not is_contiguous(leaf.shape, leaf.strides):
            item["strides"] = leaf.strides
        if number in facts.written.inputs:
            item["mutated"] = True
        found.append(item)
    return found


def _state(code: _Code, name: str, leaf: StateLeaf) -> dict[str, Any]:
    make = (added_source.PLAIN if leaf.plain else added_source.STATE).format(name=leaf.attribute)
    dist = dist_of(leaf.dist, leaf.dtype) or code.made_by(make)
    return {"name": name, "attribute": leaf.attribute, "shape": leaf.shape, "dtype": leaf.dtype, "dist": dist}


class _Code:
    """Distributions that the file itself makes."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip("\n") + "\n"
        self._room = SourceRoom()

    def made_by(self, make: str) -> dict[str, Any]:
        """Return a distribution by this function, after the file's text."""
        return self._room.code(self._text, make)


def description(tree: ast.Module, name: str = "Model") -> str:
    """Return the docstring of the class `name`, as much as a spec takes."""
    model = python_source.top_level(tree, ast.ClassDef)[name]
    return (ast.get_docstring(model) or "")[:4000]
