"""An adapter's result, one candidate for the judge, and the code that all candidates share.

Free Python, as a kernel's own project wrote it, takes and returns its format's values; a candidate is given
inputs and outputs. The returned values are copied into the outputs within the call, so that a result that is
computed late is computed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.job.documents import FREE_PYTHON
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.resolve import arguments

LANGUAGE = FREE_PYTHON

_DELIVERED = '''

def _delivered(what, returned, outputs):
    """Copy what was returned into the op's outputs."""
    found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(found) != len(outputs):
        raise ValueError(f"{what} returned {len(found)} results, the op has {len(outputs)} outputs")
    for number, (tensor, output) in enumerate(zip(found, outputs)):
        if isinstance(tensor, (bool, int, float)) and output.dim() == 0:
            output.fill_(tensor)
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{what}: result {number} is a {type(tensor).__name__}, not a tensor")
        found_kind, wanted = (tuple(tensor.shape), tensor.dtype), (tuple(output.shape), output.dtype)
        if found_kind != wanted:
            raise ValueError(f"{what}: result {number} has shape and dtype {found_kind}, the op declares {wanted}")
        output.copy_(tensor)
'''


@dataclass(frozen=True)
class Adapted:
    """A file of a format as the source of a candidate in LANGUAGE."""

    format: str
    source: str
    notes: tuple[str, ...] = ()


def require_origin(op: Op, format_name: str, what: str) -> None:
    """Raise SpecErrors where the op did not come from this format.

    Then nothing says which arguments the file takes.
    """
    origin = None if op.origin is None else op.origin.format
    if origin != format_name:
        found = f"{op.name}, imported from {origin}" if origin else f"{op.name}, which was not imported"
        raise refused("op", found, f"an op that was imported from {format_name}, for {what}")


def assembled(head: str, body: str, op: Op, call: str) -> str:
    """Return the candidate: packed files, the adapter's own functions, and `run`.

    The parameters of `run` are the op's; its body is `call`.
    """
    parameters = ", ".join([*(item.name for item in arguments(op)), *(item.name for item in op.outputs)])
    return f"{head}\nimport torch\n\n{body.strip()}\n{_DELIVERED}\n\ndef run({parameters}):\n    {call}\n"


def tuple_of(names: Sequence[str]) -> str:
    """Return Python source of a tuple of names."""
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
