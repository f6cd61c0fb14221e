"""Write the committed OpenAPI document: `python -m warpsmith.service.server.write_openapi`."""

from __future__ import annotations

import json
from pathlib import Path

from warpsmith.service.server.app import create_app
from warpsmith.service.settings import ServiceSettings

COMMITTED = Path(__file__).resolve().parents[1] / "dashboard" / "openapi.json"
COMMAND = "python -m warpsmith.service.server.write_openapi"


def build_committed_text() -> str:
    """Build the committed document: with keys required, since clients must know their problems."""
    document = create_app(ServiceSettings(auth="always")).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    COMMITTED.write_text(build_committed_text(), "utf-8")
