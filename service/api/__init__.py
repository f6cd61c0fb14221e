"""The HTTP API: routes, and the parts that they share.

A route checks, calls steps or reads through `views`, and answers a document of `service.documents`. An error is
problem+json with a stable `type` (`documents.problems`). A POST that creates takes an Idempotency-Key; lists page by
key; event streams resume with Last-Event-ID. docs/rest.md has the routes.
"""
