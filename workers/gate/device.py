"""Checks of `@triton.jit` functions.

Triton compiles them, but its interpreter runs them as Python, so they are held as tightly as host code.
"""

from __future__ import annotations

import ast

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.bodies import Body
from warpsmith.workers.gate.expressions import short, spelled


class Kernel(Body):
    """A checker of one `@triton.jit` function."""

    where = "in a kernel"
    comprehensions = False
    format_strings = False

    def matmul(self, node: ast.BinOp) -> None:
        """Refuse `a @ b`: Triton has no `@`."""
        self.refuse(node, "`@` is not allowed in a kernel: expected tl.dot")

    def name(self, node: ast.Name) -> None:
        """Check a name: a local, a module constant, or a kernel as the function of a reduction."""
        known = node.id in self.locals or node.id in self.scope.constants or node.id in self.scope.jitted
        dotted = self.scope.imports.get(node.id)
        if known or (dotted is not None and dotted in allowed.KERNEL_NAMES):
            return
        self.refuse(
            node,
            f"name `{node.id}` is not allowed in a kernel: "
            "expected a local, a module constant or another @triton.jit function",
        )

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute: an allowed name or enum member of `triton.language`, or of a value."""
        dotted = self.scope.dotted(node)
        if dotted is not None:
            if dotted not in allowed.KERNEL_NAMES | allowed.KERNEL_VALUES:
                self.refuse(
                    node, f"`{dotted}` is not allowed in a kernel: expected a function of triton.language or libdevice"
                )
        elif node.attr not in allowed.KERNEL_ATTRIBUTES:
            self.refuse(
                node,
                f"attribute `.{node.attr}` is not allowed in a kernel: "
                f"expected one of {short(allowed.KERNEL_ATTRIBUTES)}",
            )
        else:
            self.expression(node.value)

    def call(self, node: ast.Call) -> None:
        """Check a call: of a builtin, a kernel, a `triton.language` function or a value's method."""
        function = node.func
        if isinstance(function, ast.Name):
            imported = self.scope.imports.get(function.id, "") in allowed.KERNEL_NAMES
            known = function.id in allowed.KERNEL_BUILTINS or function.id in self.scope.jitted
            if function.id in self.locals or not (imported or known):
                self.refuse(
                    node,
                    f"a call of `{function.id}` is not allowed in a kernel: "
                    f"expected a @triton.jit function or one of {short(allowed.KERNEL_BUILTINS)}",
                )
        elif self.scope.dotted(function) in allowed.KERNEL_VALUES:
            self.refuse(node, f"a call of {spelled(function)} is not allowed in a kernel: it is a value")
        elif isinstance(function, ast.Attribute):
            self.attribute(function)
        else:
            self.refuse(
                node, f"a call of {spelled(function)} is not allowed in a kernel: expected a function by its name"
            )
        self.arguments(node)
