"""An exported package as what can take a place in a model: its op, its guards, and whether it is right there."""

from __future__ import annotations

import compileall
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


class NotUsable(ValueError):  # noqa: N818 - named for what was found
    """A package whose op cannot stand in a model; the message says why."""


class Kernel:
    """One package. `name` is the package's, `op` its op's; `spec` and `reference` are two modules of it."""

    def __init__(self, package: ModuleType | Path) -> None:
        """package: a package, or the directory of one that is imported when the first of its places is found: until
        then only its `_spec` and `_reference` are, which import none of the others.

        Raises NotUsable where it is no package of this kind.
        """
        if isinstance(package, Path):
            self.name, self._directory = package.name, package
            self.spec, self.reference = (_alone(package / f"{part}.py") for part in ("_spec", "_reference"))
        else:
            self.name, self._directory = package.__name__.rpartition(".")[2], Path(inspect.getfile(package)).parent
            try:
                self.spec, self.reference = (
                    importlib.import_module(f"{package.__name__}.{part}") for part in ("_spec", "_reference")
                )
                vars(self)["package"] = package
                self._parts  # noqa: B018 - now, for what it raises
            except (ImportError, AttributeError) as error:
                raise NotUsable(f"{self.name}: {error}") from None
        self.op: str = self.spec.NAME
        tensors = [at for at, parameter in enumerate(self.spec.PARAMETERS) if parameter["rank"] is not None]
        self.mutated = tuple(tensors.index(at) for at in self.spec.MUTATED)
        """Which of the op's tensors it writes to."""
        workloads = json.loads((self._directory / "workloads.json").read_text(encoding="utf-8"))
        self.workloads: list[list[dict[str, Any]]] = [workload["inputs"] for workload in workloads]
        """The arguments of each verified workload: of a tensor `shape`, `dtype` and more, of a number its `value`."""
        self._axes: list[dict[str, int]] = [workload["axes"] for workload in workloads]
        self._parameters = self.workloads[0]
        self.whole = ["float" not in item["dtype"] for item in self._parameters if item["shape"] is None]
        """Of each of the op's numbers whether it is an integer, or a truth value."""

    @functools.cached_property
    def package(self) -> ModuleType:
        """The package, imported here where it was not before."""
        _write_bytecode(self._directory)
        sys.path.insert(0, str(self._directory.parent))
        try:
            return importlib.import_module(self.name)
        finally:
            sys.path.remove(str(self._directory.parent))

    @functools.cached_property
    def _parts(self) -> tuple[ModuleType, ModuleType, Callable[[tuple[Any, ...]], Any]]:
        """The package's comparison, its switches, and its guard."""
        compare, control, guard = (
            importlib.import_module(f"{self.package.__name__}.{part}") for part in ("_compare", "_control", "_guard")
        )
        return compare, control, guard.admit

    @property
    def function(self) -> Callable[..., Any]:
        """The package's function of the op's name."""
        found: Callable[..., Any] = getattr(self.package, self.op)
        return found

    @functools.cached_property
    def call(self) -> torch._ops.OpOverload:
        """The operator that serves where no gradients are asked for."""
        found = importlib.import_module(f"{self.package.__name__}._op").inference_op
        operator: torch._ops.OpOverload = getattr(found, "_opoverload", found)  # of an op in place it is a CustomOpDef
        return operator

    def numbers(self, inputs: Sequence[dict[str, Any]]) -> list[Any]:
        """The numbers among the arguments of a workload."""
        return [item["value"] for item in inputs if item["shape"] is None]

    def number(self, at: int) -> Any:
        """The number at this position among the op's numbers that it was verified with first."""
        return self.numbers(self._parameters)[at]

    def output_shapes(self, inputs: Sequence[dict[str, Any]]) -> list[tuple[int, ...]]:
        """The shapes of the op's outputs in a workload; none where its axes are not known."""
        tensors = [torch.empty(item["shape"], device="meta") for item in inputs if item["shape"] is not None]
        axes = self.spec.bind_axes(*self.arguments(tensors, self.numbers(inputs)))
        found: list[tuple[int, ...]] = [] if isinstance(axes, str) else self.spec.output_shapes(axes)
        return found

    def groups(self, position: int) -> tuple[str, bool] | None:
        """The axis of the op that a tensor of integers divides into groups, and whether these begin with a 0 in front
        of their ends: `indptr` or `ends` in every verified workload, with a total that is one axis's size in all of
        them. None for any other.
        """
        dists = self._dists(position)
        kinds = {dist.get("kind") for dist in dists}
        if kinds not in ({"indptr"}, {"ends"}):
            return None
        named = self._axis([dist["total"] for dist in dists])
        return None if named is None else (named, kinds == {"indptr"})

    def indexed(self, position: int) -> str | None:
        """The axis of the op that a tensor of integers indexes: `randint` from 0 to its size in every verified
        workload. None for any other.
        """
        dists = self._dists(position)
        if any(dist.get("kind") != "randint" or dist["low"] != 0 for dist in dists):
            return None
        return self._axis([dist["high"] for dist in dists])

    def _axis(self, sizes: Sequence[int]) -> str | None:
        """The one axis that has these sizes in the verified workloads; None where none or several have."""
        pairs = list(zip(sizes, self._axes, strict=True))
        named = [name for name in self._axes[0] if all(size == axes[name] for size, axes in pairs)]
        return named[0] if len(named) == 1 else None

    def _dists(self, position: int) -> list[dict[str, Any]]:
        """The distributions of a tensor in every verified workload; empty where none is said."""
        tensors = [[item for item in inputs if item["shape"] is not None][position] for inputs in self.workloads]
        return [item["dist"] or {} for item in tensors]

    def integers(self, position: int, *, single: bool) -> range | None:
        """The integers that a tensor had in every verified workload; None where nothing says, or none are common.

        Of more than a single one they are only said where they are all that the dtype has: others may be indices, and a
        model may have some that no workload had.
        """
        dists = self._dists(position)
        if any(dist.get("kind") != "randint" for dist in dists):
            return None
        found = range(max(dist["low"] for dist in dists), min(dist["high"] for dist in dists))
        tensors = [item for item in self._parameters if item["shape"] is not None]
        every = torch.iinfo(getattr(torch, tensors[position]["dtype"]))
        return (found or None) if single or found == range(every.min, every.max + 1) else None

    def arguments(self, tensors: Sequence[Any], numbers: Sequence[float | None] = ()) -> list[Any]:
        """The op's arguments: tensors (or graph nodes) in order, and between them `numbers`; in place of one that is
        None or not given, the number that it was verified with.
        """
        rest, given = iter(tensors), iter(numbers)
        found = []
        for item in self._parameters:
            if item["shape"] is not None:
                found.append(next(rest))
            else:
                number = next(given, None)
                found.append(item["value"] if number is None else number)
        return found

    @property
    def unwatched(self) -> Any:
        """A context in which the package does not compare calls with PyTorch's."""
        return self._parts[1].unwatched

    def off(self) -> str | None:
        """Why the package's kernels serve no call at all now (switched off, given up); None where they may."""
        if "package" not in vars(self) and self.name not in sys.modules and not _switched_off():
            return None
        control = self._parts[1]
        out = control.out()
        if len(out) < len(control.NAMES):
            return None
        return str(control.refusal(control.NAMES[0]))

    def outside(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()) -> str | None:
        """Why this call is outside of the kernels' envelope; None where it is inside."""
        found = self._parts[2](tuple(self.arguments(tensors, numbers)))
        return found if isinstance(found, str) else None

    def refusal(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()) -> str | None:
        """Why the kernel itself would not serve this call; None where it would."""
        said = str(self.package.explain(*self.arguments(tensors, numbers)))
        return said.removeprefix("PyTorch: ") if said.startswith("PyTorch") else None

    def wrong(
        self,
        tensors: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        numbers: Sequence[float | None] = (),
    ) -> str | None:
        """What is wrong with the op in this place: its reference is no stand-in for what the model computes here
        (`expected`), or the kernel is none for its reference. None where both are right, by the package's own rule.
        """
        compare, arguments = self._parts[0], self.arguments(tensors, numbers)
        with torch.no_grad():
            of_op = compare.expected(arguments)
            if [(t.shape, t.dtype) for t in of_op.eager] != [(t.shape, t.dtype) for t in expected]:
                return "the op's results have other shapes or dtypes than the model's"
            model = compare.compare(list(expected), of_op)
            if not model.agrees:
                return f"the model computes something else here: its error by the op is {model.error:.1e}"
            with self.unwatched():  # the watch would put PyTorch's result in the place of a wrong one
                given = compare.clones(arguments)
                found = compare.compare(compare.written(self.function(*given), given), of_op)
        if found.agrees:
            return None
        return f"the kernel's result is wrong: relative error {found.error:.1e}, allowed {found.limit:.1e}"


def _write_bytecode(place: Path) -> None:
    """Write the bytecode of a package's module, or of all, where Python writes none by itself and it is not there yet.

    For packages in the user's cache, which are this program's own: many containers ask Python not to write beside
    sources (PYTHONDONTWRITEBYTECODE), and their every process would compile 20 modules of each package anew. It is
    written when a package is used, not when it is built: most that are built have no place, and the modules of all take
    four seconds. Where it cannot be written, Python compiles what it imports, as without this.
    """
    if not sys.dont_write_bytecode:
        return
    if place.is_dir():
        compileall.compile_dir(place, quiet=2)
    else:
        compileall.compile_file(place, quiet=2)


def _switched_off() -> bool:
    """Return whether the environment may switch a package off: each reads variables of its own and some of all."""
    return any(name.startswith("WARPSMITH") and value == "off" for name, value in os.environ.items())


def _alone(file: Path) -> ModuleType:
    """Import a module of a package by itself, under a name of its own."""
    _write_bytecode(file)
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}{file.stem}", file)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - the file's name ends in .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
