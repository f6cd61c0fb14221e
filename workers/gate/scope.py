"""The names of a candidate's module: its imports, functions, constants and compiled sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from warpsmith.workers.gate import allowed


@dataclass
class Scope:
    """Module-level names.

    `imports` maps a local name to its dotted name; `compiled` maps a name to the C source behind it (None where that is
    not constant). `launchers` maps the name of what `cutedsl.compile` or its like gives to the function that it took,
    "" where that is none of the module's. `constants` maps a name to its value, None where that is not known or is one
    of several that were unpacked; `unpacked` has these, where each stands beside its name.
    """

    language: str
    imports: dict[str, str] = field(default_factory=dict)
    jitted: dict[str, ast.FunctionDef] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    compiled: dict[str, str | None] = field(default_factory=dict)
    launchers: dict[str, str] = field(default_factory=dict)
    constants: dict[str, ast.expr | None] = field(default_factory=dict)
    unpacked: dict[str, ast.expr] = field(default_factory=dict)

    @property
    def decorators(self) -> Mapping[str, frozenset[str]]:
        """Decorators of the language's kernels, each with its keywords; none where its kernels are a source."""
        return allowed.DECORATORS.get(self.language, {})

    @property
    def kernel_names(self) -> frozenset[str]:
        """Dotted names that the language's kernels may use."""
        return allowed.KERNEL_NAMES.get(self.language, frozenset())

    def dotted(self, node: ast.expr) -> str | None:
        """Return the imported dotted name that `node` spells; None if its root is not an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imports:
            return None
        return ".".join([self.imports[node.id], *reversed(parts)])

    def fixed(self, name: str) -> bool:
        """Check whether `name` is an import, a function or compiled kernels.

        Functions may not bind it again.
        """
        kinds = (self.imports, self.jitted, self.functions, self.compiled, self.launchers)
        return any(name in kind for kind in kinds)


def imported(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield (local name, dotted name) of each name that an import binds.

    `import a.b` binds `a`.
    """
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            yield alias.asname or alias.name, f"{'.' * statement.level}{statement.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            root = alias.name.partition(".")[0]
            yield root, root


def read_scope(tree: ast.Module, language: str) -> Scope:
    """Read the module's names, right or wrong: the checks come after."""
    scope = Scope(language)
    for statement, _ in statements(tree):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            scope.imports.update(imported(statement))
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            kernel = any(is_kernel_decorator(scope, decorator) for decorator in statement.decorator_list)
            (scope.jitted if kernel else scope.functions)[statement.name] = statement
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                _bind(scope, target, statement.value)
    for statement, optional in statements(tree):
        if optional and isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name) and not scope.fixed(target.id):
                    # Which of two values it has is not known here.
                    scope.constants[target.id] = None if target.id in scope.constants else statement.value
    return scope


def is_kernel_decorator(scope: Scope, decorator: ast.expr) -> bool:
    """Check whether a decorator makes a kernel, of this language or another."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return scope.dotted(function) in allowed.KERNEL_DECORATORS


def compile_call(scope: Scope, value: ast.expr) -> ast.Call | None:
    """Return `value` where it is a call of a `compile` that takes a source."""
    if isinstance(value, ast.Call) and scope.dotted(value.func) in allowed.COMPILERS.values():
        return value
    return None


def launcher_call(scope: Scope, value: ast.expr | None) -> ast.Call | None:
    """Return `value` where it is a call of `cutedsl.compile` or its like."""
    if isinstance(value, ast.Call) and scope.dotted(value.func) in allowed.MAKES_CALLABLE:
        return value
    return None


def constant_literal(scope: Scope, node: ast.expr) -> ast.expr:
    """Return `node`, or the literal of the module constant that it names."""
    found = scope.constants.get(node.id) if isinstance(node, ast.Name) else None
    return found if found is not None else node


def constant_text(scope: Scope, node: ast.expr) -> str | None:
    """Return the string that `node` is, or that the module constant it names is."""
    literal = constant_literal(scope, node)
    return literal.value if isinstance(literal, ast.Constant) and isinstance(literal.value, str) else None


def _bind(scope: Scope, target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, (ast.Tuple, ast.List)):
        scope.constants.update({element.id: None for element in target.elts if isinstance(element, ast.Name)})
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        if len(parts) == len(target.elts) and not any(isinstance(p, ast.Starred) for p in (*parts, *target.elts)):
            pairs = zip(target.elts, parts, strict=True)
            scope.unpacked.update({element.id: part for element, part in pairs if isinstance(element, ast.Name)})
    elif isinstance(target, ast.Name):
        call = compile_call(scope, value)
        made = launcher_call(scope, value)
        if made is not None:
            given = made.args[0] if made.args else None
            scope.launchers[target.id] = given.id if isinstance(given, ast.Name) else ""
        elif call is None:
            scope.constants[target.id] = value
        else:
            source = next((k.value for k in call.keywords if k.arg == "source"), call.args[0] if call.args else None)
            scope.compiled[target.id] = None if source is None else constant_text(scope, source)


def statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield the module's statements, and those directly inside its `try` statements.

    True marks the latter: such a statement may not run.
    """
    for statement in tree.body:
        yield statement, False
        if isinstance(statement, ast.Try):
            inner = [*statement.body, *statement.orelse]
            for handler in statement.handlers:
                inner += handler.body
            yield from ((part, True) for part in inner)
