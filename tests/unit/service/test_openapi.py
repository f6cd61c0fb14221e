"""The committed OpenAPI document, from which the dashboard's types are generated."""

from __future__ import annotations

from warpsmith.service.server.write_openapi import COMMAND, COMMITTED, build_committed_text


def test_the_committed_document_is_the_services_own() -> None:
    assert COMMITTED.read_text("utf-8") == build_committed_text(), (
        f"the API changed: run `{COMMAND}` and commit {COMMITTED}"
    )
