"""An absent service skips its tests, and fails them under CI=true."""

from __future__ import annotations

import pytest

from tests import services


def test_an_absent_service_skips_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server here"):
        services.absent("no server here")


def test_an_absent_service_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no server here"):
        services.absent("no server here")


def test_a_postgres_that_does_not_answer_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(services, "POSTGRES", "postgresql+psycopg://nobody:secret@127.0.0.1:9/none")
    with pytest.raises(pytest.fail.Exception, match="PostgreSQL") as raised, services.postgres_database():
        pass
    assert "secret" not in str(raised.value)


def test_a_rabbitmq_that_does_not_answer_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(services, "RABBITMQ", "amqp://guest:secret@127.0.0.1:9//")
    with pytest.raises(pytest.fail.Exception, match="RabbitMQ") as raised, services.rabbitmq_vhost():
        pass
    assert "secret" not in str(raised.value)
