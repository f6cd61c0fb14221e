"""The flow of values that the module keeps from call to call, and the operators that would change them.

`c = SEEN` names a list of the module, and `c += [0]` then changes that list: a candidate could count its calls or keep
a result. This analysis follows what is not surely a number or made within the call (tables, layouts, default values)
through assignments, loops, helper calls and launches, and refuses the operators that change a value in place on it.
Like `tensors`, it follows names, not values.
"""

from __future__ import annotations

import ast

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.bodies import bound_name
from warpsmith.workers.gate.expressions import COMPREHENSIONS
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import Scope

_NUMBERS = allowed.names("abs all any bool divmod float int len pow range round")
"""Builtins whose result is made of numbers, whatever they are given."""
_ARRANGING = allowed.names("enumerate list reversed sorted zip")
_ENTRY_METHODS = allowed.names("get items keys values")


def kept_problems(scope: Scope) -> list[Problem]:
    """List each operator that may change in place what outlives the call."""
    flow = _Flow(scope)
    known = -1
    while known != flow.size():  # grows towards a fixed point: names and functions are finite
        known = flow.size()
        for function in flow.functions.values():
            flow.read(function)
    return [problem for function in flow.functions.values() for problem in flow.problems(function)]


class _Constants:
    """The module's constants: those that are plain (nothing can change them), and flat tables, of plain entries."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.plain_names: set[str] = set()
        self.flat_names: set[str] = set()
        for name, constant in scope.constants.items():  # a constant is made of those above it
            value = scope.unpacked.get(name) if constant is None else constant
            if value is not None and self.plain(value):
                self.plain_names.add(name)
            elif value is not None and self.flat(value):
                self.flat_names.add(name)

    def plain(self, node: ast.expr, variables: frozenset[str] = frozenset()) -> bool:  # noqa: PLR0911  one answer per kind of node
        """Check whether `node` is a number, a text, a dtype or a tuple of these."""
        if isinstance(node, (ast.Constant, ast.Compare, ast.UnaryOp)):
            return True
        if isinstance(node, ast.Name):
            return node.id in variables or node.id in self.plain_names
        if isinstance(node, ast.Attribute):
            return self.scope.dotted(node) is not None
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.Tuple)):
            return all(self.plain(part, variables) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        if isinstance(node, ast.IfExp):
            return self.plain(node.body, variables) and self.plain(node.orelse, variables)
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Name) and node.value.id in self.flat_names
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in allowed.BUILTINS:
                chosen = node.func.id in ("max", "min", "sum", "tuple") and not node.keywords
                return node.func.id in _NUMBERS or (
                    chosen and (all(self.plain(argument, variables) for argument in node.args) or self._one_flat(node))
                )
            dotted = self.scope.dotted(node.func) or ""
            if dotted.endswith(".language.constexpr"):
                return all(self.plain(argument, variables) for argument in node.args) and not node.keywords
            return dotted in allowed.NUMBER_CALLS
        return False

    def _one_flat(self, call: ast.Call) -> bool:
        return len(call.args) == 1 and self.flat(call.args[0])

    def flat(self, node: ast.expr, variables: frozenset[str] = frozenset()) -> bool:  # noqa: PLR0911  one answer per kind of node
        """Check whether `node` is plain, or a container of plain entries."""
        if isinstance(node, ast.Name) and node.id in self.flat_names:
            return True
        if isinstance(node, (ast.List, ast.Set, ast.Tuple)):
            return all(self.plain(part, variables) for part in node.elts)
        if isinstance(node, ast.Dict):
            return None not in node.keys and all(self.plain(part, variables) for part in node.values)
        if isinstance(node, COMPREHENSIONS):
            for part in node.generators:
                found = self.variables(part, variables)
                if found is None:
                    return False
                variables |= found
            return self.plain(node.value if isinstance(node, ast.DictComp) else node.elt, variables)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ARRANGING:
            return all(self.flat(argument, variables) for argument in node.args)
        return self.plain(node, variables)

    def variables(self, part: ast.comprehension, known: frozenset[str] = frozenset()) -> frozenset[str] | None:
        """Return the names that a comprehension's `for` binds to plain values; None where they may be others."""
        names = frozenset(name for one in ast.walk(part.target) if (name := bound_name(one)) is not None)
        source = self.scope.constants.get(part.iter.id) if isinstance(part.iter, ast.Name) else part.iter
        rows = source.elts if isinstance(source, (ast.List, ast.Tuple)) else []
        unpacked = isinstance(part.target, ast.Tuple) and all(isinstance(one, ast.Name) for one in part.target.elts)
        if self.flat(part.iter, known) or (unpacked and rows and all(self.flat(row, known) for row in rows)):
            return names
        return None


class _Flow:
    """The names that may be, or hold, a value of the module's, and the functions that may return one."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.constants = _Constants(scope)
        # Compiled code changes nothing in place; Triton's interpreter runs a kernel as Python.
        self.functions = scope.functions | (scope.jitted if scope.language == "triton" else {})
        self.locals = {
            name: {bound for node in ast.walk(function) if (bound := bound_name(node)) is not None}
            for name, function in self.functions.items()
        }
        self.holders: set[tuple[str, str]] = set()
        self.returning: set[str] = set()
        for function in self.functions.values():
            self._defaults(function)
            self._decorated(function)
        for kernel in scope.jitted.values():  # a heuristic hands on what the kernel gets
            for node in (part for decorator in kernel.decorator_list for part in ast.walk(decorator)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in scope.functions:
                    self._all(scope.functions[node.func.id])

    def size(self) -> int:
        return len(self.holders) + len(self.returning)

    def _defaults(self, function: ast.FunctionDef) -> None:
        """Take the default values into account: they are made once."""
        positional = [*function.args.posonlyargs, *function.args.args]
        defaults = function.args.defaults
        pairs = list(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
        pairs += [
            (argument, default)
            for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
            if default is not None
        ]
        self.holders |= {
            (function.name, argument.arg) for argument, default in pairs if not self.constants.plain(default)
        }

    def _decorated(self, function: ast.FunctionDef) -> None:
        """Take what autotune and heuristics pass into account."""
        waiting: list[ast.expr] = list(function.decorator_list)
        seen: set[str] = set()
        variables: frozenset[str] = frozenset()
        dicts: list[ast.Dict] = []
        while waiting:
            for node in ast.walk(waiting.pop()):
                if isinstance(node, ast.Dict):
                    dicts.append(node)
                elif isinstance(node, ast.comprehension):
                    found = self.constants.variables(node, variables)
                    if found is None:
                        self._all(function)
                    variables |= found or frozenset()
                elif isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    constant = self.scope.constants.get(node.id) or self.scope.unpacked.get(node.id)
                    waiting += [] if constant is None else [constant]
        for table in dicts:
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(value, ast.Lambda):
                    self._lambda(function.name, value)
                    kept = self.holds(function.name, value.body)
                else:
                    kept = not self.constants.plain(value, variables)
                if kept:
                    self._all(function, None if not isinstance(key, ast.Constant) else str(key.value))

    def _all(self, function: ast.FunctionDef, only: str | None = None) -> None:
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        self.holders |= {(function.name, name) for name in names if only is None or name == only}

    def read(self, function: ast.FunctionDef) -> None:
        """Take every binding of `function` into account once."""
        here = function.name
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(here, target, node.value)
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
                self._bind(here, node.target, node.value)
            elif isinstance(node, (ast.For, ast.comprehension)):
                if self.entries_hold(here, node.iter):
                    self._take(here, node.target)
            elif isinstance(node, ast.Return) and node.value is not None and self.holds(here, node.value):
                self.returning.add(here)
            elif isinstance(node, ast.Call):
                self._pass(here, node)
            elif isinstance(node, ast.Lambda):
                self._lambda(here, node)
        if len(function.decorator_list) > 1 and any(holder == here for holder, _ in self.holders):
            self._all(function)  # a heuristic may hand on what another parameter got

    def _lambda(self, here: str, node: ast.Lambda) -> None:
        """Take a lambda's parameters for kept: a grid's gets what the kernel gets, and a default is made before."""
        arguments = node.args
        if here in self.scope.functions or any(
            default is not None and not self.constants.plain(default)
            for default in (*arguments.defaults, *arguments.kw_defaults)
        ):
            self._take(here, arguments)

    def _take(self, here: str, target: ast.AST) -> None:
        self.holders |= {(here, name) for node in ast.walk(target) if (name := bound_name(node)) is not None}

    def _bind(self, here: str, target: ast.expr, value: ast.expr) -> None:
        unpacked = isinstance(target, (ast.Tuple, ast.List))
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
            if len(target.elts) == len(value.elts) and not starred:
                for part, source in zip(target.elts, value.elts, strict=True):
                    self._bind(here, part, source)
                return
        if self.entries_hold(here, value) if unpacked else self.holds(here, value):
            self._take(here, target)

    def _pass(self, here: str, call: ast.Call) -> None:
        """Carry the arguments of a helper's call, or of a launch, to the parameters."""
        function = call.func
        if isinstance(function, ast.Subscript):
            for node in ast.walk(function.slice):  # a grid's helper gets what the kernel gets
                if isinstance(node, ast.Name) and node.id in self.scope.functions:
                    self._all(self.scope.functions[node.id])
            function = function.value
        if not isinstance(function, ast.Name) or function.id not in self.functions:
            return
        called = self.functions[function.id]
        names = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
        for i, argument in enumerate(call.args):
            if self.holds(here, argument):
                filled = names[i:] if isinstance(argument, ast.Starred) else names[i : i + 1]
                self.holders |= {(called.name, name) for name in filled}
        self.holders |= {
            (called.name, keyword.arg)
            for keyword in call.keywords
            if keyword.arg is not None and self.holds(here, keyword.value)
        }

    def entries_hold(self, here: str, node: ast.expr) -> bool:
        """Check whether an entry of `node` may be a value of the module's: not where it is a table of numbers."""
        return not self._flat_table(here, node) and self.holds(here, node)

    def _flat_table(self, here: str, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.constants.flat_names and node.id not in self.locals[here]

    def holds(self, here: str, node: ast.AST) -> bool:  # noqa: PLR0911  one answer per kind of node
        """Check whether `node` may be a value of the module's that can be changed, or hold one."""
        if isinstance(node, ast.Name):
            kept = node.id in self.scope.constants and node.id not in self.constants.plain_names
            return (here, node.id) in self.holders or kept
        if isinstance(node, (ast.Compare, ast.UnaryOp, ast.JoinedStr, ast.Lambda, ast.Constant)):
            return False
        if isinstance(node, ast.Attribute):
            return self.scope.dotted(node) is None and self.holds(here, node.value)
        if isinstance(node, ast.Subscript):
            return self.entries_hold(here, node.value)
        if isinstance(node, ast.IfExp):
            return self.holds(here, node.body) or self.holds(here, node.orelse)
        if isinstance(node, ast.Call):
            return self._call_holds(here, node)
        if isinstance(node, ast.DictComp):
            return self.holds(here, node.key) or self.holds(here, node.value)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self.holds(here, node.elt)
        return any(self.holds(here, child) for child in ast.iter_child_nodes(node))

    def _call_holds(self, here: str, call: ast.Call) -> bool:
        function = call.func
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if self.scope.dotted(function) in allowed.NUMBER_CALLS:
            return False
        if isinstance(function, ast.Name):
            if function.id in self.functions:
                return function.id in self.returning
            if function.id in _NUMBERS:
                return False
            if function.id in allowed.BUILTINS and len(given) == 1:
                return self.entries_hold(here, given[0])
        elif isinstance(function, ast.Attribute) and self.scope.dotted(function) is None:
            found = self.entries_hold if function.attr in _ENTRY_METHODS else self.holds
            return found(here, function.value) or any(self.holds(here, argument) for argument in given)
        return any(self.holds(here, argument) for argument in given)

    def problems(self, function: ast.FunctionDef) -> list[Problem]:
        """List the operators of `function` that may change a value of the module's."""
        return [
            Problem(
                node.lineno,
                f"`{ast.unparse(node)[:80]}` may change a value that outlives the call: "
                f"expected it on a number or on what this call made, as after `{ast.unparse(node.target)[:40]} = ...`",
            )
            for node in ast.walk(function)
            if isinstance(node, ast.AugAssign) and self.holds(function.name, node.target)
        ]
