"""An exported package as what can take a place in a model: its op, its guards, and whether it is right there."""

from __future__ import annotations

import importlib
import inspect
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch


class NotUsable(ValueError):  # noqa: N818 - named for what was found
    """A package whose op cannot stand in a model; the message says why."""


class Kernel:
    """One package. `name` is the package's, `op` its op's."""

    def __init__(self, package: ModuleType) -> None:
        """Raises NotUsable where it is no package of this kind."""
        self.package = package
        self.name = package.__name__.rpartition(".")[2]
        try:
            spec = importlib.import_module(f"{package.__name__}._spec")
            self._compare = importlib.import_module(f"{package.__name__}._compare")
            self._control = importlib.import_module(f"{package.__name__}._control")
            self._admit = importlib.import_module(f"{package.__name__}._guard").admit
        except (ImportError, AttributeError) as error:
            raise NotUsable(f"{self.name}: {error}") from None
        self.op: str = spec.NAME
        self.function = getattr(package, self.op)
        tensors = [at for at, parameter in enumerate(spec.PARAMETERS) if parameter["rank"] is not None]
        self.mutated = tuple(tensors.index(at) for at in spec.MUTATED)
        """Which of the op's tensors it writes to."""
        workloads = json.loads((Path(inspect.getfile(package)).parent / "workloads.json").read_text(encoding="utf-8"))
        self._workloads: list[list[dict[str, Any]]] = [workload["inputs"] for workload in workloads]
        self._parameters = self._workloads[0]

    def smallest(self) -> list[dict[str, Any]]:
        """The tensors of the verified workload with the fewest elements: `shape`, `dtype` and more of each."""
        tensors = [[item for item in inputs if item["shape"] is not None] for inputs in self._workloads]
        return min(tensors, key=lambda items: sum(math.prod(item["shape"]) for item in items))

    def integers(self, position: int) -> range | None:
        """The integers that a tensor had in every verified workload; None where nothing says, or none are common."""
        tensors = [[item for item in inputs if item["shape"] is not None][position] for inputs in self._workloads]
        dists = [item["dist"] or {} for item in tensors]
        if any(dist.get("kind") != "randint" for dist in dists):
            return None
        return range(max(dist["low"] for dist in dists), min(dist["high"] for dist in dists)) or None

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
        return self._control.unwatched

    def off(self) -> str | None:
        """Why the package's kernels serve no call at all now (switched off, given up); None where they may."""
        out = self._control.out()
        if len(out) < len(self._control.NAMES):
            return None
        return str(self._control.refusal(self._control.NAMES[0]))

    def outside(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float | None] = ()) -> str | None:
        """Why this call is outside of the kernels' envelope; None where it is inside."""
        found = self._admit(tuple(self.arguments(tensors, numbers)))
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
        compare, arguments = self._compare, self.arguments(tensors, numbers)
        with torch.no_grad():
            eager = compare.reference(compare.clones(arguments))
            exact = compare.reference(compare.widened(arguments))
            if [(t.shape, t.dtype) for t in eager] != [(t.shape, t.dtype) for t in expected]:
                return "the op's results have other shapes or dtypes than the model's"
            model = compare.compare(list(expected), eager, exact)
            if not model.agrees:
                return f"the model computes something else here: its error by the op is {model.error:.1e}"
            with self.unwatched():  # the watch would put PyTorch's result in the place of a wrong one
                given = compare.clones(arguments)
                found = compare.compare(compare.written(self.function(*given), given), eager, exact)
        if found.agrees:
            return None
        return f"the kernel's result is wrong: relative error {found.error:.1e}, allowed {found.limit:.1e}"
