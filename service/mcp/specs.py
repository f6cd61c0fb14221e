"""Ops as arguments of tools: the id or name of a stored one, or a spec."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

from warpsmith.kernels_db.spec.op import load_op, parse_op
from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client

OpArgument: TypeAlias = Annotated[
    str | dict[str, Any],
    Field(description="A stored op's id (`op_...`) or name, or an op spec: as an object, or as YAML or JSON text"),
]


def spec_of(client: Client, op: str | dict[str, Any]) -> dict[str, Any]:
    """Return the spec's document.

    Raises SpecErrors for a bad spec; ends with misuse for an op that is not stored.
    """
    if isinstance(op, dict):
        return parse_op(op).document()
    if "\n" in op or op.lstrip().startswith("{"):
        return load_op(op).document()
    if op.startswith("op_"):
        return client.op(op).spec
    found = client.ops(most=1, name=op)
    if not found:
        there = sorted({item.name for item in client.ops(most=200)})
        misuse("op", op, f"an op spec, or the id or name of a stored op: {', '.join(there) or 'there is none yet'}")
    return client.op(found[0].id).spec
