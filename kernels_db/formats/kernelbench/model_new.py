"""A KernelBench `ModelNew` as a candidate for the op of its problem.

It is constructed once, as its file is loaded, with the arguments of the problem's `get_init_inputs`. KernelBench has
weights match by seeding before both constructors; here every call brings the weights. A tensor of the op's state goes
to the parameter or buffer of the same name, shape and dtype, and what is left to parameters of the same shape and
dtype, in order: a state has its parameters first. A parameter is pointed at its tensor; a buffer, which a call may
change, gets a copy within the call. What a constructor makes of its own weights is not made again. Inputs of the
problem that are no tensors or numbers are no inputs of its op: a call has them where the problem has them.
"""

from __future__ import annotations

from typing import Any

from warpsmith.kernels_db.formats.kernelbench import problem
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.adapted_kernel import Adapted, assembled, require_origin, tuple_of
from warpsmith.kernels_db.formats.shared.files import RawFile, raw_files, refused
from warpsmith.kernels_db.formats.shared.packed import packed
from warpsmith.kernels_db.job.file_constants import all_inputs, constants_of
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.resolve import resolve_workload

FORMAT = problem.FORMAT
EXPECTED = f"a Python file with a class {problem.CANDIDATE}"
_FILE, _PROBLEM = "model_new.py", "problem.py"

_BODY = '''
_STATE = @STATE@


def _places(model):
    """What of the model stands for each tensor of the op's state; None where nothing does."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    kinds = {name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for name, tensor in own.items()}
    places = {name: name for name, *kind in _STATE if kinds.get(name) == tuple(kind)}
    left = [name for name in own if name not in places and isinstance(own[name], torch.nn.Parameter)]
    for name in left:
        alike = [other for other in left if kinds[other] == kinds[name]]
        wanted = [state for state, *kind in _STATE if state not in places and tuple(kind) == kinds[name]]
        if name in places.values():
            continue
        if len(alike) > len(wanted):
            known = ", ".join(f"{state} {kind}" for state, *kind in _STATE) or "none"
            raise ValueError(
                f"ModelNew.{name}: found a parameter of shape and dtype {kinds[name]}, expected the parameters of the "
                f"problem's Model: {known}"
            )
        places |= dict(zip(wanted, alike))
    return [own[places[name]] if name in places else None for name, *_ in _STATE]


_model = _module("model_new").ModelNew(*@INIT@)
if torch.cuda.is_available() and torch.cuda.is_initialized():
    _model = _model.cuda()
_model.requires_grad_(False)
_held = _places(_model)


def _call(inputs, state, outputs):
    with torch.no_grad():
        for place, tensor in zip(_held, state):
            if isinstance(place, torch.nn.Parameter):
                place.data = tensor
            elif place is not None:
                place.copy_(tensor)
        returned = _model(*inputs)
        if outputs:
            _delivered("ModelNew.forward", returned, outputs)
'''


def claim(file: RawFile) -> bool:
    """Check whether a file is such a candidate."""
    return problem.CANDIDATE in problem.defined(file)


def adapt(file: RawFile, op: Op) -> Adapted:
    """Return the candidate. Raises SpecErrors: no `ModelNew`, or an op of another format."""
    if problem.CANDIDATE not in python_source.defined(python_source.parse(file)):
        raise refused(file.path, f"no class {problem.CANDIDATE}", EXPECTED)
    require_origin(op, FORMAT, f"a {problem.CANDIDATE}")
    files = {_FILE: file.text().removeprefix("\ufeff")}
    if problem.is_constructed(op.reference):  # its arguments are no JSON: the problem itself says them
        files[_PROBLEM] = _problem(op)
        init = '_module("problem").get_init_inputs()'
    else:
        init = repr(list(op.init or ()))
    body = _BODY.replace("@INIT@", init).replace("@STATE@", _state(op))
    inputs = all_inputs([item.name for item in op.inputs], constants_of(op.reference))
    state, outputs = ([item.name for item in items] for items in (op.state, op.outputs))
    call = f"_call({tuple_of(inputs)}, {tuple_of(state)}, {tuple_of(outputs)})"
    title = f"{file.path}: {problem.CANDIDATE} for the op {op.name}"
    return Adapted(FORMAT, assembled(packed(title, files, _FILE), body, op, call), _notes(op))


def _problem(op: Op) -> str:
    assert op.origin is not None
    found = [file for file in raw_files(op.origin) if "get_init_inputs" in problem.defined(file)]
    if len(found) != 1:
        raise refused("op: origin", f"{len(found)} problems", f"one: {problem.EXPECTED}")
    return found[0].text().removeprefix("\ufeff")


def _state(op: Op) -> str:
    """Return attribute, shape and dtype of each tensor of the state, as Python source."""
    bound: dict[str, Any] = {item["name"]: item for item in resolve_workload(op, op.workloads[0])["inputs"]}
    rows = [(item.attribute, tuple(bound[item.name]["shape"]), item.dtype) for item in op.state]
    return "[\n" + "".join(f"    {row!r},\n" for row in rows) + "]" if rows else "[]"


def _notes(op: Op) -> tuple[str, ...]:
    if not op.state:
        return ()
    return ("weights come with every call: what ModelNew's constructor makes of its own is not made again",)
