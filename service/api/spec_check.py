"""Checks of a spec that is not stored: its errors, or its content."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.spec.op import Op, SpecErrors, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.tables import OpRow
from warpsmith.kernels_db.store.teams import is_held_readably
from warpsmith.service.api.examples import devices_of
from warpsmith.service.api.handlers import convert_spec_error
from warpsmith.service.documents.field_error import FieldError


class CheckedWorkload(BaseModel):
    """A workload with every axis bound."""

    id: str
    role: str
    device: str = Field(description="The type of device that it is for: cpu or cuda")
    weight: float = Field(description="How often it occurs: its part in the score")
    axes: dict[str, int]
    dtypes: dict[str, str] = Field(default_factory=dict, description="The dtype of each name of the op's `dtypes`")
    min_bytes: int = Field(description="Bytes that no kernel can avoid to move")
    flops: int | None = Field(description="Operations that no kernel can avoid; null where the spec has none")


class CheckedSpec(BaseModel):
    """The content of a spec, or all its bad fields."""

    valid: bool
    errors: list[FieldError] = Field(description="Empty where it is valid; a text that cannot be read is one error")
    name: str | None = None
    description: str | None = None
    digest: str | None = None
    op_id: str | None = Field(None, description="Of the stored op, where this very spec is stored")
    devices: list[str] = Field(default_factory=list, description="Types of device for which it has workloads")
    workloads: list[CheckedWorkload] = Field(default_factory=list)
    baselines: list[str] = Field(default_factory=list, description="Baselines that candidates must beat")
    spec: dict[str, Any] | None = Field(
        None, description="The spec as JSON without what equals the defaults: `op` of a submission or an estimate"
    )


def check_spec(session: Session, text: bytes, team: str | None) -> CheckedSpec:
    """Check the spec in `text`, YAML or JSON; a stored op is named where `team` may read it."""
    try:
        op = load_op(text)
    except SpecErrors as error:
        return CheckedSpec(valid=False, errors=convert_spec_error(error).errors)
    return CheckedSpec(
        valid=True,
        errors=[],
        name=op.name,
        description=op.description,
        digest=op.digest,
        op_id=session.scalar(select(OpRow.id).where(OpRow.digest == op.digest, *is_held_readably(OpRow.id, team))),
        devices=devices_of(op),
        workloads=_list_workloads(op),
        baselines=list(op.objective.baselines),
        spec=op.document(),
    )


def _list_workloads(op: Op) -> list[CheckedWorkload]:
    return [
        CheckedWorkload(
            id=workload["id"],
            role=workload["role"],
            device=device,
            weight=weight_of(workload),
            axes=workload["axes"],
            dtypes=workload.get("dtypes", {}),
            min_bytes=workload["min_bytes"],
            flops=workload["flops"],
        )
        for device, workloads in op.workloads_by_device().items()
        for workload in (resolve_workload(op, item) for item in workloads)
    ]
