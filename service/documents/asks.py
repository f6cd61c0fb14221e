"""Documents of open requests to a model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.nodes import NodeSummary

AskState = Literal["open", "answered", "withdrawn", "expired"]


class AskSummary(BaseModel):
    """A model request that waits for an answer, without its prompt."""

    id: str
    search_id: str
    node_id: str
    kind: str = Field(description="reflect, ideate, code or repair")
    state: AskState
    issue: int = Field(0, description="How often the request was issued before: it counts up when an ask expires")
    op_name: str
    target: str
    seq: int = Field(description="Number of the node that it is asked for")
    title: str | None = Field(description="That node's idea in one line")
    created_at: float
    expires_at: float | None = Field(None, description="When it expires and is issued again; null: never")
    answered_at: float | None
    answered_by: str | None


class AskStep(BaseModel):
    """The step that an ask belongs to: whether the answer could be used."""

    kind: str = Field(description="ideate or code")
    state: str = Field(description="waiting while it waits for the answer; succeeded once the answer was used")
    error: str | None = Field(description="Why an answer could not be used")


class AskIdeas(BaseModel):
    """What the search takes of an answer with ideas."""

    wanted: int | None = Field(description="Ideas that the ask wants")
    taken: list[str] = Field(
        description="Titles of the ideas that become nodes; one that the search tried before is closed at once"
    )
    left_out: list[str] = Field(
        description="Each idea that becomes none, with why: it cannot be read, is too long, repeats a title, is beyond "
        "those that the ask wants, or uses a technique that is ruled out"
    )


class AskDocument(AskSummary):
    """An ask with its prompt and, once answered, its reply."""

    step: AskStep
    node: NodeSummary = Field(description="The node that it is asked for, with the verdict once there is one")

    messages: list[dict[str, Any]]
    reply: str | None
    ideas: AskIdeas | None = Field(
        None, description="Of an answered ask of kind ideate: the ideas that are taken, and those that are left out"
    )
    replaced_by: str | None = Field(None, description="The open ask of the same request, where this one is not open")
