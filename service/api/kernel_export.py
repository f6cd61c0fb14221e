"""Exports of stored kernels as zip archives."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from warpsmith.kernels_db.export.configurations import spread
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import ExportedKernel, check_name
from warpsmith.kernels_db.export.registry import FORMATS, named
from warpsmith.kernels_db.job.documents import tier_of
from warpsmith.kernels_db.spec.errors import SpecErrors, shown
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.tables import KernelRow, OpRow
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import InvalidInput, NotExpressible
from warpsmith.workers.gate.normalise import normalised_digest

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold.

Every file has it, so that two exports of one kernel are the same bytes.
"""


def _check_joinable(asked: Iterable[str], kernels: Sequence[ExportedKernel]) -> None:
    """Raise InvalidInput, with the request's fields, where one export cannot hold the kernels."""
    try:
        joined(kernels)
    except SpecErrors as error:
        fields = {f"kernels[{position}]": field for position, field in enumerate(asked)}
        raise InvalidInput(
            [FieldError(field=fields[e.field], found=shown(e.found), expected=e.expected) for e in error.errors]
        ) from None


def collect_kernel(session: Session, row: KernelRow) -> ExportedKernel:
    """Collect the facts of a stored kernel that an exporter needs.

    Re-verification asks the kernel alone: configurations that were verified beside it before do not ship after it.
    """
    evidence = dict(row.evidence)
    if row.reverified_at is not None:
        evidence.pop("configurations", None)
    return ExportedKernel(
        id=row.id,
        spec=session.get_one(OpRow, row.op_id).spec,
        target=row.target,
        language=row.language,
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=evidence,
        lineage=row.lineage,
        verified_at=datetime.fromtimestamp(row.verified_at, UTC).isoformat(timespec="seconds"),
        prompts=row.prompts
        or records.answered_calls(session, [step["node_id"] for step in row.lineage if "node_id" in step]),
    )


def check_exportable(asked: Mapping[str, str], kernels: Sequence[ExportedKernel]) -> None:
    """Raise InvalidInput, with the request's fields, where the kernels cannot share an export.

    `asked` maps each field of the request to the id that it names, in the order of `kernels`.
    """
    for field, kernel in zip(asked, kernels, strict=True):
        if tier_of(kernel.language) == "sandbox":  # no search keeps one
            expected = "a kernel whose host code a gate has read: an export promises as much"
            raise InvalidInput.one(field, f"{kernel.id} in {kernel.language}", expected)
        if any(normalised_digest(one.source) != one.source_digest for one in spread(kernel)):
            raise InvalidInput.one(field, kernel.id, "a kernel whose evidence is of the source that it has")
    _check_joinable(asked, kernels)


def refuse_formats(kernel: ExportedKernel) -> dict[str, list[FieldError]]:
    """Return why an export of a kernel alone is refused, by the names of the formats that do not hold it.

    A kernel that is not exportable is refused by all of them.
    """
    try:
        check_exportable({"path.kernel_id": kernel.id}, [kernel])
    except InvalidInput as error:
        return {form.name: list(error.errors) for form in FORMATS}
    refused = {form.name: form.refusal(kernel) for form in FORMATS}
    return {name: _list_fields(error) for name, error in refused.items() if error is not None}


def _list_fields(error: SpecErrors) -> list[FieldError]:
    return [FieldError(field=f"op.{e.field}", found=shown(e.found), expected=e.expected) for e in error.errors]


def make_archive(kernels: Sequence[ExportedKernel], form: str, import_name: str | None = None) -> tuple[str, bytes]:
    """Export the kernels in a format; returns the directory's name and a zip of it.

    Raises NotExpressible where the format has no room for a part of the op, InvalidInput for a bad import name.
    """
    if import_name is not None:
        expected = check_name(import_name) if named(form).importable else f"no name with {form}: nothing imports it"
        if expected is not None:
            raise InvalidInput.one("query.name", import_name, expected)
    with tempfile.TemporaryDirectory(prefix="warpsmith-export-") as directory:
        try:
            project = named(form).write(kernels, Path(directory), import_name)
        except SpecErrors as error:
            raise NotExpressible(_list_fields(error)) from None
        return project.name, _zip_directory(project)


def _zip_directory(project: Path) -> bytes:
    """Zip the directory under its own name; the same content gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in project.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(project.parent)), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()
