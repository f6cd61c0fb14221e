"""Checks of `run` and its helpers.

Shape arithmetic, scratch, views, branches, loops and launches.
"""

from __future__ import annotations

import ast
import re

from warpsmith.kernels_db.runtime import CompileError
from warpsmith.kernels_db.runtime.signatures import signatures
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.bodies import Body
from warpsmith.workers.gate.expressions import short, spelled


class Host(Body):
    """A checker of one host function."""

    where = "in run and helpers"

    def name(self, node: ast.Name) -> None:
        """Check a name: a local or a module constant; functions and modules are not values."""
        if node.id in self.locals or node.id in self.scope.constants:
            return
        if node.id in self.scope.imports:
            self.refuse(
                node, f"module `{node.id}` is not a value: expected one of its allowed functions, called by name"
            )
        elif self.scope.fixed(node.id) or node.id in allowed.BUILTINS:
            self.refuse(node, f"`{node.id}` is not a value: expected it to be called or launched by name")
        else:
            self.refuse(
                node,
                f"name `{node.id}` is not allowed: "
                f"expected a local, a module constant or one of {short(allowed.BUILTINS)}",
            )

    def attribute(self, node: ast.Attribute) -> None:
        """Check an attribute: an allowed one of a value, or an imported constant."""
        dotted = self.scope.dotted(node)
        if dotted is not None:
            if dotted not in allowed.DTYPES and dotted not in allowed.MATH and not self._is_kernel_dtype(dotted):
                self.refuse(
                    node,
                    f"`{dotted}` is not allowed as a value: expected a dtype, a constant of math, or an allowed call",
                )
        elif self._compiled(node) is not None:
            self.refuse(
                node,
                f"kernel `{ast.unparse(node)}` is not a value: expected it to be called or launched where it is named, "
                "in both branches of an `if` where there are two",
            )
        elif node.attr not in allowed.HOST_ATTRIBUTES:
            self.refuse(
                node,
                f"attribute `.{node.attr}` is not allowed: "
                f"expected one of {short(allowed.HOST_ATTRIBUTES)}, or a call of an allowed method",
            )
        else:
            self.expression(node.value)

    def value(self, node: ast.expr | None) -> None:
        """Check a right side, which may also be the lambda of a launch grid of Triton's or Gluon's."""
        if isinstance(node, ast.Lambda) and self.scope.decorators and self.scope.language not in allowed.LAUNCHERS:
            self.grid(node)
        else:
            self.expression(node)

    def grid(self, node: ast.expr) -> None:
        """Check a launch grid: a value, a lambda over the kernel's configuration, a helper's name."""
        if isinstance(node, ast.Lambda):
            self._head(node.args)
            self.expression(node.body)
        elif not (isinstance(node, ast.Name) and node.id in self.scope.functions):
            self.expression(node)

    def raised(self, node: ast.Raise) -> None:
        """Check `raise ValueError(...)` and its like."""
        call = node.exc
        kind = call.func if isinstance(call, ast.Call) else call
        if not isinstance(kind, ast.Name) or kind.id not in allowed.EXCEPTIONS or kind.id in self.locals:
            self.refuse(node, f"raise: found {spelled(node.exc or node)}, expected one of {short(allowed.EXCEPTIONS)}")
        elif isinstance(call, ast.Call):
            self.arguments(call)
        if node.cause is not None:
            self.refuse(node, "raise ... from is not allowed")

    def call(self, node: ast.Call) -> None:
        """Check a call: of a builtin, a helper, an import, a value's method, or a launch."""
        function = node.func
        if isinstance(function, ast.Name):
            self._named_call(node, function)
        elif isinstance(function, ast.Subscript):
            self._launch(node, function)
        elif isinstance(function, ast.Attribute):
            self._attribute_call(node, function)
        else:
            self.refuse(node, f"a call of {spelled(function)} is not allowed: expected a function by its name")

    def _named_call(self, node: ast.Call, function: ast.Name) -> None:
        name = function.id
        dotted = self.scope.imports.get(name)
        if name in self.locals:
            self.refuse(node, f"a call of the local `{name}` is not allowed: expected a function by its own name")
        elif dotted is not None:
            self._imported_call(node, dotted)
        elif name in self.scope.launchers:
            self.arguments(node, frozenset())
        elif name in self.scope.jitted and self.scope.language in allowed.LAUNCHERS:
            makes = ".".join(allowed.LAUNCHERS[self.scope.language][0].split(".")[-2:])
            self.refuse(
                node,
                f"`{name}` is called like a function: expected a call of what `{makes}({name})` gives, "
                "which is made once, at module level",
            )
        elif name in self.scope.jitted:
            self.refuse(node, f"kernel `{name}` is called like a function: expected a launch, {name}[grid](...)")
        elif name in allowed.BUILTINS or name in self.scope.functions:
            self.arguments(node)
        else:
            self.refuse(
                node,
                f"a call of `{name}` is not allowed: expected a helper of yours or one of {short(allowed.BUILTINS)}",
            )

    def _attribute_call(self, node: ast.Call, function: ast.Attribute) -> None:
        dotted = self.scope.dotted(function)
        if dotted is not None:
            self._imported_call(node, dotted)
        elif self._compiled(function) is not None:
            self._kernel_call(node, function)
        elif self._is_launch_method(function):
            self._kernel(function.value)
            self.arguments(node, allowed.CUDA_LAUNCH)
        elif function.attr in allowed.HOST_METHODS or function.attr in self.library:
            self.expression(function.value)
            self.arguments(node)
        else:
            methods = short(allowed.HOST_METHODS | {name for name in self.library if "." not in name})
            self.refuse(
                node, f"method `.{function.attr}()` is not allowed: expected a kernel of yours or one of {methods}"
            )

    def _imported_call(self, node: ast.Call, dotted: str) -> None:
        if dotted in allowed.SCRATCH:
            self.arguments(node, allowed.SCRATCH_KEYWORDS)
        elif dotted in allowed.HOST_CALLS or dotted in self.library:
            self.arguments(node)
        elif dotted in allowed.COMPILERS.values() or dotted in allowed.MAKES_CALLABLE:
            self.refuse(node, f"`{dotted}` is called inside a function: expected it once, at module level")
        else:
            calls = short((allowed.HOST_CALLS - allowed.MATH) | {name for name in self.library if "." in name})
            self.refuse(
                node,
                f"a call of `{dotted}` is not allowed: "
                f"expected a kernel of yours, a function of math, or one of {calls}",
            )

    def _launch(self, node: ast.Call, function: ast.Subscript) -> None:
        """Check `kernel[grid](...)` of Triton and Gluon, `kernels.name[grid, block](...)` of CUDA."""
        kernel = function.value
        jitted = isinstance(kernel, ast.Name) and kernel.id in self.scope.jitted
        by_grid = jitted and self.scope.language not in allowed.LAUNCHERS
        if by_grid and isinstance(kernel, ast.Name) and kernel.id not in self.locals:
            self.grid(function.slice)
            names = {argument.arg for argument in self.scope.jitted[kernel.id].args.args}
            self.arguments(node, allowed.TRITON_LAUNCH | names)
        elif self.scope.language == "cuda" and isinstance(kernel, ast.Attribute) and self._compiled(kernel) is not None:
            self._kernel(kernel)
            self.expression(function.slice)
            self.arguments(node, frozenset())
        else:
            self.refuse(node, f"a launch of {spelled(kernel)} is not allowed: expected one of your kernels by its name")

    def _kernel_call(self, node: ast.Call, function: ast.Attribute) -> None:
        """Check `kernels.name(...)` of C++."""
        if self.scope.language == "cuda":
            self.refuse(
                node,
                f"kernel `{function.attr}` is called like a function: "
                f"expected a launch, {ast.unparse(function)}[grid, block](...)",
            )
        self._kernel(function)
        self.arguments(node, frozenset())

    def _compiled(self, function: ast.Attribute) -> str | None:
        """Return the name of the compiled kernels that `function` is an attribute of."""
        root = function.value
        if isinstance(root, ast.Name) and root.id in self.scope.compiled and root.id not in self.locals:
            return root.id
        return None

    def _is_launch_method(self, function: ast.Attribute) -> bool:
        inner = function.value
        return (
            self.scope.language == "cuda"
            and function.attr == "launch"
            and isinstance(inner, ast.Attribute)
            and self._compiled(inner) is not None
        )

    def _kernel(self, function: ast.expr) -> None:
        """Check that the source defines the kernel.

        An unreadable source is left to the compile gate, which refuses it.
        """
        if not isinstance(function, ast.Attribute):
            return
        source = self.scope.compiled[self._compiled(function) or ""]
        try:
            known = signatures(source or "", cuda=self.scope.language == "cuda")
        except CompileError:
            return
        if function.attr not in known:
            self.refuse(function, f"no kernel named {function.attr!r} in the source: expected one of {short(known)}")

    def _is_kernel_dtype(self, dotted: str) -> bool:
        """Check whether a name of the kernels' language is an element type, which host code passes as a constant."""
        element = re.fullmatch(r"triton\.(experimental\.gluon\.)?language\.(u?int|b?float)\d+(e\d+\w*)?", dotted)
        return element is not None and dotted in self.scope.kernel_names
