"""One candidate of several: their code in one file, and a `run` that chooses between them by size.

    def run(x, out):
        if x.shape[0] <= 724:
            run_7(x, out)
        else:
            run_3(x, out)

Names of the module that two parts bind to different things get the part's number. Text is changed at the places of
these names and nowhere else, so sources in other languages and comments stay as they were written. Nothing runs; what
comes out passes the gate like any candidate.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.workers.gate.allowed import LANGUAGES
from warpsmith.workers.gate.gate import parse
from warpsmith.workers.gate.scope import imported
from warpsmith.workers.gate.tunables import TUNE, WHERE

RUN = "run"

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")
_DEF = re.compile(rb"def\s+")


class Unjoinable(ValueError):  # noqa: N818 - named for what was found
    """These candidates make no file together, for the reason in the text."""


@dataclass(frozen=True)
class Part:
    """A candidate to be joined: a number that is its own, and its source."""

    number: int
    source: str


@dataclass(frozen=True)
class Choice:
    """How `run` chooses: an expression of its parameters, and up to which value each part serves; the last has none."""

    quantity: str
    ranges: tuple[tuple[int | None, int], ...]

    def describe(self) -> str:
        """Write the choice in words: "#7 up to x.shape[0] = 724, then #3"."""
        shown = [
            f"#{number} up to {self.quantity} = {limit}" if limit is not None else f"then #{number}"
            for limit, number in self.ranges
        ]
        return ", ".join(shown)


def choose_by_size(workloads: Sequence[Mapping[str, Any]], winners: Mapping[str, int]) -> Choice:
    """Find a size by which the winner of each bench workload can be told, with the fewest changes between them.

    `workloads`: resolved, the bench ones among them; `winners`: the number of a part by workload. Sizes are those of
    the dimensions of tensors, inputs before outputs, then their counts of elements. A boundary lies at the geometric
    mean of the sizes on either side. Raises Unjoinable.
    """
    bench = [workload for workload in workloads if workload["id"] in winners]
    found: list[Choice] = []
    for quantity, sizes in _quantities(bench):
        known = {workload["id"]: size for workload, size in zip(bench, sizes, strict=True)}
        by_size: dict[int, set[int]] = {}
        for name, size in known.items():
            by_size.setdefault(size, set()).add(winners[name])
        if any(len(numbers) > 1 for numbers in by_size.values()):
            continue
        found.append(Choice(quantity, tuple(_ranges({size: min(numbers) for size, numbers in by_size.items()}))))
    if len(set(winners.values())) < 2:
        raise Unjoinable("one of them wins on every workload")
    if not found:
        raise Unjoinable("no size of a tensor tells the workloads apart on which they win")
    return min(found, key=lambda choice: len(choice.ranges))  # of equals the first


def _quantities(bench: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    """Yield each size that all bench workloads have, as an expression of `run`'s parameters and its values."""
    shapes: list[tuple[str, list[list[int]]]] = []
    for place in ("inputs", "outputs"):
        shapes += [
            (items[0]["name"], [list(item["shape"]) for item in items])
            for items in zip(*(workload[place] for workload in bench), strict=True)
            if all(item["shape"] is not None for item in items) and len({len(item["shape"]) for item in items}) == 1
        ]
    for name, found in shapes:
        for dimension in range(len(found[0])):
            yield f"{name}.shape[{dimension}]", [shape[dimension] for shape in found]
    for name, found in shapes:
        yield f"{name}.numel()", [math.prod(shape) for shape in found]


def _ranges(winners: Mapping[int, int]) -> Iterator[tuple[int | None, int]]:
    """Yield, by rising size, up to where each winner serves; the last without a limit."""
    sizes = sorted(winners)
    for size, following in itertools.pairwise(sizes):
        if winners[size] != winners[following]:
            yield max(size, math.isqrt(size * following)), winners[size]
    yield None, winners[sizes[-1]]


def join(parts: Sequence[Part], choice: Choice, language: str) -> str:
    """Write one file of `parts` whose `run` chooses by `choice`.

    Tunables stay at the numbers that are in the files: they were chosen. Raises Unjoinable where a part is no Python, a
    name that has to change stands where it cannot be found, or their imports contradict each other.
    """
    if language not in LANGUAGES:
        raise Unjoinable(f"candidates in {language!r} are not read, expected one of {', '.join(LANGUAGES)}")
    modules = [_Module.read(part) for part in parts]
    clashes = _clashes(modules)
    imports = dict.fromkeys(itertools.chain.from_iterable(module.imports for module in modules))
    future = [line for line in imports if line.startswith("from __future__")]
    lines = [*future, *(line for line in imports if line not in future), ""]
    bodies = [module.body(clashes) for module in modules]
    return "\n".join([*lines, *bodies, _dispatch(modules, choice)])


def _dispatch(modules: Sequence[_Module], choice: Choice) -> str:
    arguments = modules[0].parameters
    if any(module.parameters != arguments for module in modules):
        raise Unjoinable("their `run` take other parameters")
    called = ", ".join(arguments)
    lines = [f"def {RUN}({called}):"]
    for limit, number in choice.ranges[:-1]:
        word = "if" if len(lines) == 1 else "elif"
        lines += [f"    {word} {choice.quantity} <= {limit}:", f"        {_renamed(RUN, number)}({called})"]
    lines += ["    else:", f"        {_renamed(RUN, choice.ranges[-1][1])}({called})"]
    return "\n".join(lines) + "\n"


def _renamed(name: str, number: int) -> str:
    return f"{name}_{number}"


def _clashes(modules: Sequence[_Module]) -> frozenset[str]:
    """Return the names that have to change: `run`, and those that one part defines and another has at all."""
    defined = frozenset(itertools.chain.from_iterable(module.defined for module in modules))
    clashes = {name for name in defined if sum(name in module.names for module in modules) > 1} | {RUN}
    bound: dict[str, str] = {}
    for module in modules:
        for name, origin in module.bound.items():
            if bound.setdefault(name, origin) != origin or name in defined:
                raise Unjoinable(f"the name {name!r} is imported in one of them and something else in another")
    every = frozenset(itertools.chain.from_iterable(module.names for module in modules))
    taken = [name for name in clashes for module in modules if _renamed(name, module.part.number) in every]
    if taken:
        raise Unjoinable(f"the name {taken[0]!r} cannot be told apart by the candidates' numbers")
    return frozenset(clashes)


@dataclass(frozen=True)
class _Module:
    """A part as it was read: imports as text and as bindings, and the names that its module defines or has at all."""

    part: Part
    tree: ast.Module
    data: bytes
    starts: tuple[int, ...]
    imports: tuple[str, ...]
    bound: Mapping[str, str]
    defined: frozenset[str]
    names: frozenset[str]
    parameters: tuple[str, ...]

    @classmethod
    def read(cls, part: Part) -> _Module:
        """Read a part; raises Unjoinable."""
        try:
            tree = parse(part.source)
        except SyntaxError as error:
            raise Unjoinable(f"#{part.number} is not Python: {error.msg}") from error
        data = part.source.encode("utf-8", "surrogatepass")
        imports: list[str] = []
        bound: dict[str, str] = {}
        defined: set[str] = set()
        for before, after in itertools.pairwise(tree.body):
            if before.end_lineno is not None and before.end_lineno >= after.lineno:
                raise Unjoinable(f"#{part.number} has two statements in line {after.lineno}")
        for statement in tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                imports.append(ast.unparse(statement))
                bound |= dict(imported(statement))
            elif isinstance(statement, ast.FunctionDef):
                defined.add(statement.name)
            elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
                defined |= _stored(statement)
            elif not _is_text(statement):
                raise Unjoinable(f"#{part.number} has a {type(statement).__name__} in line {statement.lineno}")
        runs = [found for found in tree.body if isinstance(found, ast.FunctionDef) and found.name == RUN]
        if len(runs) != 1:
            raise Unjoinable(f"#{part.number} has {len(runs)} functions `{RUN}`, expected one")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | defined
        names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        parameters = tuple(argument.arg for argument in (*runs[0].args.posonlyargs, *runs[0].args.args))
        starts = tuple(match.start() for match in _LINE.finditer(data))
        return cls(part, tree, data, starts, tuple(imports), bound, frozenset(defined), frozenset(names), parameters)

    def body(self, clashes: frozenset[str]) -> str:
        """Return the text without imports, tunables and docstring, its clashing names renamed."""
        changes: list[tuple[int, int, bytes]] = []
        for statement in self.tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)) or _is_text(statement) or _declares(statement):
                changes.append((*self._span(statement), b""))
            else:
                changes += self._renames(statement, clashes - {TUNE, WHERE})
        data = self.data
        for start, end, changed in sorted(changes, reverse=True):
            data = data[:start] + changed + data[end:]
        text = data.decode("utf-8", "surrogatepass").strip("\n")
        return f"\n# From #{self.part.number}\n\n{text}\n\n"

    def _span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def _renames(self, statement: ast.stmt, clashes: frozenset[str]) -> Iterator[tuple[int, int, bytes]]:
        """Yield the places of clashing names of the module in one of its statements, with their new text."""
        local: set[str] = set()
        if isinstance(statement, ast.FunctionDef):
            arguments = (node.arg for node in ast.walk(statement) if isinstance(node, ast.arg))
            local = _stored(statement) | set(arguments)
            if statement.name in clashes:
                yield self._name_of(statement)
        outside = {id(node) for found in _read_outside(statement) for node in ast.walk(found)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in clashes and (node.id not in local or id(node) in outside):
                start, end = self._span(node)
                if self.data[start:end] != node.id.encode():  # within an f-string, places are not what they say
                    raise Unjoinable(f"#{self.part.number}: {node.id!r} in line {node.lineno} cannot be renamed")
                yield start, end, _renamed(node.id, self.part.number).encode()

    def _name_of(self, function: ast.FunctionDef) -> tuple[int, int, bytes]:
        found = _DEF.match(self.data, self.starts[function.lineno - 1] + function.col_offset)
        if found is None:
            raise Unjoinable(f"#{self.part.number}: the name of {function.name!r} cannot be found")
        return (
            found.end(),
            found.end() + len(function.name.encode()),
            _renamed(function.name, self.part.number).encode(),
        )


def _read_outside(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield what a function's definition reads among the module's names: decorators, defaults and annotations."""
    if not isinstance(statement, ast.FunctionDef):
        return
    yield from statement.decorator_list
    yield from statement.args.defaults
    yield from (default for default in statement.args.kw_defaults if default is not None)
    yield from (node.annotation for node in ast.walk(statement.args) if isinstance(node, ast.arg) and node.annotation)
    if statement.returns is not None:
        yield statement.returns


def _stored(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _declares(statement: ast.stmt) -> bool:
    """Check whether a statement declares tunables."""
    return isinstance(statement, (ast.Assign, ast.AnnAssign)) and bool(_stored(statement) & {TUNE, WHERE})


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
