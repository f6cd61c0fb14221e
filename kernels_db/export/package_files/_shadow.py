"""Shadow mode and the watch: a call that the kernel serves is checked against PyTorch, beside the user's own work.

Where the two differ the call returns PyTorch's result, PyTorch serves from then on, and the inputs are saved:
`inputs.pt` (the tensors, loadable with `weights_only=True`) and `workload.json`, an entry for `workloads` of the op's
spec. They are the user's own data: WARPSMITH_SHADOW_DIR names the directory, by default a private temporary one. The
watch, which nobody asked for, saves them only where that is set.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from . import _compare, _control, _guard, _math, _spec

DIRECTORY_VARIABLE = "WARPSMITH_SHADOW_DIR"
LARGEST_WATCHED = 64 << 20
"""Bytes of inputs and outputs up to which the watch checks a call."""


class Shadow:
    """One call under examination. Made before the kernel runs, because it may write into its inputs."""

    def __init__(self, arguments: tuple[Any, ...], admitted: _guard.Admitted) -> None:
        self._arguments = arguments
        self._kernel = admitted.kernel.name
        self._axes = admitted.axes
        self._before = _compare.clones(arguments)

    def settle(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The outputs that the call returns: the kernel's, or PyTorch's where the kernel's are wrong. Mutated inputs
        are put right as well.
        """
        try:
            with _math.setting(cautious=True):
                expected = _compare.expected(self._before)
            found = outputs + [self._arguments[position] for position in _spec.MUTATED]
            compared = _compare.compare(found, expected)
        except Exception as error:  # noqa: BLE001 - the user's own call came off, and what did not is told
            _unchecked(error)
            return outputs
        _control.shadowed("checked")
        if compared.agrees:
            return outputs
        _control.shadowed("mismatches")
        right = [each.contiguous() for each in expected.eager[: len(outputs)]]
        for position, own in zip(_spec.MUTATED, expected.eager[len(outputs) :], strict=True):
            self._arguments[position].copy_(own)
        _control.trip(
            self._kernel,
            f"{_control.checker()} found a wrong result at {self._axes} (error {compared.error:.2e}, limit "
            f"{compared.limit:.2e}); {self._saved(compared)}",
        )
        return right

    def _saved(self, compared: _compare.Comparison) -> str:
        if _control.mode() != "shadow" and not os.environ.get(DIRECTORY_VARIABLE):
            return f"its inputs are saved where {DIRECTORY_VARIABLE} is set"
        try:
            return f"its inputs are in {save(self._before, self._axes, compared, self._kernel)}"
        except (OSError, RuntimeError) as error:
            return f"its inputs could not be saved: {error}"


def begin(arguments: tuple[Any, ...], outputs: list[torch.Tensor], admitted: _guard.Admitted) -> Shadow | None:
    """The call under examination, before the kernel runs; None where it cannot be checked."""
    if admitted.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return None
    _control.begun(admitted.kernel.name)
    if not wanted((*arguments, *outputs)):
        return None
    try:
        return Shadow(arguments, admitted)
    except Exception as error:  # noqa: BLE001 - out of memory, say: no reason for the user's own call to fail
        _unchecked(error)
        return None


def wanted(values: tuple[Any, ...]) -> bool:
    """Whether a call with these arguments and outputs can be checked: not where copies would fill the memory, nor where
    the check would change the arithmetic of other threads.
    """
    size = sum(a.numel() * a.element_size() for a in values if isinstance(a, torch.Tensor))
    if size > (_compare.LARGEST_BYTES if _control.mode() == "shadow" else LARGEST_WATCHED):
        _control.shadowed("unchecked")
        return False
    reason = _math.refusal()
    if reason is not None:
        _control.shadowed("unchecked")
        _control.note(f"{_control.checker()} could not check a call: {reason}")
    return reason is None


def _unchecked(error: Exception) -> None:
    _control.shadowed("unchecked")
    _control.note(f"{_control.checker()} could not check a call: {type(error).__name__}: {error}")


def save(arguments: list[Any], axes: dict[str, int], compared: _compare.Comparison, kernel: str) -> Path:
    """Write the inputs and their workload into a new directory, which is returned."""
    named = {p["name"]: a for p, a in zip(_spec.PARAMETERS, arguments, strict=True)}
    parent = os.environ.get(DIRECTORY_VARIABLE)
    if parent:
        Path(parent).mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{_spec.NAMESPACE}-", dir=parent or None))
    tensors = {name: a.cpu() if isinstance(a, torch.Tensor) else a for name, a in named.items()}
    torch.save(tensors, directory / "inputs.pt")
    digest = hashlib.sha256((directory / "inputs.pt").read_bytes()).hexdigest()
    document = {
        "op": _spec.NAME,
        "package": _spec.NAMESPACE,
        "kernel": kernel,
        "workload": workload(named, axes, f"shadow_{digest[:8]}"),
        "inputs": "inputs.pt",
        "inputs_sha256": digest,
        "error": _number(compared.error),
        "limit": _number(compared.limit),
        "torch": torch.__version__,
    }
    (directory / "workload.json").write_text(json.dumps(document, indent=1))
    return directory


def workload(named: dict[str, Any], axes: dict[str, int], workload_id: str) -> dict[str, Any]:
    """The call as an entry of `workloads` in the op's spec: its sizes, its numbers, and how its tensors were spread."""
    inputs: dict[str, dict[str, Any]] = {}
    for parameter in _spec.PARAMETERS:
        value = named[parameter["name"]]
        if not isinstance(value, torch.Tensor):
            inputs[parameter["name"]] = {"value": value}
        elif (dist := _spread(value, parameter["dist"])) is not None:
            inputs[parameter["name"]] = {"dist": dist}
    sizes = {name: axes[name] for name in _spec.VARIABLE_AXES}
    return {"id": workload_id, "role": "test", "axes": sizes, "inputs": inputs}


def _spread(value: torch.Tensor, kind: str | None) -> dict[str, Any] | None:
    """The op's own kind of distribution with what was seen; None where the op's own has to do."""
    if kind not in {"normal", "uniform"}:
        return None
    wide = value.double()
    first, second = (wide.mean(), wide.std(correction=0)) if kind == "normal" else (wide.min(), wide.max())
    if not (math.isfinite(first) and math.isfinite(second)) or (kind == "uniform" and first >= second):
        return None
    names = ("mean", "std") if kind == "normal" else ("low", "high")
    return {"kind": kind, **dict(zip(names, (float(first), float(second)), strict=True))}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
