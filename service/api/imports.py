"""Hand an upload to the workers: store its body as an import, announce it, and answer with the import."""

from __future__ import annotations

from sqlalchemy.orm import Session

from warpsmith.service.api.auth import Caller
from warpsmith.service.api.context import Service
from warpsmith.service.api.idempotency import Answer, Once
from warpsmith.service.documents.problems import TooManyImports
from warpsmith.service.views.imports import make_import_document
from warpsmith.workers import imports


def accept(service: Service, once: Once, asker: Caller, kind: imports.ImportKind, body: bytes) -> Answer:
    """Store the body once and return the answer, 202. Raises TooManyImports."""
    opened: list[imports.Message] = []

    def work(session: Session) -> Answer:
        most, now = service.settings.max_open_imports, service.db.now()
        try:
            row = imports.open_import(session, kind, body, now, team=asker.team, by=asker.name, most_open=most)
        except imports.TooManyOpen as error:
            found = f"{error.found} imports of team {error.team} wait or are read"
            raise TooManyImports(f"{found}; expected fewer than {most}: send it again when one has ended") from error
        opened.append(imports.message(row))
        return Answer.of(202, make_import_document(row), Location=f"/v1/imports/{row.id}")

    answer = once.run(service.db, work)
    for message in opened:
        service.outbox.send_import(message)
    return answer
