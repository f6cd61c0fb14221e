"""Ops as arguments of tools: the id or name of a stored one, or a spec."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field

from warpsmith.kernels_db.spec.op import load_op, parse_op
from warpsmith.service.client.http import Client
from warpsmith.service.local.named_ops import find_op

OpArgument: TypeAlias = Annotated[
    str | dict[str, Any],
    Field(
        description="An op's id (`op_...`) or name (a stored op's, else an example's that ships), or an op spec: as an "
        "object, or as YAML or JSON text"
    ),
]


def spec_of(client: Client, op: str | dict[str, Any]) -> dict[str, Any]:
    """Return the spec's document.

    Raises SpecErrors for a bad spec; ends with misuse for a name that is unknown or that of several stored ops.
    """
    if isinstance(op, dict):
        return parse_op(op).document()
    if "\n" in op or op.lstrip().startswith("{"):
        return load_op(op).document()
    return find_op(client, op, "op", "an op spec, or the id or name of an op").op.document()
