"""Checks of a candidate's module level.

Imports, constants, kernels, helpers, compiled sources and `run`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from warpsmith.kernels_db.runtime.flags import allowed as flag_allowed
from warpsmith.kernels_db.runtime.flags import expected
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.csource import source_problems
from warpsmith.workers.gate.cute import CuteFunction
from warpsmith.workers.gate.device import Kernel
from warpsmith.workers.gate.expressions import Expressions, short, spelled
from warpsmith.workers.gate.host import Host
from warpsmith.workers.gate.problems import Problem
from warpsmith.workers.gate.scope import (
    compile_call,
    constant_literal,
    constant_text,
    imported,
    is_kernel_decorator,
    launcher_call,
    statements,
)
from warpsmith.workers.gate.tile import TileFunction

_READERS = frozenset({"list", "sorted", "sum", "tuple"})
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})


class Module(Expressions):
    """A checker of the module's own statements; it hands each function to its checker."""

    where = "at module level"
    format_strings = False

    def check(self, tree: ast.Module, parameters: Sequence[str] | None) -> None:
        """Check the whole candidate."""
        self._unique(tree)
        for statement in tree.body:
            self.statement(statement)
        self._run(tree, parameters)

    def statement(self, node: ast.stmt) -> None:
        """Check one statement of the module."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.FunctionDef):
            self._function(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            self._assign(node)
        elif isinstance(node, ast.Try):
            self._optional_import(node)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not isinstance(
            node, ast.Pass
        ):
            found = type(node).__name__
            self.refuse(
                node,
                f"{found} is not allowed at module level: "
                "expected imports, constants, kernels, helper functions and run",
            )

    def _unique(self, tree: ast.Module) -> None:
        """Check that a name keeps one meaning from its line on: the checked code is what runs."""
        seen: dict[str, str] = {}
        for node, optional in statements(tree):
            for name, meaning in _bound(node):
                # `except ImportError: name = None` is the other half of its import.
                if (
                    name in seen
                    and (seen[name] != meaning or meaning == "value")
                    and not (optional and meaning == "value")
                ):
                    self.refuse(node, f"{name!r} is defined twice: expected one meaning for each name")
                seen.setdefault(name, meaning)
                if name in allowed.BUILTINS or name in allowed.EXCEPTIONS or name.startswith("__"):
                    self.refuse(
                        node, f"module-level name {name!r} is not allowed: expected one that Python does not use"
                    )

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Check that each imported name leads to something allowed."""
        language = self.scope.language
        for alias in node.names:
            if isinstance(node, ast.Import):
                dotted = alias.name
            else:
                dotted = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            named = dotted in allowed.MATH | allowed.DTYPES | allowed.SCRATCH | allowed.ANNOTATIONS | self.library
            decorators = self.scope.decorators
            named = named or dotted in self.scope.kernel_names or dotted in decorators
            named = named or (dotted == "triton.Config" and bool(decorators))
            functional = bool(self.library) and dotted == "torch.nn.functional"
            if not (dotted in allowed.IMPORTS[language] or functional or (named and isinstance(node, ast.ImportFrom))):
                self.refuse(
                    node,
                    f"import of `{dotted}` is not allowed: "
                    f"expected one of {short(allowed.IMPORTS[language])}, or allowed names of these",
                )

    def _optional_import(self, node: ast.Try) -> None:
        """Check the import of an optional module.

        `try: import ... except ImportError: name = None`.
        """
        for statement in node.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._import(statement)
            else:
                self.refuse(statement, "try is allowed around imports alone, at module level")
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            if not all(isinstance(kind, ast.Name) and kind.id in _IMPORT_ERRORS for kind in kinds):
                self.refuse(handler, "except: expected ImportError or ModuleNotFoundError")
        for statement in [*node.orelse, *(statement for handler in node.handlers for statement in handler.body)]:
            plain = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
            if plain and isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if not isinstance(target, ast.Name):
                        self.refuse(statement, "an optional import sets names alone, each to a constant")
            elif isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._import(statement)
            elif not isinstance(statement, ast.Pass):
                self.refuse(statement, "an optional import may only import, set a name to a constant, or pass")
        if node.finalbody:
            self.refuse(node, "finally is not allowed")

    def _function(self, node: ast.FunctionDef) -> None:
        kernel = any(is_kernel_decorator(self.scope, decorator) for decorator in node.decorator_list)
        for decorator in node.decorator_list:
            self._decorator(decorator)
        of_kernels = {"cute": CuteFunction, "tilelang": TileFunction}.get(self.scope.language, Kernel)
        checker = (of_kernels if kernel else Host)(self.scope, self.problems, self.library)
        checker.function(node)

    def _decorator(self, node: ast.expr) -> None:
        """Check a decorator of a kernel, with arguments that run no code of their own."""
        call = node if isinstance(node, ast.Call) else None
        dotted = self.scope.dotted(call.func if call else node)
        keywords = self.scope.decorators.get(dotted or "")
        if keywords is None:
            expected = short(self.scope.decorators) or "none"
            self.refuse(node, f"decorator {spelled(call.func if call else node)} is not allowed: expected {expected}")
        elif call is not None and dotted == "triton.heuristics":
            self._heuristics(call)
        elif call is not None:
            self.arguments(call, keywords)

    def _heuristics(self, call: ast.Call) -> None:
        """Check `@triton.heuristics({"NAME": lambda args: ...})`."""
        for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
            if not isinstance(value, ast.Dict):
                self.refuse(value, "@triton.heuristics: expected a dict of names and lambdas")
                continue
            for key, function in zip(value.keys, value.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(function, ast.Lambda):
                    self.refuse(value, "@triton.heuristics: expected a dict of names and lambdas")
                    continue
                host = Host(self.scope, self.problems, self.library)
                host.bind(function)
                host.grid(function)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            if not all(isinstance(part, ast.Name) for part in parts):
                self.refuse(node, f"assignment to {spelled(target)} is not allowed at module level: expected a name")
        if isinstance(node, ast.AnnAssign):
            self.annotation(node.annotation)
        call = compile_call(self.scope, node.value) if node.value is not None else None
        made = launcher_call(self.scope, node.value)
        if made is not None:
            self._launcher(made)
        elif call is not None:
            self._compile(call)
        else:
            self.expression(node.value)
            self._iterators(node.value)

    def _iterators(self, value: ast.expr | None) -> None:
        """Refuse a constant that is, or holds, an iterator: how far it was read would outlive a call."""
        waiting: list[ast.AST] = [] if value is None else [value]
        while waiting:
            node = waiting.pop()
            if _is_iterator(node):
                self.refuse(node, "an iterator at module level remembers what was read: expected a list or tuple")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READERS:
                for argument in node.args:  # read to its end here
                    waiting += list(ast.iter_child_nodes(argument)) if _is_iterator(argument) else [argument]
            elif isinstance(node, ast.comprehension):
                waiting += list(ast.iter_child_nodes(node.iter)) if _is_iterator(node.iter) else [node.iter]
            else:
                waiting += list(ast.iter_child_nodes(node))

    def _compile(self, call: ast.Call) -> None:
        """`cpp.compile(r\"\"\"...\"\"\", flags=(...))`: everything constant."""
        if self.scope.dotted(call.func) != allowed.COMPILERS.get(self.scope.language):
            self.refuse(call, f"`{ast.unparse(call.func)}` belongs to another language than {self.scope.language}")
        arguments: dict[str | None, ast.expr] = dict(zip(("source", "flags"), call.args, strict=False))
        arguments.update({keyword.arg: keyword.value for keyword in call.keywords})
        if len(call.args) > 2 or not set(arguments) <= {"source", "flags"} or "source" not in arguments:
            self.refuse(call, "compile takes a constant source string and, if any, `flags`")
            return
        text = constant_text(self.scope, arguments["source"])
        if text is None:
            self.refuse(call, "compile: expected the source as one constant string, not a computed one")
        else:
            line = constant_literal(self.scope, arguments["source"]).lineno
            self.problems.extend(source_problems(text, self.scope.language, line))
        self._flags(arguments.get("flags"))

    def _launcher(self, call: ast.Call) -> None:
        """`cutedsl.compile(add_relu)`: a `@cute.jit` function of the module's; `tilelang.compile` a `@T.prim_func`."""
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        function = self.scope.jitted.get(given.id) if isinstance(given, ast.Name) else None
        decorators = function.decorator_list if function is not None else []
        makes, decorator = allowed.LAUNCHERS.get(self.scope.language, ("", ""))
        if self.scope.dotted(call.func) != makes:
            self.refuse(call, f"`{ast.unparse(call.func)}` belongs to another language than {self.scope.language}")
        elif decorator not in [self.scope.dotted(one) for one in decorators]:
            spelled_out = {allowed.CUTE_JIT: "@cute.jit function", allowed.TILE_FUNCTION: "@T.prim_func"}[decorator]
            short_name = ".".join(makes.split(".")[-2:])
            self.refuse(call, f"{short_name}: expected one {spelled_out} of the module, by its name")

    def _flags(self, node: ast.expr | None) -> None:
        if node is None:
            return
        node = constant_literal(self.scope, node)
        entries = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        values = [entry.value if isinstance(entry, ast.Constant) else None for entry in entries]
        language = self.scope.language
        if not isinstance(node, (ast.Tuple, ast.List)) or not all(flag_allowed(value, language) for value in values):
            wrong = next((value for value in values if not flag_allowed(value, language)), None)
            self.refuse(
                node,
                f"flags: found {ast.unparse(node)[:120]}, "
                f"expected a tuple of constants, each {expected(wrong, language)}",
            )
        for value in values:
            if isinstance(value, str) and value.startswith("-D"):  # a macro of the source, from its first line on
                macro = f"#define {value.removeprefix('-D').replace('=', ' ', 1)}"
                self.problems.extend(source_problems(macro, language, node.lineno))

    def _run(self, tree: ast.Module, parameters: Sequence[str] | None) -> None:
        """Check that there is one `run`, which takes the op's inputs, then its outputs."""
        runs = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "run"]
        if not runs:
            wanted = ", ".join(parameters) if parameters is not None else "inputs, then outputs"
            self.problems.append(Problem(1, f"no function `run`: expected `def run({wanted}):`"))
            return
        head = runs[0].args
        if runs[0].decorator_list:
            self.refuse(runs[0], "`run` is decorated: expected a plain function")
        if head.kwonlyargs or head.defaults:
            self.refuse(runs[0], "`run` has keyword-only parameters or defaults: expected positional parameters alone")
        found = [argument.arg for argument in (*head.posonlyargs, *head.args)]
        if parameters is not None and found != list(parameters):
            counts = ("", "") if len(found) == len(parameters) else (f"{len(found)} parameters ", f"{len(parameters)} ")
            self.refuse(
                runs[0],
                f"run takes {counts[0]}({', '.join(found)}), expected {counts[1]}({', '.join(parameters)}): "
                "the op's inputs, then its outputs",
            )

    def name(self, node: ast.Name) -> None:
        """Check a name: a module constant, or the variable of a comprehension."""
        if node.id in self.scope.constants or isinstance(node.ctx, ast.Store) or node.id in self._comprehended:
            return
        self.refuse(
            node, f"name `{node.id}` is not allowed in a module constant: expected another constant of the module"
        )

    def expression(self, node: ast.AST | None) -> None:
        """Check a constant; the variables of its comprehensions are known inside it."""
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            stored = {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
            if any(self.scope.fixed(name) for name in stored):
                self.refuse(node, "a variable of this comprehension hides a name of the module: expected another name")
            self._comprehended |= stored
        super().expression(node)

    _comprehended: frozenset[str] | set[str] = frozenset()

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute: an imported constant."""
        dotted = self.scope.dotted(node)
        if dotted is None or (
            dotted not in allowed.MATH and dotted not in allowed.DTYPES and dotted not in self.scope.kernel_names
        ):
            self.refuse(node, f"{spelled(node)} is not allowed at module level: expected a dtype or a constant")

    def call(self, node: ast.Call) -> None:
        """Check a call: arithmetic on constants, and the making of configurations and layouts."""
        dotted = self.scope.dotted(node.func)
        builtin = isinstance(node.func, ast.Name) and node.func.id in allowed.BUILTINS
        if dotted == "triton.Config":
            self.arguments(node, allowed.CONFIG_KEYWORDS)
        elif dotted == allowed.TILE_DYNAMIC:
            given = node.args[0] if len(node.args) == 1 and not node.keywords else None
            if not (isinstance(given, ast.Constant) and isinstance(given.value, str) and given.value.isidentifier()):
                self.refuse(node, 'T.dynamic: expected the name of one size, such as T.dynamic("n")')
        elif builtin or dotted in allowed.MODULE_CALLS:
            self.arguments(node)
        else:
            self.refuse(
                node,
                f"a call of {spelled(node.func)} is not allowed at module level: "
                "expected a compile, or arithmetic on constants",
            )


def _is_iterator(node: ast.AST) -> bool:
    """Check whether `node` makes an iterator."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("enumerate", "reversed", "zip")
    return isinstance(node, ast.GeneratorExp)


def _bound(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Yield (name, meaning) of each name that a module-level statement binds."""
    if isinstance(node, ast.FunctionDef):
        yield node.name, "value"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from imported(node)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from ((part.id, "value") for part in ast.walk(target) if isinstance(part, ast.Name))
