"""Checks of `@triton.jit` and `@gluon.jit` functions.

They are compiled, but Triton's interpreter runs Triton's as Python, and what the compiler evaluates is Python too, so
they are held as tightly as host code.
"""

from __future__ import annotations

import ast

from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.bodies import Body
from warpsmith.workers.gate.expressions import short, spelled


class Kernel(Body):
    """A checker of one kernel's function."""

    where = "in a kernel"
    comprehensions = False
    format_strings = False

    @property
    def _attributes(self) -> frozenset[str]:
        return allowed.KERNEL_ATTRIBUTES.get(self.scope.language, frozenset())

    @property
    def _decorated(self) -> str:
        return f"@{self.scope.language}.jit"

    @property
    def _modules(self) -> str:
        gluon = "gluon.language, its nvidia.ampere and nvidia.hopper,"
        return f"{gluon if self.scope.language == 'gluon' else 'triton.language'} or libdevice"

    def matmul(self, node: ast.BinOp) -> None:
        """Refuse `a @ b`, which kernels do not have."""
        product = "warpgroup_mma" if self.scope.language == "gluon" else "tl.dot"
        self.refuse(node, f"`@` is not allowed in a kernel: expected {product}")

    def name(self, node: ast.Name) -> None:
        """Check a name: a local, a module constant, or a kernel as the function of a reduction."""
        known = node.id in self.locals or node.id in self.scope.constants or node.id in self.scope.jitted
        dotted = self.scope.imports.get(node.id)
        if known or (dotted is not None and dotted in self.scope.kernel_names):
            return
        self.refuse(
            node,
            f"name `{node.id}` is not allowed in a kernel: "
            f"expected a local, a module constant or another {self._decorated} function",
        )

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute: an allowed name or enum member of the language, or of a value."""
        dotted = self.scope.dotted(node)
        if dotted is not None:
            if dotted not in self.scope.kernel_names | allowed.KERNEL_VALUES:
                self.refuse(node, f"`{dotted}` is not allowed in a kernel: expected a function of {self._modules}")
        elif node.attr not in self._attributes:
            self.refuse(
                node,
                f"attribute `.{node.attr}` is not allowed in a kernel: expected one of {short(self._attributes)}",
            )
        else:
            self.expression(node.value)

    def call(self, node: ast.Call) -> None:
        """Check a call: of a builtin, a kernel, a function of the language or a value's method."""
        function = node.func
        if isinstance(function, ast.Name):
            imported = self.scope.imports.get(function.id, "") in self.scope.kernel_names
            known = function.id in allowed.KERNEL_BUILTINS or function.id in self.scope.jitted
            if function.id in self.locals or not (imported or known):
                self.refuse(
                    node,
                    f"a call of `{function.id}` is not allowed in a kernel: "
                    f"expected a {self._decorated} function or one of {short(allowed.KERNEL_BUILTINS)}",
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
