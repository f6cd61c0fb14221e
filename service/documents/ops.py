"""Documents of ops."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class OpSummary(BaseModel):
    """An op without its spec."""

    id: str
    name: str
    digest: str = Field(description="SHA-256 of the canonical spec; the same spec is stored once")
    created_at: float


class CounterexampleDocument(BaseModel):
    """Inputs on which a candidate of the op was wrong, and which later candidates are asked first."""

    id: str
    device: str = Field(description="cpu or cuda: the values are drawn there")
    workload: str
    description: str = Field(description="The inputs in plain words, a line for each change")
    recipe: dict[str, Any] = Field(description="The same for the judge, as `op.counterexamples` of a job has it")
    node_id: str | None = Field(description="The candidate that was found wrong by it")
    kernel_id: str | None = Field(description="The stored kernel that was, when it was judged again")
    created_at: float


class OpDocument(OpSummary):
    """An op with its spec."""

    spec: dict[str, Any]
