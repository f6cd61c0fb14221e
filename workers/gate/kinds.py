"""The kind of each value in host code: a tensor and its dtype, an int, a float.

Like `tensors` this follows names, not values: a name has the kind that all of its assignments agree on, and none where
they do not. An unknown kind is never held against a candidate.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.scope import Scope

_SPELLED = {
    "int": "an int",
    "ints": "a shape",
    "map": "a tensor map",
    "None": "None",
    "sequence": "a tuple or list",
    "text": "a string",
}


@dataclass(frozen=True)
class Kind:
    """The kind of a value.

    `word`: tensor, int, float, number (one of the two), bool, None, text, ints (a shape), map (a tensor map),
    sequence; "" before anything is known, "?" where there is no telling. dtype: of a tensor, where it is known.
    """

    word: str
    dtype: str | None = None

    def __str__(self) -> str:
        if self.word == "tensor":
            return f"a tensor of {self.dtype}" if self.dtype else "a tensor"
        return _SPELLED.get(self.word, f"a {self.word}")


UNSET, UNKNOWN = Kind(""), Kind("?")
TENSOR, INT, FLOAT, NUMBER, BOOL = (Kind(word) for word in ("tensor", "int", "float", "number", "bool"))
NONE, TEXT, INTS, MAP, SEQUENCE = (Kind(word) for word in ("None", "text", "ints", "map", "sequence"))
_NUMBERS = (INT, FLOAT, NUMBER, BOOL)
_WHOLE_MATH = frozenset(f"math.{name}" for name in ("ceil", "floor", "trunc", "isqrt", "gcd", "lcm", "comb"))
_OPEN_MATH = frozenset({"math.prod", "math.frexp", "math.modf", "math.ldexp"})
_SPLITS = frozenset({"chunk", "split", "tensor_split", "unbind"})
_SHORT_DTYPES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
}


def joined(first: Kind, second: Kind) -> Kind:
    """Return the kind of a value that has one or the other."""
    if second in (first, UNSET):
        return first
    if first == UNSET:
        return second
    words = {first.word, second.word}
    if words == {"tensor"}:
        return TENSOR
    if words == {"tensor", "None"}:  # a pointer takes both, a number neither
        return first if first.word == "tensor" else second
    if words == {"int", "bool"}:
        return INT
    return NUMBER if words <= {"int", "float", "number", "bool"} else UNKNOWN


class Kinds:
    """The kinds of a candidate's names, by function."""

    def __init__(self, scope: Scope, given: Mapping[str, Kind], library: frozenset[str]) -> None:
        """`given` are the kinds of run's parameters; those it lacks are not known."""
        self.scope = scope
        self.library = library
        self.names: dict[tuple[str, str], Kind] = {}
        self.returned: dict[str, Kind] = dict.fromkeys(scope.functions, UNSET)
        self._constants: dict[str, Kind] = {}
        self.changed = True
        run = scope.functions["run"].args
        for argument in (*run.posonlyargs, *run.args):
            self._set("run", argument.arg, given.get(argument.arg, UNKNOWN))
        while self.changed:
            self.changed = False
            for function in scope.functions.values():
                self._read(function)

    def of(self, here: str, node: ast.expr | None) -> Kind:
        """Return the kind of an expression in function `here`.

        UNKNOWN also for names that nothing assigns.
        """
        found = self._of(here, node)
        return UNKNOWN if found == UNSET else found

    def _set(self, here: str, name: str, kind: Kind) -> None:
        earlier = self.names.get((here, name), UNSET)
        later = joined(earlier, kind)
        if later != earlier:
            self.names[here, name] = later
            self.changed = True

    def _read(self, function: ast.FunctionDef) -> None:
        here = function.name
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(here, target, node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self._bind(here, node.target, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                left = self.names.get((here, node.target.id), UNSET)
                self._set(here, node.target.id, _arithmetic(node.op, left, self._of(here, node.value)))
            elif isinstance(node, (ast.For, ast.comprehension)):
                self._bind_kind(here, node.target, self._element(here, node.iter))
            elif isinstance(node, ast.Return):
                value = NONE if node.value is None else self._of(here, node.value)
                later = joined(self.returned[here], value)
                self.changed |= later != self.returned[here]
                self.returned[here] = later
            elif isinstance(node, ast.Call):
                self._pass(here, node)

    def _bind(self, here: str, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            plain = not any(isinstance(part, ast.Starred) for part in target.elts)
            if plain and isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
                for part, source in zip(target.elts, value.elts, strict=True):
                    self._bind(here, part, source)
                return
            kind = self._of(here, value)
            element = INT if kind == INTS else kind if kind == UNSET else UNKNOWN
            for part in target.elts:
                self._bind_kind(here, part, element)
        else:
            self._bind_kind(here, target, self._of(here, value))

    def _bind_kind(self, here: str, target: ast.expr, kind: Kind) -> None:
        if isinstance(target, ast.Name):
            self._set(here, target.id, kind)
        elif isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    self._set(here, part.id, UNKNOWN)

    def _element(self, here: str, iterable: ast.expr) -> Kind:
        """Return the kind that a loop over `iterable` gives."""
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range":
            return INT
        kind = self._of(here, iterable)
        return INT if kind == INTS else kind if kind.word in ("", "tensor") else UNKNOWN

    def _pass(self, here: str, call: ast.Call) -> None:
        """Carry the arguments of a helper's call to its parameters."""
        if not isinstance(call.func, ast.Name) or call.func.id not in self.scope.functions:
            return
        helper = self.scope.functions[call.func.id]
        parameters = [*helper.args.posonlyargs, *helper.args.args]
        names = [argument.arg for argument in parameters]
        given: dict[str, Kind] = {}
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            given = dict.fromkeys(names, UNKNOWN)
        else:
            given.update((name, self._of(here, argument)) for name, argument in zip(names, call.args, strict=False))
        given.update(
            (keyword.arg, self._of(here, keyword.value)) for keyword in call.keywords if keyword.arg is not None
        )
        for name, default in zip(reversed(names), reversed(helper.args.defaults), strict=False):
            given.setdefault(name, self._of(helper.name, default))
        for name, kind in given.items():
            self._set(helper.name, name, kind)

    def _of(self, here: str, node: ast.expr | None) -> Kind:  # noqa: PLR0911  one answer per kind of node
        if isinstance(node, ast.Constant):
            return _constant(node.value)
        if isinstance(node, ast.Name):
            return self._name(here, node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(here, node)
        if isinstance(node, ast.Subscript):
            kind = self._of(here, node.value)
            whole = isinstance(node.slice, ast.Slice)
            return kind if kind.word in ("", "tensor") else (INTS if whole else INT) if kind == INTS else UNKNOWN
        if isinstance(node, ast.Call):
            return self._call(here, node)
        if isinstance(node, ast.BinOp):
            return _arithmetic(node.op, self._of(here, node.left), self._of(here, node.right))
        if isinstance(node, ast.UnaryOp):
            kind = self._of(here, node.operand)
            return BOOL if isinstance(node.op, ast.Not) else INT if kind == BOOL else kind
        if isinstance(node, ast.BoolOp):
            return self._any(here, node.values)
        if isinstance(node, ast.IfExp):
            return self._any(here, [node.body, node.orelse])
        if isinstance(node, (ast.Tuple, ast.List)):
            return INTS if node.elts and all(self._of(here, part) == INT for part in node.elts) else SEQUENCE
        return BOOL if isinstance(node, ast.Compare) else TEXT if isinstance(node, ast.JoinedStr) else UNKNOWN

    def _any(self, here: str, nodes: list[ast.expr]) -> Kind:
        found = UNSET
        for node in nodes:
            found = joined(found, self._of(here, node))
        return found

    def _name(self, here: str, name: str) -> Kind:
        if (here, name) in self.names:
            return self.names[here, name]
        if name in self.scope.constants:
            if name not in self._constants:
                self._constants[name] = UNKNOWN  # of a constant that names itself
                self._constants[name] = self._of("", self.scope.constants[name])
            return self._constants[name]
        return UNSET

    def _attribute(self, here: str, node: ast.Attribute) -> Kind:
        dotted = self.scope.dotted(node)
        if dotted is not None:
            return FLOAT if dotted in ("math.pi", "math.e", "math.tau", "math.inf", "math.nan") else UNKNOWN
        if node.attr in ("T", "mT"):
            return self._of(here, node.value)
        if node.attr == "shape":
            return INTS
        return INT if node.attr in ("ndim", "itemsize", "multi_processor_count", "major", "minor") else UNKNOWN

    def _call(self, here: str, call: ast.Call) -> Kind:
        function, dotted = call.func, self.scope.dotted(call.func)
        if dotted is not None:
            return self._imported(here, call, dotted)
        if isinstance(function, ast.Name):
            if function.id in self.scope.functions:
                return self.returned[function.id]
            return self._builtin(here, call, function.id)
        return self._method(here, call, function) if isinstance(function, ast.Attribute) else UNKNOWN

    def _imported(self, here: str, call: ast.Call, dotted: str) -> Kind:
        if dotted in allowed.SCRATCH:
            like = self._of(here, call.args[0]).dtype if dotted.endswith("_like") and call.args else None
            plain = None if dotted.endswith(("_like", ".full")) else "float32"
            return self._made(here, call, like or plain)
        if dotted == "kernels_db.runtime.cuda.tensor_map":
            return MAP
        if dotted in _WHOLE_MATH or dotted in ("triton.cdiv", "triton.next_power_of_2"):
            return INT
        if dotted in _OPEN_MATH or dotted not in allowed.MATH:
            return UNKNOWN
        return BOOL if dotted.startswith("math.is") else FLOAT

    def _made(self, here: str, call: ast.Call, otherwise: str | None) -> Kind:
        """Return the kind of a tensor whose dtype is that of the keyword `dtype`."""
        node = next((keyword.value for keyword in call.keywords if keyword.arg == "dtype"), None)
        return Kind("tensor", otherwise if node is None else self._dtype(here, node))

    def _dtype(self, here: str, node: ast.expr) -> str | None:
        """Return the dtype that an expression names."""
        dotted = self.scope.dotted(node)
        if dotted in allowed.DTYPES:
            name = dotted.removeprefix("torch.")
            return _SHORT_DTYPES.get(name, name)
        if isinstance(node, ast.Attribute) and node.attr == "dtype":
            return self._of(here, node.value).dtype
        return None

    def _builtin(self, here: str, call: ast.Call, name: str) -> Kind:  # noqa: PLR0911  one answer per function
        given = [self._of(here, argument) for argument in call.args]
        if name in ("len", "int"):
            return INT
        if name in ("float", "bool"):
            return FLOAT if name == "float" else BOOL
        if name in ("any", "all"):
            return BOOL
        if name == "round" and len(given) == 1:
            return INT
        if name == "sum" and given == [INTS]:
            return INT
        if name in ("min", "max", "abs"):
            kind = self._any(here, call.args)
            return INT if kind in (INTS, BOOL) else kind if kind in (UNSET, INT, FLOAT, NUMBER) else UNKNOWN
        return INTS if name in ("list", "tuple", "sorted", "reversed") and given == [INTS] else UNKNOWN

    def _method(self, here: str, call: ast.Call, function: ast.Attribute) -> Kind:  # noqa: PLR0911  as above
        kind, name = self._of(here, function.value), function.attr
        if name in ("numel", "nelement", "dim", "element_size", "data_ptr", "storage_offset", "bit_length"):
            return INT
        if name in ("size", "stride"):
            return INT if call.args or call.keywords else INTS
        if name == "is_contiguous":
            return BOOL
        if kind.word != "tensor":
            return kind if kind == UNSET else UNKNOWN
        if name in ("new_empty", "new_full", "new_zeros"):
            return self._made(here, call, kind.dtype)
        if name == "view" and len(call.args) + len(call.keywords) == 1:
            node = call.args[0] if call.args else call.keywords[0].value
            same = self._of(here, node) in (INT, INTS)
            return kind if same else replace(kind, dtype=self._dtype(here, node))
        return kind if name in (allowed.VIEWS - _SPLITS) | {"fill_", "zero_"} else UNKNOWN


def _constant(value: object) -> Kind:
    if value is None:
        return NONE
    for kind, word in ((bool, BOOL), (int, INT), (float, FLOAT), (str, TEXT)):
        if isinstance(value, kind):
            return word
    return UNKNOWN


def _arithmetic(operator: ast.operator, left: Kind, right: Kind) -> Kind:
    if UNSET in (left, right):
        return UNSET
    if left not in _NUMBERS or right not in _NUMBERS or isinstance(operator, (ast.Pow, ast.MatMult)):
        return UNKNOWN
    if isinstance(operator, ast.Div) or FLOAT in (left, right):
        return FLOAT
    return NUMBER if NUMBER in (left, right) else INT
