"""Settings that are wrong: each process ends with a line that names variable, found and expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.settings_errors import describe

WRONG = [
    ("LEASE_S", "zebra", "WARPSMITH_LEASE_S: found 'zebra', expected a valid number"),
    ("SESSION_LIFE_S", "inf", "WARPSMITH_SESSION_LIFE_S: found 'inf', expected a finite number"),
    ("RECONCILE_INTERVAL_S", "1e300", "WARPSMITH_RECONCILE_INTERVAL_S: found '1e300', expected at most 1e+09"),
    ("QUEUE_TYPE", "zebra", "WARPSMITH_QUEUE_TYPE: found 'zebra', expected 'classic' or 'quorum'"),
    ("QUEUE_TYPE", "quorum", "queue_type: found quorum with a broker redis+socket://, expected classic"),
    ("MODEL_KEYS", "zebra", "WARPSMITH_MODEL_KEYS: found no JSON, expected JSON"),
    ("MODEL_KEYS", '["sk-s3cret"]', "WARPSMITH_MODEL_KEYS: found a list, expected a mapping"),
    (
        "MODEL_CONCURRENCY_BY_ENDPOINT",
        '{"http://h/v1": 0}',
        "WARPSMITH_MODEL_CONCURRENCY_BY_ENDPOINT.http://h/v1: found 0, expected at least 1",
    ),
    ("ALLOWED_HOSTS", "a b", "WARPSMITH_ALLOWED_HOSTS: found no JSON, expected JSON"),
    ("DATABASE_URL", "s3cret", "WARPSMITH_DATABASE_URL: found no such address, expected sqlite:// or postgresql://"),
    ("DATABASE_URL", "postgresql//u:s3cret@h/d", "WARPSMITH_DATABASE_URL: found no such address, expected sqlite://"),
    (
        "DATABASE_URL",
        "postgresql://u:s3cret@h:zebra/d",
        "found a port of postgresql:// that is none, expected a number",
    ),
    ("BROKER_URL", "http://u:s3cret@h/", "WARPSMITH_BROKER_URL: found http://, expected redis:// or rediss://"),
    ("BROKER_URL", "redis://:s3cret@h:zebra/0", "WARPSMITH_BROKER_URL: found a port of redis:// that is none"),
    ("BROKER_URL", "redis://:s3cret@h/zebra", "found the database 'zebra' of redis://, expected its number"),
    ("OTLP_ENDPOINT", "zebra", "WARPSMITH_OTLP_ENDPOINT: found 'zebra', expected the address of a collector"),
    ("HOME", "/dev/null", "WARPSMITH_HOME: found /dev/null, which is no directory, expected a directory"),
]


@pytest.mark.parametrize(("variable", "value", "says"), WRONG, ids=[f"{each[0]}={each[1]}" for each in WRONG])
def test_a_wrong_setting_is_a_line_that_names_its_variable(
    variable: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"WARPSMITH_{variable}", value)
    with pytest.raises(ValueError) as refused:
        ServiceSettings()
    said = describe(refused.value)
    assert said is not None
    assert says in said
    assert "\n" not in said
    assert "s3cret" not in said


def test_a_file_of_variables_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_bytes(b"WARPSMITH_HOST=\xff")
    with pytest.raises(UnicodeDecodeError) as refused:
        ServiceSettings()
    assert describe(refused.value) == ".env: found bytes that are no UTF-8, expected text"


def test_what_is_no_error_of_settings_is_not_described() -> None:
    class Answer(BaseModel):
        number: int

    with pytest.raises(ValueError) as refused:
        Answer.model_validate({"number": "x"})
    assert describe(refused.value) is None
    assert describe(ValueError("x")) is None
    with pytest.raises(UnicodeDecodeError) as undecoded:
        b"\xff".decode()
    assert describe(undecoded.value) is None


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "warpsmith.service.server.serve"],
        ["-P", "-m", "warpsmith.workers.queue", "worker"],
        ["-m", "warpsmith.workers.queue.reconciler"],
        ["-m", "warpsmith.service.cli", "up"],
    ],
    ids=lambda command: command[-1],
)
def test_every_process_ends_with_that_line_and_status_2(command: list[str], tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"WARPSMITH_QUEUE_TYPE": "zebra", "WARPSMITH_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: WARPSMITH_QUEUE_TYPE: found 'zebra', expected 'classic' or 'quorum'\n"
