"""Routes that steer a search by hand: ideas, budget, labels; those of nodes are in `nodes`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import SpecError
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.labels import Name, Notes, Tags
from warpsmith.service.api.submission import check_cost_cap
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.nodes import IdeaDocument
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    NotFound,
    StorageFull,
    WrongState,
    document_problems_with_body,
)
from warpsmith.service.documents.searches import SearchDocument
from warpsmith.service.views import searches
from warpsmith.service.views.nodes import make_node_summary
from warpsmith.workers import steps
from warpsmith.workers.llm.reply.parsing import MAX_FIELD_CHARS, Idea
from warpsmith.workers.llm.reply.techniques import Technique
from warpsmith.workers.steps import steering
from warpsmith.workers.text import one_line

MOST_CODES = 16
LONGEST_TITLE = 160

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=StrictRoute)


class IdeaRequest(StrictBody):
    """A person's idea, with the fields of a model's."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "technique": "memory_access",
                    "title": "Keep the row in registers between the two passes",
                    "mechanism": "The row is read once; mean and variance come from registers, so half the reads go.",
                    "codes": 2,
                }
            ]
        },
    )

    technique: Technique
    title: str = Field(min_length=1, max_length=LONGEST_TITLE, description="The idea in one line")
    mechanism: str = Field(min_length=1, max_length=MAX_FIELD_CHARS, description="What it changes and why that helps")
    evidence: str = Field("", max_length=MAX_FIELD_CHARS)
    expected_gain: str = Field("", max_length=MAX_FIELD_CHARS)
    risk: str = Field("", max_length=MAX_FIELD_CHARS)
    sketch: str = Field("", max_length=MAX_FIELD_CHARS, description="Pseudo-code, where it helps")
    parent: str | None = Field(
        None,
        max_length=32,
        description="The node to build on: the root or an accepted candidate; default is the best so far, or the root",
    )
    codes: int = Field(1, ge=1, le=MOST_CODES, description="Candidates to be written for it, independently")

    def idea(self) -> Idea:
        """Make the idea for the tree; raises InvalidInput where title or mechanism is blank."""
        title, mechanism = one_line(self.title, LONGEST_TITLE), self.mechanism.strip()
        blank = [name for name, text in (("title", title), ("mechanism", mechanism)) if not text]
        if blank:
            errors = [FieldError(field=name, found=getattr(self, name), expected="words") for name in blank]
            raise InvalidInput(errors)
        return Idea(
            technique=self.technique,
            title=title,
            mechanism=mechanism,
            evidence=self.evidence.strip(),
            expected_gain=self.expected_gain.strip(),
            risk=self.risk.strip(),
            sketch=self.sketch.strip(),
        )


class SearchChange(StrictBody):
    """A change of a search. Fields that are absent stay as they are."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [
                {"budget": {"candidates": 80, "cost_usd": None}},
                {"name": "Softmax, long rows", "tags": ["paper", "h100"], "archived": True},
            ],
        }
    )

    budget: dict[str, Any] = Field(
        default_factory=dict,
        description="The limits to set, each at least what is spent; null lifts one, and "
        "puts `try_seconds` back to its default. Limits not named stay",
    )
    name: Name = None
    tags: Tags = Field(default_factory=list, description="All its tags, in place of those that it has")
    notes: Notes = None
    archived: bool | None = Field(
        None, description="Whether lists leave it out unless asked; only a search that has ended is archived"
    )

    def labels(self) -> steps.Labels:
        """Return the labels that the body names."""
        given = self.model_dump(include={"name", "tags", "notes", "archived"}, exclude_unset=True)
        return cast(
            "steps.Labels", {name: value for name, value in given.items() if (name, value) != ("archived", None)}
        )


@contextmanager
def convert_refusals() -> Iterator[None]:
    """Convert refusals of the steps to problems that name the field."""
    try:
        yield
    except steps.WrongState as error:
        raise WrongState.one(error.what, error.found, error.expected) from error
    except SpecError as error:
        raise InvalidInput.one(error.field, error.found, error.expected) from error


@router.post(
    "/{search_id}/ideas",
    status_code=201,
    summary="Add an idea",
    response_model=IdeaDocument,
    responses=document_problems_with_body(NotFound, WrongState, IdempotencyReuse, StorageFull),
)
def add_idea(
    search_id: str, body: IdeaRequest, once: OnceDependency, service: ServiceDependency, asker: Asker
) -> JSONResponse:
    """Plan candidates for a person's idea in the current round; they are coded like a model's.

    The judge takes them like a model's, too. 409 where the search has ended, has had the idea, or the parent is no
    accepted candidate. On a paused search it waits."""
    with service.db.reading() as session:
        stored = once.stored(session)
        if stored is not None:
            return stored.response()
        service.row(session, SearchRow, search_id, "search")
        parent = session.get(NodeRow, body.parent) if body.parent and service.is_id(body.parent) else None
        if body.parent is not None and (parent is None or parent.search_id != search_id):
            raise InvalidInput.one(
                "parent", body.parent, "the id of a node of this search (GET /v1/searches/{id}/tree)"
            )
    idea = body.idea()
    answers: list[Answer] = []

    def answer(session: Session, nodes: Sequence[NodeRow]) -> None:
        document = IdeaDocument(search_id=search_id, nodes=[make_node_summary(node, None) for node in nodes])
        answers.append(Answer.of(201, document, Location=f"/v1/nodes/{nodes[0].id}"))
        once.record(session, answers[0])

    def add() -> Answer:
        with convert_refusals():
            steering.add_idea(
                service.db,
                search_id,
                idea,
                service.db.now(),
                parent_id=body.parent,
                codes=body.codes,
                by=asker.name,
                also=answer,
            )
        service.advance(search_id)
        return answers[-1]

    return once.guard(service.db, add).response()


@router.patch(
    "/{search_id}",
    summary="Change a search",
    responses=document_problems_with_body(NotFound, WrongState, StorageFull),
)
def change_search(search_id: str, body: SearchChange, service: ServiceDependency, asker: Asker) -> SearchDocument:
    """Set or lift limits; set name, tags, notes, and whether it is archived.

    422 for a limit below what is spent, 409 for a limit once the search has ended (branch a new one from one of its
    nodes instead) and for the archive before it has."""
    with service.db.reading() as session:
        model = service.row(session, SearchRow, search_id, "search").model
    if not body.model_fields_set:
        raise InvalidInput.one("body", {}, "budget, name, tags, notes or archived")
    labels, limits = body.labels(), "budget" in body.model_fields_set
    if limits and labels.get("archived"):
        raise InvalidInput.one("archived", True, "no budget beside it: a search that is archived has ended")
    with convert_refusals():
        if limits:
            check_cost_cap(service.settings, model, body.budget)
            steering.change_budget(service.db, search_id, body.budget, service.db.now(), by=asker.name)
        if labels:
            steps.label_search(service.db, search_id, labels, service.db.now())
    if limits:
        service.advance(search_id)
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        return searches.make_search_document(session, row, service.alive_after_s)
