"""robust-kbench tasks: a Python file with `forward_fn` and `Model`, and a JSON file with its configurations.

    func_forward.py    Model.forward's results
    func_backward.py   the gradients of these, given theirs: of each floating input, then of each parameter, of those
                       on which they depend
    config_*.json      the keywords of get_inputs() and of Model: the first single_* configuration of each kind

A task becomes a module as KernelBench has it (`kernelbench.problem`): its file, followed by the configuration as
`get_inputs()` and `get_init_inputs()` without arguments. The further configurations and `AutogradFunction`, through
which the format calls kernels, stay in `origin`.
"""

from __future__ import annotations

import ast
import keyword
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from warpsmith.kernels_db.formats.kernelbench import problem
from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile, beside, origin_of, refused
from warpsmith.kernels_db.formats.shared.imported_op import Imported
from warpsmith.kernels_db.job.file_analysis import Analyse
from warpsmith.kernels_db.job.strict_json import NotJson, read_strictly
from warpsmith.kernels_db.spec.names import identifier

FORMAT = "robust-kbench"
EXPECTED = "func_forward.py or func_backward.py (Model, forward_fn, get_inputs) and its config_*.json"

KINDS = ("input", "init", "shared")
"""The keywords of get_inputs(), those of Model, and those of both."""

DEEPEST = 8
GRADIENT = "grad_output"

_CONFIGURED = """

# The task's configuration
{sizes}{named_init}
_task_inputs = get_inputs


def get_init_inputs():
    return [{init}]


def get_inputs():
    import torch

    found = _task_inputs({keywords})
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in found]
"""
_NAMED_INIT = """

def _configure_task_model(model):
    from functools import partialmethod

    model.__init__ = partialmethod(model.__init__, {init})


_configure_task_model(Model)
"""
"""Arguments of Model that it takes by name alone: `get_init_inputs()` has those by position."""

_BACKWARD = '''

_forward_inputs = get_inputs


def get_inputs():
    """The inputs, and a gradient for what the module makes of them."""
    import torch

    found = _forward_inputs()
    model = Model(*get_init_inputs())
    model._forward_alone = True
    with torch.no_grad():
        shape = model(*found).shape
    return [*found, torch.randn(tuple(shape))]


def _differentiated(compute):
    """Return the gradients of the floating inputs and of the parameters, given that of the result."""
    import torch

    def is_floating(value):
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    def forward(self, *given):
        if getattr(self, "_forward_alone", False):
            return compute(self, *given)
        *inputs, gradient = given
        with torch.enable_grad():
            inputs = [one.detach().clone().requires_grad_() if is_floating(one) else one for one in inputs]
            parameters = {name: one.detach().clone().requires_grad_() for name, one in self.named_parameters()}
            self._forward_alone = True
            try:
                found = torch.func.functional_call(self, parameters, tuple(inputs))
            finally:
                self._forward_alone = False
            wanted = [*(one for one in inputs if is_floating(one)), *parameters.values()]
            gradients = torch.autograd.grad(found, wanted, gradient, allow_unused=True)
        return tuple(one for one in gradients if one is not None)  # what the result does not depend on has none

    return forward


Model.forward = _differentiated(Model.forward)
'''


def claim(file: RawFile) -> str | None:
    """Say in words why a file belongs to this format; None where nothing shows it."""
    if file.path.endswith(".json"):
        return "single_input_configs" if b'"single_input_configs"' in file.data else None
    names = problem.defined(file)
    is_task = {"Model", "forward_fn", "get_inputs"} <= names and "get_init_inputs" not in names
    return "Model, forward_fn and get_inputs" if is_task else None


def references(files: Sequence[RawFile]) -> list[str]:
    """Return the paths of the configurations that the set's tasks need."""
    return [_configuration_path(file.path) for file in files if _is_task(file)]


def read(files: Sequence[RawFile], analyse: Analyse | None) -> Imported:
    """Read the spec of a task. Raises SpecErrors."""
    file, configuration = task_and_configuration(files)
    tree = python_source.parse(file)
    parameters = problem.parameters_of(problem.find_forward(file, tree, ("get_inputs",)))
    keywords = _configuration(configuration)
    backward = _is_backward(file.path)
    names = [name for name in parameters.names if name != "fn"]
    module = problem.Module(
        file.path,
        identifier(
            posixpath.basename(posixpath.dirname(file.path)) + ("_backward" if backward else ""), "task"
        ).lower(),
        _text(file, tree, keywords, backward=backward),
        problem.Parameters((*names, GRADIENT) if backward else names),
        gradients=backward,
    )
    described = {"description": problem.description(tree), "origin": origin_of(FORMAT, files)}
    notes = ["the first single configuration is the workload; the others stay in origin"]
    if backward:
        notes.append("the results are the gradients of the floating inputs, then of the parameters, in their order")
    return problem.read_module(module, described, notes, analyse)


def task_and_configuration(files: Sequence[RawFile]) -> tuple[RawFile, RawFile]:
    """Return the task among the files, and its configuration. Raises SpecErrors unless there is one of each."""
    tasks = [file for file in files if _is_task(file)]
    if len(tasks) != 1:
        raise refused("files", f"{len(tasks)} tasks", f"one: {EXPECTED}")
    wanted = _configuration_path(tasks[0].path)
    for file in files:
        if file.path == wanted:
            return tasks[0], file
    raise refused("files", f"no {wanted}", EXPECTED)


def setting(files: Sequence[RawFile]) -> tuple[str, str]:
    """Return the name by which the format's results have the task's configuration, and `forward` or `backward`.

    Raises SpecErrors where the files hold no task.
    """
    file, configuration = task_and_configuration(files)
    keywords = _configuration(configuration)
    said = "_".join(f"{name}_{value}" for kind in ("init", "input") for name, value in keywords[kind].items())
    return re.sub(r"[ .=-]", "_", said), "backward" if _is_backward(file.path) else "forward"


def _is_task(file: RawFile) -> bool:
    return file.path.endswith(".py") and claim(file) is not None


def _is_backward(path: str) -> bool:
    return "backward" in posixpath.basename(path)


def _configuration_path(path: str) -> str:
    return beside(path, f"config_{'backward' if _is_backward(path) else 'forward'}.json")


_SIZE = "config_"
"""What leads the name of a size at the module's top: the task may use the name itself."""


def _configuration(file: RawFile) -> dict[str, dict[str, Any]]:
    """Return the keywords of get_inputs() and of Model, by kind. Raises SpecErrors."""
    document = _json(file)
    first: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        field = f"{file.path}: single_{kind}_configs"
        given = document.get(f"single_{kind}_configs", [{}])
        if not isinstance(given, list) or not given or not isinstance(given[0], dict):
            raise refused(field, given, "a list whose first member is an object")
        for name, value in given[0].items():
            if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
                raise refused(field, name, "names of Python parameters")
            if not _is_plain(value):
                raise refused(f"{field}.{name}", value, "a number, a text, null or a list of these")
        first[kind] = given[0]
    return {kind: first[kind] | first["shared"] for kind in ("input", "init")}


def _is_plain(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _json(file: RawFile) -> dict[str, Any]:
    try:
        document = read_strictly(file.text(), DEEPEST)
    except NotJson as error:
        raise refused(file.path, error.found, error.expected) from None
    if not isinstance(document, dict):
        raise refused(file.path, type(document).__name__, "an object with single_input_configs")
    return document


def _text(file: RawFile, tree: ast.Module, keywords: Mapping[str, Mapping[str, Any]], *, backward: bool) -> str:
    """Return the module: the task's file, then its configuration. Raises SpecErrors."""
    inputs = _signature(python_source.top_level(tree, ast.FunctionDef)["get_inputs"])
    model = _model_signature(tree)
    for name in {**keywords["input"], **keywords["init"]}:
        if not inputs.takes(name) and not model.takes(name):
            raise refused(f"{file.path}: get_inputs and Model", name, "only keywords that one of them takes")
    given = {name: value for name, value in keywords["input"].items() if inputs.takes(name)}
    init, named = _init(file, model, keywords["init"])
    sizes = {name: value for name, value in (init | named | given).items() if type(value) is int and value > 1}
    text = _CONFIGURED.format(
        sizes="".join(f"{_SIZE}{name} = {value}\n" for name, value in sizes.items()),
        named_init=_NAMED_INIT.format(init=_by_name(named, sizes)) if named else "",
        init=", ".join(_said(name, value, sizes) for name, value in init.items()),
        keywords=_by_name(given, sizes),
    )
    return file.text().removeprefix("\ufeff").rstrip("\n") + "\n" + text + (_BACKWARD if backward else "")


def _by_name(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={_said(name, value, sizes)}" for name, value in arguments.items())


def _said(name: str, value: Any, sizes: Mapping[str, int]) -> str:
    return f"{_SIZE}{name}" if sizes.get(name) == value and type(value) is int else repr(value)


def _init(file: RawFile, model: _Signature, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of Model: by position, in order and with the defaults between them, and by name alone.

    Raises SpecErrors.
    """
    for name, default in {**model.positional, **model.named}.items():
        if default is None and name not in given:
            raise refused(f"{file.path}: Model", f"no value for {name}", "one in the configuration, or a default")
    last = max((number for number, name in enumerate(model.positional) if name in given), default=-1)
    arguments: dict[str, Any] = {}
    for name, default in list(model.positional.items())[: last + 1]:
        if name in given:
            arguments[name] = given[name]
            continue
        assert default is not None
        try:
            arguments[name] = ast.literal_eval(default)
        except (ValueError, TypeError):
            raise refused(f"{file.path}: Model", f"{name}={ast.unparse(default)}", "a literal default") from None
    named = {name: value for name, value in given.items() if model.takes(name) and name not in model.positional}
    return arguments, named


class _Signature(NamedTuple):
    """The parameters of a function that may be given by position, and those by name alone, each with its default.

    any_name: it takes others by name, too.
    """

    positional: dict[str, ast.expr | None]
    named: dict[str, ast.expr | None]
    any_name: bool

    def takes(self, name: str) -> bool:
        return self.any_name or name in self.positional or name in self.named


def _model_signature(tree: ast.Module) -> _Signature:
    """Return what Model takes, without `self`."""
    model = python_source.top_level(tree, ast.ClassDef)["Model"]
    found = [node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not found:
        return _Signature({}, {}, any_name=False)
    signature = _signature(found[-1])
    signature.positional.pop("self", None)
    return signature


def _signature(function: ast.FunctionDef) -> _Signature:
    arguments = function.args
    names = [item.arg for item in [*arguments.posonlyargs, *arguments.args]]
    defaults = arguments.defaults
    positional = dict(zip(names, [*[None] * (len(names) - len(defaults)), *defaults], strict=True))
    named = dict(zip([item.arg for item in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
    return _Signature(positional, named, any_name=arguments.kwarg is not None)
