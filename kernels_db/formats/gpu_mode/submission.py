"""A GPU MODE submission as a candidate for the op of its task.

`custom_kernel` is called with the data as `run` of the op's reference puts it together for `ref_kernel`, and the same
of its result is taken. What else it returns may only be data that the task writes. The task's own modules lie beside
it, as in the format's own harness.
"""

from __future__ import annotations

import ast

from warpsmith.kernels_db.formats.gpu_mode import task
from warpsmith.kernels_db.formats.gpu_mode.exchange import exchange_of
from warpsmith.kernels_db.formats.gpu_mode.inputs import CLASSES, OBJECT
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.adapted_kernel import Adapted, assembled, require_origin, tuple_of
from warpsmith.kernels_db.formats.shared.files import RawFile, beside, raw_files, refused
from warpsmith.kernels_db.formats.shared.packed import packed
from warpsmith.kernels_db.job.file_objects import SOURCE
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.op import Op

FORMAT = task.FORMAT
EXPECTED = f"a Python file with a function {task.CANDIDATE}(data)"
_FILE = "submission.py"

_BODY = '''
_custom_kernel = _module("submission").custom_kernel
_OUTPUTS = @OUTPUTS@


def _leaves(found, place=()):
    """What is returned, taken apart: tensors and numbers by their places."""
    if isinstance(found, dict):
        items = found.items()
    elif isinstance(found, (tuple, list)):
        items = enumerate(found)
    else:
        return {} if found is None or isinstance(found, str) else {place: found}
    return {inner: leaf for key, item in items for inner, leaf in _leaves(item, (*place, key)).items()}


def _is_part(tensor, written):
    """Whether a tensor lies in memory that the task writes."""
    return isinstance(tensor, torch.Tensor) and any(
        memory.data_ptr() <= tensor.data_ptr() < memory.data_ptr() + max(1, memory.nbytes) for memory in written
    )


def _taken(found, written):
    """Of what is returned, the op's outputs."""
    if _OUTPUTS == [()]:
        return found
    leaves = _leaves(found)
    missing = [place for place in _OUTPUTS if place not in leaves]
    surplus = [place for place in leaves if place not in _OUTPUTS and not _is_part(leaves[place], written)]
    for said, places in (("no", missing), ("a surplus", surplus)):
        if places:
            found, *expected = ("result" + "".join(f"[{key!r}]" for key in place) for place in (places[0], *_OUTPUTS))
            raise ValueError(f"custom_kernel returned {said} {found}, expected {', '.join(expected)}")
    return [leaves[place] for place in _OUTPUTS]


def _call(data, outputs, written):
    found = _custom_kernel(data)
    if outputs:
        _delivered("custom_kernel", _taken(found, written), outputs)
    elif len(written) == 1 and isinstance(found, torch.Tensor) and found.data_ptr() != written[0].data_ptr():
        _delivered("custom_kernel", found, written)
'''


def claim(file: RawFile) -> bool:
    """Check whether a file is such a candidate."""
    if not file.path.endswith(".py"):
        return False
    try:
        return task.CANDIDATE in python_source.defined(python_source.parse(file))
    except SpecErrors:
        return False


def adapt(file: RawFile, op: Op) -> Adapted:
    """Return the candidate. Raises SpecErrors: no `custom_kernel`, or an op of another format."""
    tree = python_source.parse(file)
    if task.CANDIDATE not in python_source.defined(tree):
        raise refused(file.path, f"no function {task.CANDIDATE}", EXPECTED)
    require_origin(op, FORMAT, "a submission")
    data, taken = _exchange(op)
    body = _BODY.replace("@OUTPUTS@", repr(taken))
    if f"{OBJECT}(" in data:
        # The module of an absolute import, as submissions write it: its classes are those that they compare with.
        module = task.REFERENCE.removesuffix(".py")
        body = f'{SOURCE}\n\n{CLASSES} = importlib.import_module("{module}")\n{body}'
    files = _modules(op) | {_FILE: file.text().removeprefix("\ufeff")}
    outputs = [item.name for item in op.outputs]
    written = [item.name for item in op.inputs if item.mutated]
    call = f"_call({data}, {tuple_of(outputs)}, {tuple_of(written)})"
    title = f"{file.path}: {task.CANDIDATE} for the op {op.name}"
    return Adapted(FORMAT, assembled(packed(title, files, _FILE), body, op, call))


def _modules(op: Op) -> dict[str, str]:
    """Return the task's Python files by the names under which they are imported."""
    assert op.origin is not None
    files = raw_files(op.origin)
    tasks = [file for file in files if file.path.endswith((".yml", ".yaml"))]
    if len(tasks) != 1:
        raise refused("op: origin", f"{len(tasks)} YAML files", f"one: {task.EXPECTED}")
    at_hand = {file.path: file for file in files}
    named = task.sources(task.read_task(tasks[0]), tasks[0].path)
    return {
        name: at_hand[place].text().removeprefix("\ufeff")
        for name, source in named.items()
        if name.endswith(".py") and name not in task.NOT_NEEDED and (place := beside(tasks[0].path, source)) in at_hand
    }


Place = tuple[int | str, ...]
"""A path in a result: indices and keys, empty for the result itself."""


def _exchange(op: Op) -> tuple[str, list[Place]]:
    """Return source of a call's data, and the outputs' places in its result.

    The source is in names of the op's inputs. Both are as the importer wrote them into `run` of the reference.
    Raises SpecErrors where a reference has no such `run`.
    """
    expected = "the reference as `warpsmith import` wrote it: a task's data stand in its `run`"
    found = exchange_of(op.reference)
    try:
        if found is None:
            raise ValueError("no run of an import")
        places = _places(found.returned)
    except ValueError:
        raise refused("op: reference", "another run", expected) from None
    if len(places) != len(op.outputs):
        raise refused("op: reference", f"a run that returns {len(places)} results", f"{len(op.outputs)} outputs")
    return ast.unparse(found.data), places


def _places(returned: ast.expr) -> list[Place]:
    """Return the places that an expression takes from `found`.

    Raises ValueError where it takes anything else.
    """
    if isinstance(returned, ast.Constant) and returned.value is None:
        return []
    return [_place(item) for item in (returned.elts if isinstance(returned, ast.Tuple) else [returned])]


def _place(value: ast.expr) -> Place:
    steps: list[int | str] = []
    while isinstance(value, ast.Subscript):
        steps.insert(0, ast.literal_eval(value.slice))
        value = value.value
    if not isinstance(value, ast.Name) or value.id != "found":
        raise ValueError("not taken from what was found")
    return tuple(steps)
