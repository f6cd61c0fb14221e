"""`warpsmith audit`: what the commands of operators and the requests of callers leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.api_support import application, command_line, seed, settings_for


def test_the_audit_log_shows_commands_and_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    monkeypatch.setenv("WARPSMITH_DATABASE_URL", str(app.state.service.db.url))
    with command_line(app, capsys, monkeypatch) as said:
        assert "nothing that matches" in said("audit")[2]
        assert said("teams", "create", "vision")[0] == 0
        prefix = json.loads(said("keys", "create", "ci", "--team", "vision", "--json")[1])["key"].split("_")[1]
        assert said("keys", "revoke", prefix)[0] == 0
        assert said("cancel", "sr_seed")[0] == 0
        found = json.loads(said("audit", "--json")[1])
        assert [(row["source"], row["action"], row["object_id"], row["result"]) for row in found] == [
            ("127.0.0.1", "cancel_search", "sr_seed", "done"),
            ("command line", "keys revoke", prefix, "done"),
            ("command line", "keys create", prefix, "done"),
            ("command line", "teams create", "vision", "done"),
        ]
        assert "cancel_search" in said("audit", "--object", "sr_seed")[1]
        assert "cancel_search" not in said("audit", "--action", "keys create")[1]
        code, _, err = said("audit", "--result", "zebra")
        assert (code, "result: found \"zebra\", expected 'done', 'unchanged', " in err) == (2, True), err
