"""Checks of TileLang's `@T.prim_func` and `@T.macro` functions.

TileLang rewrites them and runs them as Python once, to build a program, so they are held as tightly as host code: what
they may name are the functions of an allow-list, and what they write are elements of tensors of theirs. Nothing that
they say may become text of the generated source: strings are words, and no call takes a table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.cute import CuteFunction
from warpsmith.workers.gate.expressions import spelled

_WORD = re.compile(r"[A-Za-z0-9_.]{0,40}")


class TileFunction(CuteFunction):
    """A checker of one function that TileLang compiles."""

    _kernels = 0

    @property
    def _decorated(self) -> str:
        return "@T.macro"

    @property
    def _constants(self) -> str:
        return "a number, dtype, dtype's name or tuple"

    @property
    def _modules(self) -> str:
        return "tilelang.language that is allowed"

    def function(self, function: ast.FunctionDef) -> None:
        """Check a function: a `@T.prim_func` has one `with T.Kernel(...)`, whose name is its kernel's."""
        super().function(function)
        compiled = allowed.TILE_FUNCTION in map(self.scope.dotted, function.decorator_list)
        if self._kernels != int(compiled):
            expected = "one in a @T.prim_func, none in a @T.macro"
            self.refuse(function, f"found {self._kernels} `with T.Kernel(...)`, expected {expected}")
        if compiled:
            for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
                if argument.annotation is None:
                    self.refuse(argument, f"{argument.arg}: expected an annotation, T.Tensor(shape, dtype) or a dtype")
            if function.args.defaults or function.args.kwonlyargs or function.args.posonlyargs:
                self.refuse(function, "a @T.prim_func has keyword-only parameters or defaults: expected plain ones")

    def matmul(self, node: ast.BinOp) -> None:
        """Refuse `a @ b`, which TileLang does not have."""
        self.refuse(node, "`@` is not allowed in a kernel: expected T.gemm")

    def statement(self, node: ast.stmt) -> None:
        """Check a statement; `with T.Kernel(...) as block:` is one, in any other place than a loop of Python's."""
        if not isinstance(node, ast.With):
            super().statement(node)
            return
        item = node.items[0]
        call = item.context_expr
        dotted = self.scope.dotted(call.func) if isinstance(call, ast.Call) else None
        if len(node.items) != 1 or dotted != allowed.TILE_KERNEL:
            self.refuse(node, "a with block is not allowed in a kernel: expected `with T.Kernel(...) as block:`")
            return
        self._kernels += 1
        assert isinstance(call, ast.Call)
        self.arguments(call, allowed.TILE_KEYWORDS)
        if item.optional_vars is not None:
            super().target(item.optional_vars)
        self.block(node.body)

    def is_fixed(self, value: ast.expr | None, above: frozenset[str]) -> bool:
        """Return whether nothing of a constant can be written to, and its strings are words.

        A size that is not known yet is fixed, too.
        """
        if isinstance(value, ast.Call) and self.scope.dotted(value.func) == allowed.TILE_DYNAMIC:
            return True
        return super().is_fixed(value, above) and all(map(_is_word, _strings(value)))

    def expression(self, node: ast.AST | None) -> None:
        """Check a value: no tables, and no strings but words."""
        if isinstance(node, (ast.Dict, ast.Set)):
            self.refuse(node, f"{spelled(node)} is not allowed in a kernel")
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            if not _is_word(node.value):
                found = f"string {str(node.value)[:40]!r}"
                self.refuse(node, f"{found} is not allowed in a kernel: expected a dtype's name")
        else:
            super().expression(node)

    def call(self, node: ast.Call) -> None:
        """Check a call, see `Kernel`; those of TileLang's functions take keywords of an allow-list."""
        dotted = self.scope.dotted(node.func)
        if dotted == allowed.TILE_KERNEL:
            self.refuse(node, "T.Kernel is not allowed here: expected `with T.Kernel(...) as block:`")
        elif dotted is not None:
            for keyword in node.keywords:
                if keyword.arg is not None and keyword.arg not in allowed.TILE_KEYWORDS:
                    listed = ", ".join(sorted(allowed.TILE_KEYWORDS))
                    self.refuse(node, f"keyword {keyword.arg!r} is not allowed: expected one of {listed}")
            if dotted in allowed.TILE_POSITIONAL:
                self._positional(node, allowed.TILE_POSITIONAL[dotted])
        super().call(node)

    def _positional(self, node: ast.Call, names: tuple[str, ...]) -> None:
        """Refuse arguments by position behind those of these names: what follows them no candidate may choose."""
        if len(node.args) > len(names) or any(isinstance(one, ast.Starred) for one in node.args):
            found = f"found `{', '.join(map(ast.unparse, node.args))[:80]}`"
            self.refuse(node, f"{found} as arguments of {ast.unparse(node.func)}, expected {' and '.join(names)}")

    def annotation(self, node: ast.expr | None) -> None:
        """Check an annotation: `T.Tensor(shape, dtype)` beside those of every kernel, and none as a string."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.refuse(node, "an annotation is a string, which TileLang evaluates: expected it without quotes")
        elif isinstance(node, ast.Call) and self.scope.dotted(node.func) == allowed.TILE_TENSOR:
            self._positional(node, allowed.TILE_POSITIONAL[allowed.TILE_TENSOR])
            self.arguments(node, frozenset({"dtype", "shape"}))
        else:
            super().annotation(node)


def _strings(value: ast.expr | None) -> Iterator[str | bytes]:
    for part in ast.walk(value) if value is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)):
            yield part.value


def _is_word(text: str | bytes) -> bool:
    return isinstance(text, str) and _WORD.fullmatch(text) is not None
