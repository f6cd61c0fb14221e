"""Problems as KernelBook has them: a module of any name, constructed by a list of arguments and a dict of them.

KernelBook (https://huggingface.co/datasets/GPUMODE/KernelBook) has `get_inputs()` as KernelBench does, and
`get_init_inputs()` that returns `[[...], {...}]`: arguments of the constructor, and those by name. The module is the
class that the file's name ends in (`431_Tanh.py`), else the last at the top of the file.
"""

from __future__ import annotations

import ast
import posixpath

from warpsmith.kernels_db.formats.shared import python_source
from warpsmith.kernels_db.formats.shared.files import RawFile

_HELPER = "from _paritybench_helpers import _mock_config\n"
_OWN_HELPER = '''def _mock_config(**settings):
    """Return an object with these attributes, as the helper of that name that the data set was made with."""
    import types

    return types.SimpleNamespace(**settings)


'''
_ADDED = '''

_by_list = get_init_inputs


def get_init_inputs():
    return []


def _constructed_by_list(construct):
    """Construct the module as the problem's get_init_inputs() says."""

    def init(self, *given, **named):
        if type(self).__init__ is Model.__init__ and not (given or named):  # a solution's subclass has it, too
            given, named = _by_list()
        construct(self, *given, **named)

    return init


Model.__init__ = _constructed_by_list(Model.__init__)
'''
_UNDER_ITS_NAME = '''

def _under_its_name(shown):
    return {name}


@_under_its_name
class Model:
    def forward(self, *given):
        """Is that of {name}, which this name stands for."""
        return given
'''
"""A spec's module is a `class Model`; the problem's own may name itself (`super(Net, self)`) and stays as it is."""


def module_of(file: RawFile, tree: ast.Module) -> str | None:
    """Return the name of the class that a problem of this form is about; None for a file that has not the form."""
    functions = python_source.top_level(tree, ast.FunctionDef)
    if not {"get_inputs", "get_init_inputs"} <= functions.keys() or not _returns_list(functions["get_init_inputs"]):
        return None
    classes = python_source.top_level(tree, ast.ClassDef)
    if "Model" in classes:
        return "Model" if _takes(classes["Model"], functions["get_init_inputs"]) else None
    named = posixpath.basename(file.path).removesuffix(".py").partition("_")[2]
    return named if named in classes else next(reversed(classes), None)


def as_problem(text: str, name: str) -> str:
    """Return the text of a problem with the class `name` as KernelBench has it: its module is `Model`."""
    alias = "" if name == "Model" else _UNDER_ITS_NAME.format(name=name)
    return text.replace(_HELPER, _OWN_HELPER).rstrip("\n") + "\n" + alias + _ADDED


def find_forward(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the `forward` of a class or of a base of it in the file; None where it has another's."""
    classes = python_source.top_level(tree, ast.ClassDef)
    left, seen = [name], set()
    while left:
        node = classes.get(each := left.pop(0))
        if node is None or each in seen:
            continue
        seen.add(each)
        for item in reversed(node.body):
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                return item
        left += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return None


def _returns_list(function: ast.FunctionDef) -> bool:
    """Check whether a function returns `[[...], {...}]`."""
    match function.body[-1]:
        case ast.Return(value=ast.List(elts=[ast.List(), ast.Dict()]) | ast.Tuple(elts=[ast.List(), ast.Dict()])):
            return True
    return False


def _takes(model: ast.ClassDef, made: ast.FunctionDef) -> bool:
    """Check whether a constructor takes what a list and a dict hold; KernelBench gives it the two themselves."""
    init = next((item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    match made.body[-1]:
        case ast.Return(value=ast.List(elts=[given, named]) | ast.Tuple(elts=[given, named])) if init is not None:
            taken = init.args
        case _:
            return True
    places = [each.arg for each in (*taken.posonlyargs, *taken.args)][1:]
    names = {each.arg for each in taken.kwonlyargs} | set(places)
    keys = {key.value for key in getattr(named, "keys", []) if isinstance(key, ast.Constant)}
    needed = places[len(getattr(given, "elts", [])) : len(places) - len(taken.defaults)]
    return (taken.vararg is not None or set(needed) <= keys) and (taken.kwarg is not None or keys <= names)
