"""Checks of `@cute.kernel` and `@cute.jit` functions.

CuTe DSL runs them as Python once, to build code, so they are held as tightly as host code: what they may name are the
functions of an allow-list, and what they write are elements of tensors of theirs.
"""

from __future__ import annotations

import ast

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.device import Kernel
from warpsmith.workers.gate.expressions import spelled

_FIXED = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.Attribute, ast.operator, ast.unaryop, ast.Load, ast.Name)


class CuteFunction(Kernel):
    """A checker of one function that CuTe DSL compiles."""

    @property
    def _constants(self) -> str:
        return "a number, dtype, string or tuple"

    @property
    def _modules(self) -> str:
        return "cutlass, its cute, memory, pipeline or utils, or of cute's arch, math or nvgpu, that is allowed"

    def matmul(self, node: ast.BinOp) -> None:
        """Refuse `a @ b`, which the DSL does not have."""
        self.refuse(node, "`@` is not allowed in a kernel: expected cute.gemm")

    def name(self, node: ast.Name) -> None:
        """Check a name, see `Kernel`. A list or a table of the module would keep what is written to it."""
        super().name(node)
        if node.id in self.locals or node.id not in self.scope.constants:
            return
        if not self.is_fixed(self.scope.constants[node.id] or self.scope.unpacked.get(node.id), frozenset({node.id})):
            self.refuse(node, f"constant `{node.id}` is not allowed in a kernel: expected {self._constants}")

    def is_fixed(self, value: ast.expr | None, above: frozenset[str]) -> bool:
        """Return whether nothing of a constant can be written to: what it names neither, to the end."""
        if value is None:
            return False
        for part in ast.walk(value):
            if not isinstance(part, _FIXED):
                return False
            if isinstance(part, ast.Name) and self.scope.dotted(part) is None:  # none of an import
                inner = self.scope.constants.get(part.id) or self.scope.unpacked.get(part.id)
                if part.id in above or not self.is_fixed(inner, above | {part.id}):
                    return False
        return True

    def target(self, node: ast.expr) -> None:
        """Check what an assignment writes: a local name, or an element of what one holds."""
        if not isinstance(node, ast.Subscript):
            super().target(node)
            return
        root: ast.expr = node
        while isinstance(root, (ast.Subscript, ast.Attribute)):
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in self.locals):
            self.refuse(node, f"assignment to {spelled(node)} is not allowed: expected an element of a local tensor")
        self.expression(node.value)
        self.expression(node.slice)

    def call(self, node: ast.Call) -> None:
        """Check a call, see `Kernel`, and the options of a launch."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr == "launch" and self.scope.dotted(function) is None:
            made = function.value
            kernel = made.func if isinstance(made, ast.Call) else None
            if not (isinstance(kernel, ast.Name) and kernel.id in self.scope.jitted):
                self.refuse(node, "launch: expected kernel(...).launch(grid=..., block=...) of a @cute.kernel function")
            self.expression(made)
            self.arguments(node, allowed.CUTE_LAUNCH)
            return
        super().call(node)
