"""Which of its arguments a reference writes to, told by its syntax alone: its statements in their order.

A name is followed as long as it surely stands for an argument's memory: the argument itself, another name given to it,
and views (`x[0]`, `x.view(-1)`, `x.T`). What may be a copy is none: `x[index]` where the index may be a tensor,
`x.reshape(...)`, `x.contiguous()`, and a name that only one of two branches leaves as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

_VIEWS = frozenset(
    {
        "as_strided",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "movedim",
        "narrow",
        "permute",
        "select",
        "squeeze",
        "swapaxes",
        "t",
        "transpose",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    }
)
"""Methods of a tensor that return a view of it."""
_VIEW_ATTRIBUTES = frozenset({"T", "data", "mT"})
_NO_WRITES = frozenset(
    {
        "as_strided_",
        "detach_",
        "requires_grad_",
        "resize_",
        "set_",
        "share_memory_",
        "squeeze_",
        "swapaxes_",
        "t_",
        "transpose_",
        "unsqueeze_",
    }
)
"""Methods of a name like those that write in place, and that leave the values alone."""


def written_by(function: ast.FunctionDef, names: Mapping[str, str]) -> set[str]:
    """Return the arguments, values of `names` by the parameter's name, that a function surely writes to.

    Each of its statements is taken to run, and functions inside of it are taken to be called. Writes by what it calls
    are not seen, but for those of `torch`: `torch.add(x, y, out=x)`, `torch.relu_(x)`.
    """
    writes = _Writes(dict(names))
    writes.follow(function.body)
    return writes.found


class _Writes(ast.NodeVisitor):
    """What is known after some statements."""

    def __init__(self, memory: dict[str, str]) -> None:
        self.memory = memory
        """The argument in whose memory a name lies."""
        self.counts: set[str] = set()
        """Names that are whole numbers: those that run over a range."""
        self.found: set[str] = set()
        """Arguments that are written to."""

    def follow(self, statements: Sequence[ast.stmt]) -> bool:
        """Follow statements in order; returns whether they may be followed by others."""
        for statement in statements:
            self.visit(statement)
            if isinstance(statement, ast.Return | ast.Raise):
                return False
        return True

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.op, ast.MatMult) and isinstance(node.target, ast.Name):
            self._bind(node.target.id, None)  # a tensor has no product in place: the name gets a new one
        else:
            self._write(node.target.value if isinstance(node.target, ast.Subscript) else node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, None)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches([node.body, node.orelse])

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._branches([[], node.body], loop=node)
        self.follow(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._branches([[], node.body])
        self.follow(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self._branches([[*node.body, *node.orelse], *(handler.body for handler in node.handlers)])
        self.follow(node.finalbody)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._branches([[], *(case.body for case in node.cases)])

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, None)
        self.follow(node.body)

    def _branches(self, branches: Sequence[Sequence[ast.stmt]], loop: ast.For | None = None) -> None:
        """Follow each from here; afterwards a name is what it is after all of them that go on."""
        ends: list[tuple[dict[str, str], set[str]]] = []
        before, counts = self.memory, self.counts
        for body in branches:
            self.memory, self.counts = dict(before), set(counts)
            if loop is not None and body:
                self._run_over(loop)
            if self.follow(body):
                ends.append((self.memory, self.counts))
        if ends:
            first = ends[0][0]
            self.memory = {
                name: owner for name, owner in first.items() if all(memory.get(name) == owner for memory, _ in ends)
            }
            self.counts = set.intersection(*(names for _, names in ends))

    def _run_over(self, loop: ast.For) -> None:
        over = loop.iter
        self._assign(loop.target, None)
        if not isinstance(loop.target, ast.Name):
            return
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            self.counts.add(loop.target.id)
        else:
            self._bind(loop.target.id, self._owner(over))  # a tensor's rows are views of it

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._bind(node.name, None)
        kept = {name for each in ast.walk(node) if isinstance(each, ast.Nonlocal) for name in each.names}
        stored = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        self._without(_arguments(node) | (stored - kept)).follow(node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._without(_arguments(node)).visit(node.body)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehend(node, node.generators)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehend(node, node.generators)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehend(node, node.generators)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehend(node, node.generators)

    def _comprehend(self, node: ast.expr, generators: Sequence[ast.comprehension]) -> None:
        targets = (each for generator in generators for each in ast.walk(generator.target))
        self._without({each.id for each in targets if isinstance(each, ast.Name)}).generic_visit(node)

    def _without(self, names: set[str]) -> _Writes:
        """Return what is known inside of a scope that has names of its own; what it finds is found here."""
        inner = _Writes({name: owner for name, owner in self.memory.items() if name not in names})
        inner.counts = self.counts - names
        inner.found = self.found
        return inner

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        of_torch = _root(node.func) == "torch" and "torch" not in self.memory
        if of_torch:
            for keyword in node.keywords:
                if keyword.arg == "out":
                    held = keyword.value
                    for each in held.elts if isinstance(held, ast.Tuple | ast.List) else [held]:
                        self._write(each)
        if isinstance(node.func, ast.Attribute) and _is_in_place(node.func.attr) and node.func.attr not in _NO_WRITES:
            if not of_torch:
                self._write(node.func.value)
            elif node.args:
                self._write(node.args[0])

    def _assign(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, None if value is None else self._owner(value))
        elif isinstance(target, ast.Subscript):
            self._write(target.value)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            alike = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            values = value.elts if isinstance(value, ast.Tuple | ast.List) and alike else [None] * len(target.elts)
            owners = [None if each is None else self._owner(each) for each in values]
            for each, owner in zip(target.elts, owners, strict=True):
                if isinstance(each, ast.Name):
                    self._bind(each.id, owner)
                else:
                    self._assign(each, None)

    def _bind(self, name: str, owner: str | None) -> None:
        self.counts.discard(name)
        if owner is None:
            self.memory.pop(name, None)
        else:
            self.memory[name] = owner

    def _write(self, place: ast.expr) -> None:
        owner = self._owner(place)
        if owner is not None:
            self.found.add(owner)

    def _owner(self, place: ast.expr) -> str | None:
        """Return the argument in whose memory a value surely lies; None where it may lie elsewhere."""
        while True:
            if isinstance(place, ast.Name):
                return self.memory.get(place.id)
            if (isinstance(place, ast.Subscript) and self._is_basic(place.slice)) or (
                isinstance(place, ast.Attribute) and place.attr in _VIEW_ATTRIBUTES
            ):
                place = place.value
            elif (
                isinstance(place, ast.Call)
                and isinstance(place.func, ast.Attribute)
                and (place.func.attr in _VIEWS or _is_in_place(place.func.attr))
            ):
                place = place.func.value
            else:
                return None

    def _is_basic(self, index: ast.expr) -> bool:
        """Check whether an index is none of tensors or lists, which copy: numbers, slices, None, `...`."""
        if isinstance(index, ast.Tuple):
            return all(self._is_basic(each) for each in index.elts)
        if isinstance(index, ast.Constant):
            return index.value is None or index.value is ... or type(index.value) is int
        if isinstance(index, ast.UnaryOp):
            return isinstance(index.op, ast.USub) and self._is_basic(index.operand)
        if isinstance(index, ast.BinOp):
            return self._is_basic(index.left) and self._is_basic(index.right)
        return isinstance(index, ast.Slice) or (isinstance(index, ast.Name) and index.id in self.counts)


def _arguments(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _root(value: ast.expr) -> str | None:
    """Return `a` of `a.b.c`."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None
