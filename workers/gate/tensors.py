"""The flow of tensors in host code, and the computations on them there.

A library op needs no name: `x + y` runs one. This analysis finds the expressions that may hold a tensor, through
assignments, containers, loops and helper calls, and refuses operators, comparisons, truth tests and number builtins on
them. It follows names, not values: a name that may be a tensor anywhere in a function is one everywhere in it, and an
entry of a container that holds a tensor is one. The lambdas and helpers that are grids, and the lambdas of
`@triton.heuristics`, get the arguments of a launch by name, tensors among them.
"""

from __future__ import annotations

import ast

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import Scope

_HELP = "expected it inside a kernel of yours; on the host a tensor is viewed or passed on"


def tensor_problems(tree: ast.Module, scope: Scope, library: frozenset[str], scalars: frozenset[str]) -> list[Problem]:
    """List each computation that host code does on a tensor.

    Operators, comparisons, truth tests and number builtins.
    """
    flow = _Flow(scope, library)
    run = scope.functions["run"]
    for argument in (*run.args.posonlyargs, *run.args.args):
        if argument.arg not in scalars:
            flow.holders.add(("run", argument.arg))
    # A kernel's decorators run on the host, before each launch.
    host: list[tuple[str, int, list[ast.AST]]] = [(one.name, one.lineno, [one]) for one in scope.functions.values()]
    host += [(one.name, one.lineno, [*one.decorator_list]) for one in scope.jitted.values()]
    known = -1
    while known != flow.size():  # grows towards a fixed point: names and functions are finite
        known = flow.size()
        for here, _, parts in host:
            flow.read(here, parts)
    return [problem for here, line, parts in host for problem in flow.problems(here, line, parts)]


def _launch_tables(scope: Scope) -> dict[tuple[str, str], set[str]]:
    """Return the parameters that get a table of a launch's arguments, and of which kernels' launches.

    By function or kernel and name: a lambda's every parameter, and the first of a helper that is a grid by
    its name. A lambda that is bound to a name may be a grid of every kernel.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for function in (*scope.functions.values(), *scope.jitted.values()):
        kernel = function.name in scope.jitted
        nodes = [node for part in (function.decorator_list if kernel else [function]) for node in ast.walk(part)]
        grids = {
            id(node.slice): node.value.id
            for node in nodes
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in scope.jitted
        }
        for node in nodes:
            helper = scope.functions.get(node.id) if isinstance(node, ast.Name) and id(node) in grids else None
            if helper is not None:
                for argument in (*helper.args.posonlyargs, *helper.args.args)[:1]:
                    found.setdefault((helper.name, argument.arg), set()).add(grids[id(node)])
            if isinstance(node, ast.Lambda):
                of = {function.name} if kernel else {grids[id(node)]} if id(node) in grids else set(scope.jitted)
                for argument in (*node.args.posonlyargs, *node.args.args):
                    found.setdefault((function.name, argument.arg), set()).update(of)
    return found


class _Flow:
    """The names that may hold a tensor (by function and name), and helpers that may return one."""

    def __init__(self, scope: Scope, library: frozenset[str]) -> None:
        self.scope = scope
        self.library = library
        self.holders: set[tuple[str, str]] = set()
        self.returning: set[str] = set()
        self.handed: set[tuple[str, str]] = set()  # kernels and their parameters that a launch gives a tensor to
        self.tables = _launch_tables(scope)

    def size(self) -> int:
        return len(self.holders) + len(self.returning) + len(self.handed)

    def read(self, here: str, parts: list[ast.AST]) -> None:
        """Take every binding of a function, or of a kernel's decorators, into account once."""
        for node in (node for part in parts for node in ast.walk(part)):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._bind(here, target, node.value)
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and node.value is not None:
                self._bind(here, node.target, node.value)
            elif isinstance(node, (ast.For, ast.comprehension)):
                self._bind(here, node.target, node.iter)
            elif isinstance(node, ast.Return) and self.holds(here, node.value):
                self.returning.add(here)
            elif isinstance(node, ast.Call):
                self._pass(here, node)
            elif isinstance(node, ast.Lambda):
                self._defaults(here, node.args)
            elif isinstance(node, ast.Dict) and here in self.scope.jitted:
                self._heuristics(here, node)

    def _defaults(self, here: str, arguments: ast.arguments) -> None:
        """Carry the default values of a lambda to its parameters; those of helpers are constants."""
        positional = [*arguments.posonlyargs, *arguments.args]
        defaulted = [*positional[len(positional) - len(arguments.defaults) :], *arguments.kwonlyargs]
        for argument, default in zip(defaulted, (*arguments.defaults, *arguments.kw_defaults), strict=True):
            if self.holds(here, default):
                self.holders.add((here, argument.arg))

    def _heuristics(self, kernel: str, table: ast.Dict) -> None:
        """Note the parameters of `kernel` that a heuristic gives a tensor to."""
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and self.holds(kernel, value):
                self.handed.add((kernel, key.value))

    def _bind(self, here: str, target: ast.expr, value: ast.expr) -> None:
        """Bind `target` to `value`, element by element where both are displays."""
        if isinstance(target, (ast.Tuple, ast.List)):
            pairs: list[ast.expr] = [value] * len(target.elts)
            starred = any(isinstance(part, ast.Starred) for part in target.elts)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) and not starred:
                pairs = value.elts
            for part, source in zip(target.elts, pairs, strict=True):
                self._bind(here, part.value if isinstance(part, ast.Starred) else part, source)
        elif isinstance(target, ast.Name) and self.holds(here, value):
            self.holders.add((here, target.id))

    def _pass(self, here: str, call: ast.Call) -> None:
        """Carry the arguments of a helper's call, or of a launch, to the parameters."""
        if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
            kernel = self.scope.jitted.get(call.func.value.id)
            if kernel is not None:
                self._launch(here, kernel, call)
            return
        if not isinstance(call.func, ast.Name) or call.func.id not in self.scope.functions:
            return
        helper = self.scope.functions[call.func.id]
        names = [argument.arg for argument in (*helper.args.posonlyargs, *helper.args.args)]
        for i, argument in enumerate(call.args):
            if self.holds(here, argument):
                # A starred argument may fill all parameters that follow.
                filled = names[i:] if isinstance(argument, ast.Starred) else names[i : i + 1]
                self.holders.update((helper.name, name) for name in filled)
        for keyword in call.keywords:
            if keyword.arg is not None and self.holds(here, keyword.value):
                self.holders.add((helper.name, keyword.arg))

    def _launch(self, here: str, kernel: ast.FunctionDef, call: ast.Call) -> None:
        """Note the parameters of `kernel` that a launch gives a tensor to."""
        names = [argument.arg for argument in (*kernel.args.posonlyargs, *kernel.args.args)]
        for i, argument in enumerate(call.args):
            if self.holds(here, argument):
                filled = names[i:] if isinstance(argument, ast.Starred) else names[i : i + 1]
                self.handed.update((kernel.name, name) for name in filled)
        for keyword in call.keywords:
            if self.holds(here, keyword.value):
                filled = names if keyword.arg is None else [keyword.arg]
                self.handed.update((kernel.name, name) for name in filled)

    def holds(self, here: str, node: ast.AST | None) -> bool:  # noqa: PLR0911  one answer per kind of node
        """Check whether `node` may be a tensor, or a container with one."""
        if isinstance(node, ast.Lambda):  # a grid that is a tensor: its value is read on the host
            return self.holds(here, node.body)
        if isinstance(node, ast.Name):
            kernels = self.tables.get((here, node.id), set())
            return (here, node.id) in self.holders or any(kernel in kernels for kernel, _ in self.handed)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and isinstance(node.slice, ast.Constant)
        ):
            table = self.tables.get((here, node.value.id))
            if table is not None:  # the same name may also be given, or bound to, another container
                given = any((kernel, node.slice.value) in self.handed for kernel in table)
                return given or (here, node.value.id) in self.holders
        if isinstance(node, ast.Attribute):
            return node.attr in ("T", "mT") and self.holds(here, node.value)
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self.holds(here, node.value)
        if isinstance(node, ast.Call):
            return self._call_holds(here, node)
        if isinstance(node, ast.IfExp):
            return self.holds(here, node.body) or self.holds(here, node.orelse)
        if isinstance(node, ast.DictComp):
            return self.holds(here, node.value)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return self.holds(here, node.elt)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.BoolOp, ast.BinOp, ast.Slice)):
            return any(self.holds(here, child) for child in ast.iter_child_nodes(node))
        return False

    def _call_holds(self, here: str, call: ast.Call) -> bool:
        function = call.func
        dotted = self.scope.dotted(function)
        if dotted is not None:
            # A descriptor prints and compares the tensor that it describes.
            return dotted in allowed.SCRATCH | allowed.DESCRIPTORS or dotted in self.library
        if isinstance(function, ast.Name):
            if function.id in self.scope.functions:
                return function.id in self.returning
            return function.id not in ("len", "range") and any(self.holds(here, argument) for argument in call.args)
        if isinstance(function, ast.Attribute):
            entry = function.attr in ("get", "items", "values")  # of a constant table: only what it was given
            made = function.attr in allowed.VIEWS | allowed.SCRATCH_METHODS | self.library
            return made or (entry and self.holds(here, function.value))
        return False

    def problems(self, here: str, line: int, parts: list[ast.AST]) -> list[Problem]:
        """List the computations on tensors of a function, or of a kernel's decorators, which begins at `line`."""
        found = []
        for node in (node for part in parts for node in ast.walk(part)):
            message = self._misuse(here, node)
            if message is not None:
                found.append(Problem(getattr(node, "lineno", line), f"{message}: {_HELP}"))
        return found

    def _misuse(self, here: str, node: ast.AST) -> str | None:  # noqa: PLR0911, PLR0912  one answer per kind of node
        if isinstance(node, ast.BinOp):
            matmul = isinstance(node.op, ast.MatMult)  # the module check has refused it unless the op lists it
            if not matmul and (self.holds(here, node.left) or self.holds(here, node.right)):
                return "arithmetic on a tensor is a library op"
        elif isinstance(node, ast.AugAssign):
            if self.holds(here, node.target) or self.holds(here, node.value):
                return "arithmetic on a tensor is a library op"
        elif isinstance(node, ast.UnaryOp):
            if self.holds(here, node.operand):
                return "an operator on a tensor is a library op"
        elif isinstance(node, ast.Compare):
            identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
            if not identity and any(self.holds(here, side) for side in (node.left, *node.comparators)):
                return "a comparison of tensors is a library op"
        elif isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            if self.holds(here, node.test):
                return "the truth of a tensor reads its values (`is None` does not)"
        elif isinstance(node, ast.BoolOp):
            if any(self.holds(here, value) for value in node.values):
                return "the truth of a tensor reads its values (`is None` does not)"
        elif isinstance(node, ast.comprehension):
            if any(self.holds(here, test) for test in node.ifs):
                return "the truth of a tensor reads its values (`is None` does not)"
        elif isinstance(node, ast.Subscript):
            if isinstance(node.value, ast.Name) and node.value.id in self.scope.jitted:
                helper = isinstance(node.slice, ast.Name) and node.slice.id in self.returning
                if helper or self.holds(here, node.slice):
                    return "a tensor as a launch grid is read on the host"
            elif self.holds(here, node.slice):
                return "indexing by a tensor is a library op"
        elif isinstance(node, ast.FormattedValue):
            if self.holds(here, node.value):
                return "printing a tensor reads its values"
        elif isinstance(node, ast.Call):
            return self._misused_call(here, node)
        return None

    def _misused_call(self, here: str, call: ast.Call) -> str | None:
        """Name a number builtin, a function of numbers or a layout that is given a tensor."""
        name = call.func.id if isinstance(call.func, ast.Name) else None
        dotted = self.scope.dotted(call.func)
        number = name in allowed.BUILTINS - allowed.CONTAINER_BUILTINS or dotted in allowed.NUMBER_CALLS
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if number and any(self.holds(here, argument) for argument in given):
            return f"`{name or dotted}` of a tensor is a library op"
        if dotted in allowed.GLUON_LAYOUTS and any(self.holds(here, argument) for argument in given):
            return f"`{dotted}` of a tensor reads or changes its values"
        like = dotted is not None and dotted.endswith("_like")
        sized = dotted in allowed.SCRATCH and not like
        if dotted is None and isinstance(call.func, ast.Attribute):
            root = call.func.value  # a kernel may be named like a view
            launched = isinstance(root, ast.Name) and root.id in self.scope.compiled
            methods = (allowed.VIEWS | allowed.SCRATCH_METHODS) - {"view_as", "expand_as"} - self.library
            sized = not launched and call.func.attr in methods
        if sized and any(self.holds(here, argument) for argument in given):
            return f"a tensor as a size or number of `{ast.unparse(call.func)[:60]}` is read on the host"
        if dotted in allowed.DESCRIPTORS:
            parts = [part for i, part in enumerate(call.args) if i or isinstance(part, ast.Starred)]
            parts += [keyword.value for keyword in call.keywords if keyword.arg not in ("base", "tensor")]
            if any(self.holds(here, part) for part in parts):
                return f"a tensor in the shape that `{dotted}` is given is read on the host"
        return None
