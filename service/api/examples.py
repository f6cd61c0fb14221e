"""The op specs that ship with Warpsmith, as starting points for new specs."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, Field

from warpsmith.kernels_db.spec.op import Op, load_op
from warpsmith.service.local.examples import list_examples


class ExampleDocument(BaseModel):
    """An op spec that ships with Warpsmith."""

    name: str
    description: str
    family: str | None = Field(description="The kind of op, such as normalization")
    devices: list[str] = Field(description="Types of device for which it has workloads: cpu, cuda")
    text: str = Field(description="The spec as YAML, with its comments")


@lru_cache(maxsize=1)
def load_examples() -> tuple[ExampleDocument, ...]:
    """Load every example, by name; none where the package was built without them."""
    return tuple(_load_example(path) for path in list_examples().values())


def devices_of(op: Op) -> list[str]:
    """List the types of device for which an op has workloads."""
    return [device for device, workloads in op.workloads_by_device().items() if workloads]


def _load_example(path: Path) -> ExampleDocument:
    op = load_op(path)
    text = path.read_text("utf-8")
    return ExampleDocument(
        name=op.name, description=op.description, family=op.family, devices=devices_of(op), text=text
    )
