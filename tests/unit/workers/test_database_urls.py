"""URLs of databases: their hosts, their password, and how the primary among several hosts is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from warpsmith.kernels_db.store.database_url import HOST_TIMEOUT_S, failover_options, find_hosts
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers.settings import Settings

TWO = "postgresql+psycopg://w:s3cret@/warpsmith?host=h1:5432&host=h2:5433"
READ_WRITE = {"target_session_attrs": "read-write", "connect_timeout": HOST_TIMEOUT_S}


@pytest.mark.parametrize(
    ("url", "hosts", "options"),
    [
        ("postgresql://w@h1:5432/w", ["h1"], {}),
        ("postgresql://w@[::1]:5432/w", ["::1"], {}),
        ("postgresql://w@/w", [], {}),
        ("postgresql://w@/w?host=/run/postgresql", ["/run/postgresql"], {}),
        ("postgresql://w@/w?host=fd00::1", ["fd00::1"], {}),
        (TWO, ["h1", "h2"], READ_WRITE),
        ("postgresql://w@/w?host=h1,h2&port=5432,5433", ["h1", "h2"], READ_WRITE),
        ("postgresql://w@h1,h2/w", ["h1", "h2"], READ_WRITE),
    ],
)
def test_hosts_are_read_in_every_form(url: str, hosts: list[str], options: dict[str, Any]) -> None:
    assert find_hosts(make_url(url)) == hosts
    assert failover_options(make_url(url)) == options


def connection_options(url: str) -> dict[str, Any]:
    """What the driver is given for a new connection."""
    found: dict[str, Any] = {}
    database = Database(url)

    def connect(*_: Any, **options: Any) -> Any:
        found.update(options)
        raise driver.OperationalError("not now")

    driver: Any = database.engine.dialect.loaded_dbapi
    real, driver.connect = driver.connect, connect
    try:
        with pytest.raises(Exception, match="not now"):
            database.revision()
    finally:
        driver.connect = real
    return found


def test_the_driver_is_asked_for_the_primary_of_several_hosts() -> None:
    found = connection_options(TWO)
    assert (found["host"], found["port"]) == ("h1,h2", "5432,5433")
    assert READ_WRITE.items() <= found.items()
    own = connection_options(f"{TWO}&target_session_attrs=any&connect_timeout=7")
    assert (own["target_session_attrs"], str(own["connect_timeout"])) == ("any", "7")
    assert "target_session_attrs" not in connection_options("postgresql://w@h/w")


@pytest.mark.parametrize("url", [TWO, "postgresql://w@/w?host=h1&host=h2&password=s3cret"])
def test_a_password_is_masked_wherever_it_stands(url: str) -> None:
    shown = Database(url).url.render_as_string()
    assert "s3cret" not in shown
    assert "***" in shown
    assert connection_options(url)["password"] == "s3cret"


def test_an_authority_is_added_to_several_hosts() -> None:
    settings = Settings(_env_file=None, database_url=f"{TWO}&sslmode=verify-full", tls_ca=Path("/ca.pem"))
    url = make_url(settings.database)
    assert (find_hosts(url), url.query["sslrootcert"]) == (["h1", "h2"], "/ca.pem")
