"""Read the C++ and CUDA sources inside a candidate, and place compiler messages in it.

From its syntax tree, without running it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from warpsmith.kernels_db.runtime.signatures import signatures
from warpsmith.workers.gate import allowed
from warpsmith.workers.gate.gate import parse
from warpsmith.workers.gate.scope import Scope, compile_call, constant_literal, constant_text, read_scope

# Messages of NVRTC and g++ name a line of the source; those of ptxas an instruction in the assembly.
_PLACES = (re.compile(r"candidate\.cu\((\d+)\)"), re.compile(r"candidate\.cpp:(\d+)"))
_INSTRUCTION = re.compile(r"(?:Instruction|Feature|Modifier) '\.?(\w+)")
_FUNCTION = re.compile(r"(?:function|of) '(\w+)'")
_TARGET = re.compile(r"not supported on \.target|requires \.target|require \.target|not allowed on \.target")


@dataclass(frozen=True)
class KernelSource:
    """One constant source of a candidate.

    The module's name for it, its text, its flags, and the lines where its literal begins and ends.
    """

    name: str
    language: str
    source: str
    flags: tuple[str, ...]
    line: int
    end_line: int

    def place(self, number: int) -> int:
        """Return the candidate's line of a line of the source.

        That of the literal where the two do not run in step.
        """
        in_step = self.source.count("\n") == self.end_line - self.line
        return self.line + number - 1 if in_step else self.line

    def located(self, message: str, architecture: str = "") -> str:
        """Put the candidate's line before a compiler's message.

        Where the message names a line, a function or an instruction; with the remedy for another architecture's
        instructions.
        """
        found = [self.place(int(match[1])) for pattern in _PLACES for match in pattern.finditer(message)]
        for pattern, after in ((_INSTRUCTION, ""), (_FUNCTION, r"\s*\(")):
            named = pattern.search(message)
            place = re.search(rf"\b{named[1]}{after}", self.source) if named is not None else None
            if not found and place is not None:
                found = [self.place(self.source.count("\n", 0, place.start()) + 1)]
        remedy = f"; the target is {architecture}: expected what it has" if _TARGET.search(message) else ""
        return (f"line {found[0]}: " if found else "") + message + (remedy if architecture else "")


def kernel_sources(source: str) -> list[KernelSource]:
    """Return the arguments of each module-level `cpp.compile` and `cuda.compile`, in order.

    Those with a constant source.

    Raises:
        SyntaxError: `source` is not Python.
    """
    return kernel_sources_of(parse(source))


def kernel_sources_of(tree: ast.Module) -> list[KernelSource]:
    """Return `kernel_sources` of a candidate that is parsed."""
    found = []
    for language in allowed.COMPILERS:
        scope = read_scope(tree, language)
        for node in tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                found += _compiled(node, node.value, scope, language)
    return sorted(found, key=lambda entry: entry.line)


def _compiled(node: ast.Assign | ast.AnnAssign, value: ast.expr, scope: Scope, language: str) -> list[KernelSource]:
    call = compile_call(scope, value)
    if call is None or scope.dotted(call.func) != allowed.COMPILERS[language]:
        return []
    arguments = dict(zip(("source", "flags"), call.args, strict=False))
    arguments.update({keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in ("source", "flags")})
    text = constant_text(scope, arguments["source"]) if "source" in arguments else None
    if text is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    name = next((target.id for target in targets if isinstance(target, ast.Name)), "kernels")
    flags = _strings(scope, arguments.get("flags"))
    literal = constant_literal(scope, arguments["source"])
    return [KernelSource(name, language, text, flags, literal.lineno, literal.end_lineno or literal.lineno)]


def _strings(scope: Scope, node: ast.expr | None) -> tuple[str, ...]:
    """Return the constant strings of a tuple or list, or of the constant that names one."""
    if isinstance(node, ast.Name):
        node = scope.constants.get(node.id)
    entries = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
    return tuple(entry.value for entry in entries if isinstance(entry, ast.Constant) and isinstance(entry.value, str))


def own_kernels(source: str, language: str) -> list[str]:
    """Return the names under which a candidate's own kernels run on a device.

    Those of its `__global__` functions, or of its decorated functions. Empty for C++.

    Raises:
        SyntaxError: `source` is not Python.
        CompileError: a CUDA source declares what no argument fits.
    """
    if language in allowed.DECORATORS:
        behind = "_kernel" if language == "tilelang" else ""  # of a @T.prim_func, which has one kernel
        return [f"{name}{behind}" for name in read_scope(parse(source), language).jitted]
    entries = [entry for entry in kernel_sources(source) if entry.language == language == "cuda"]
    return [name for entry in entries for name in signatures(entry.source, cuda=True)]
