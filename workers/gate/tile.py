"""Checks of TileLang's `@T.prim_func` and `@T.macro` functions.

TileLang rewrites them and runs them as Python once, to build a program, so they are held as tightly as host code: what
they may name are the functions of an allow-list, and what they write are elements of tensors of theirs. Nothing that
they say may become text of the generated source: strings are words, and no call takes a table.
"""

from __future__ import annotations

import ast
import re

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
        """Return whether nothing of a constant can be written to; a size that is not known yet is none either."""
        dynamic = isinstance(value, ast.Call) and self.scope.dotted(value.func) == allowed.TILE_DYNAMIC
        return dynamic or super().is_fixed(value, above)

    def expression(self, node: ast.AST | None) -> None:
        """Check a value: no tables, and no strings but words."""
        if isinstance(node, (ast.Dict, ast.Set)):
            self.refuse(node, f"{spelled(node)} is not allowed in a kernel")
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            self._word(node)
        else:
            super().expression(node)

    def _word(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or not _WORD.fullmatch(node.value):
            self.refuse(node, f"string {str(node.value)[:40]!r} is not allowed in a kernel: expected a dtype's name")

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
        super().call(node)

    def annotation(self, node: ast.expr | None) -> None:
        """Check an annotation: `T.Tensor(shape, dtype)` beside those of every kernel."""
        if isinstance(node, ast.Call) and self.scope.dotted(node.func) == allowed.TILE_TENSOR:
            if len(node.args) > 2:  # behind them a tensor takes an address
                self.refuse(node, f"found {len(node.args)} arguments of T.Tensor, expected shape and dtype")
            self.arguments(node, frozenset({"dtype", "shape"}))
        else:
            super().annotation(node)
