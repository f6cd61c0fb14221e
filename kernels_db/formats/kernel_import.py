"""Recognises a kernel of another format and makes it a candidate file for the judge.

Source is only rewritten here; nothing of it runs. The result is free Python, of the judge's sandbox tier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from warpsmith.kernels_db.formats.flashinfer import solution
from warpsmith.kernels_db.formats.gpu_mode import submission
from warpsmith.kernels_db.formats.kernelbench import model_new
from warpsmith.kernels_db.formats.shared.adapted_kernel import LANGUAGE, Adapted
from warpsmith.kernels_db.formats.shared.files import RawFile, refused
from warpsmith.kernels_db.spec.op import Op

__all__ = ["FORMATS", "LANGUAGE", "Adapted", "adapt", "recognise"]


class Format(NamedTuple):
    """One format: its expectation of a file, and its functions, as its module says them."""

    expected: str
    claim: Callable[[RawFile], bool]
    adapt: Callable[[RawFile, Op], Adapted]


FORMATS: Mapping[str, Format] = {
    module.FORMAT: Format(module.EXPECTED, module.claim, module.adapt) for module in (model_new, solution, submission)
}


def recognise(file: RawFile) -> str | None:
    """Return the format of which a file is a candidate; None for anything else.

    Raises SpecErrors where it is of two.
    """
    found = [name for name, known in FORMATS.items() if known.claim(file)]
    if len(found) > 1:
        raise refused(
            "format", f"{file.path}: of {' and '.join(found)}", "a candidate of one format, or the format named"
        )
    return found[0] if found else None


def adapt(file: RawFile, op: Op, format_name: str | None = None) -> Adapted:
    """Return the candidate in a file, for an op imported from the same format.

    Where `format_name` is None, the format is recognised. Raises SpecErrors.
    """
    chosen = format_name or recognise(file)
    if chosen is None:
        expected = "; or ".join(f"{name}: {known.expected}" for name, known in FORMATS.items())
        raise refused("format", f"{file.path}: no candidate of a known format", expected)
    if chosen not in FORMATS:
        raise refused("format", chosen, f"one of {', '.join(FORMATS)}")
    return FORMATS[chosen].adapt(file, op)
