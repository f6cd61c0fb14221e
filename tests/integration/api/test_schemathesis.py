"""Schemathesis against the running API finds nothing: every answer is as the OpenAPI document says, whatever was asked.

Two checks are off where they cannot apply. A body of `POST /v1/ops`, `/v1/ops/import`, `/v1/searches`,
`/v1/campaigns` and `/v1/workers/invites`, a campaign's progress, a steer, a list's cursor, and an Idempotency-Key that
came before with another pool, can fit the schema and still be
wrong (an expression over an unknown axis, a pool of another op, a limit below what is spent, 1.0 for 1), so there
"valid data is accepted" is not what the schema promises.
`POST /v1/ops/validate` says what is wrong with a spec, so there "invalid data is refused" does not show in the status.
Bad data that is also too large is refused for its size.
Everything else is on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import migrate
from tests.support.api_support import seed, served, settings_for
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.api import auth
from warpsmith.service.server.app import create_app

MEANING_IS_CHECKED_TOO = (
    "POST /v1/ops",
    "POST /v1/ops/import",
    "POST /v1/searches",
    "POST /v1/searches/estimate",
    "POST /v1/campaigns",
    "PUT /v1/campaigns/{campaign_id}",
    "POST /v1/searches/{search_id}/ideas",
    "PATCH /v1/searches/{search_id}",
    "POST /v1/nodes/{node_id}/branch",
    "GET /v1/ops",
    "GET /v1/searches",
    "GET /v1/pools",
    "GET /v1/imports",
    "GET /v1/asks",
    "GET /v1/kernels",
    "GET /v1/kernels/{kernel_id}/export",
    "POST /v1/kernels/reverify",
    "GET /v1/kernels/{kernel_id}/reverifications",
    "GET /v1/bundles",
    "GET /v1/campaigns",
    "GET /v1/searches/{search_id}/attempts",
    "GET /v1/ops/{op_id}/counterexamples",
    "GET /v1/nodes/{node_id}/tries",
    "POST /v1/workers/invites",
    "POST /v1/pools",
)
SAID_IN_THE_ANSWER = ("POST /v1/ops/validate",)
REFUSED = ("400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx")
"""How bad data may be refused: Schemathesis' own list, and 413."""
LONG, SHORT = 8, 1
"""Examples of each operation."""
TIMEOUT_S = 240


def configuration() -> str:
    """The file that names the checks that cannot apply."""
    off = dict.fromkeys(MEANING_IS_CHECKED_TOO, "positive_data_acceptance")
    off |= dict.fromkeys(SAID_IN_THE_ANSWER, "negative_data_rejection")
    return f"checks.negative_data_rejection.expected-statuses = {list(REFUSED)}\n" + "\n".join(
        f'[[operations]]\ninclude-name = "{name}"\nchecks.{check}.enabled = false\n' for name, check in off.items()
    )


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("auth_mode", "phases", "examples"),
    [
        pytest.param("auto", "fuzzing", SHORT, id="short"),
        pytest.param("auto", "examples,coverage,fuzzing,stateful", LONG, id="auto", marks=pytest.mark.nightly),
        # With keys the same routes answer; that a key is asked for everywhere is what is left to see.
        pytest.param("always", "examples,coverage", LONG, id="always", marks=pytest.mark.nightly),
    ],
)
def test_schemathesis_finds_nothing(tmp_path: Path, redis_url: str, auth_mode: str, phases: str, examples: int) -> None:
    settings = settings_for(
        tmp_path,
        broker_url=redis_url,
        auth=auth_mode,
        stream_life_s=0.2,
        stream_poll_s=0.05,
        log_level="ERROR",
        join_broker_url="redis://broker.example:6379/0",  # without them no host is invited
        join_database_url="postgresql://worker:secret@database.example/warpsmith",
    )
    app = create_app(settings)
    db: Database = app.state.service.db
    migrate(db)
    seed(db)
    config = tmp_path / "schemathesis.toml"
    config.write_text(configuration())
    program = Path(sys.executable).parent / "schemathesis"
    headers = (
        ["--header", f"Authorization: Bearer {auth.create_key(db, 'schemathesis')}"] if auth_mode == "always" else []
    )
    app.openapi()  # made on first use, for which Schemathesis waits ten seconds at most
    with served(app) as url:
        done = subprocess.run(
            [
                str(program),
                "--config-file",
                str(config),
                "run",
                f"{url}/openapi.json",
                f"--phases={phases}",
                f"--max-examples={examples}",
                "--generation-deterministic",
                "--request-timeout=20",
                "--suppress-health-check=all",
                "--no-shrink",
                *headers,
            ],
            cwd=tmp_path,
            env={**os.environ, "SCHEMATHESIS_HOOKS": str(Path(__file__).parent / "schemathesis_hooks.py")},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    report = "\n".join(line[:400] for line in (done.stdout + done.stderr).splitlines())
    assert done.returncode == 0, report[-12000:]
