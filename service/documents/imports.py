"""Documents of imports: uploads that a worker reads."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.problem_document import ProblemDocument


class ImportResult(BaseModel):
    """What an import stored, or found stored."""

    pool_id: str | None = Field(None, description="Of a pool's import")
    op_id: str | None = Field(None, description="Of an op's import; its spec's `origin` keeps the files byte for byte")
    created: bool = Field(description="Whether it is new; the same pool or op is stored once")
    format: str | None = Field(None, description="The files' format")
    notes: list[str] = Field(default_factory=list, description="Notes on how the files were read")
    sandbox: str | None = Field(None, description="The level at which the files were run; null where nothing was run")


class ImportDocument(BaseModel):
    """One upload: how far a worker has come with it, and what became of it."""

    id: str
    kind: Literal["pool", "op"]
    team: str
    asked_by: str | None = Field(description="The name of the API key that sent it")
    size: int = Field(description="Bytes that were sent")
    state: Literal["pending", "running", "done", "failed"]
    stage: Literal["reading", "running", "storing"] | None = Field(
        description="running: code of the files runs in a sandbox. Null before a worker has it"
    )
    done: int = Field(description="Lines of a pool that were read in this stage")
    total: int | None = Field(description="Lines to read; null where the stage has no parts")
    tries: int = Field(description="Workers that took it; those that died in it are among them")
    result: ImportResult | None = Field(description="What was stored; null until it is done")
    problem: ProblemDocument | None = Field(description="Why nothing was stored, where it failed")
    created_at: float
    started_at: float | None
    finished_at: float | None
