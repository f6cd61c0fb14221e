"""Settings shared by several processes, from `WARPSMITH_*` variables or a `.env` file.

The layers import one way, so the settings that workers need are here; `warpsmith.service.settings` adds the API's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from warpsmith.kernels_db.job.documents import SandboxLevel
from warpsmith.workers.settings_errors import ENV_FILE

HEARTBEAT_S = 5.0
ALIVE_AFTER_S = 3 * HEARTBEAT_S
"""A worker that missed three beats counts as gone."""

MOST = 1e9
"""Of any number that is no integer: seconds for thirty years."""

BROKERS = ("redis", "rediss", "redis+socket", "amqp", "amqps")
"""Kinds of addresses of brokers."""

CHECKED_TLS = ("require", "verify-ca", "verify-full")
"""The values of PostgreSQL's `sslmode` under which a connection is never in the clear."""


class Settings(BaseSettings):
    """Settings shared by API, workers and reconciler."""

    # A variable that is empty is as one that is not set: compose files pass variables on so.
    model_config = SettingsConfigDict(
        env_prefix="WARPSMITH_",
        env_file=ENV_FILE,
        env_ignore_empty=True,
        extra="ignore",
        hide_input_in_errors=True,
        allow_inf_nan=False,
    )

    home: Path = Field(
        Path.home() / ".warpsmith", description="Directory of the default database, caches and the private Redis"
    )
    database_url: str | None = Field(
        None,
        description="SQLAlchemy URL; default is SQLite under `home`. Several PostgreSQL hosts, of which the primary is "
        "used: postgresql://USER:PASSWORD@/warpsmith?host=a:5432&host=b:5432",
    )
    broker_url: str | None = Field(
        None,
        description="Celery broker: redis://, redis+socket:// or amqp://; default is the private Redis under `home`. "
        "Nodes of one RabbitMQ cluster are separated by `;`",
    )
    queue_type: Literal["classic", "quorum"] = Field(
        "classic",
        description="Type of the queues on RabbitMQ, the same for all processes: quorum keeps a copy on several nodes "
        "of a cluster",
    )
    tls_ca: Path | None = Field(
        None,
        description="PEM file of the authorities that sign the certificates of broker and database, where their "
        "addresses ask for TLS (rediss://, amqps://, sslmode=verify-full); default is the system's",
    )
    log_format: Literal["auto", "human", "json"] = Field(
        "auto", description="human on a terminal, json elsewhere, or one of them always"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    otlp_endpoint: str | None = Field(
        None,
        description="OpenTelemetry collector that gets traces, by OTLP over HTTP: http://collector:4318; needs the "
        "extra `otel`; default is no traces",
    )

    lease_s: float = Field(
        30.0, gt=0, description="Seconds a step may go without a sign of life before it returns to the queue"
    )
    reconcile_interval_s: float = Field(2.0, gt=0, description="Seconds between two rounds of the reconciler")
    resend_after_s: float = Field(10.0, gt=0, description="Seconds after which a pending step's message counts as lost")
    max_tries: int = Field(
        5,
        ge=1,
        description="Claims of one step before it is given up: a step that kills its worker must not do so for ever",
    )
    ask_expires_s: float = Field(
        3600.0,
        ge=0,
        description="Seconds after which an unanswered ask expires and is issued anew, each issue living twice as long "
        "as the one before, up to a day; 0: never",
    )

    openai_base_url: str | None = Field(None, description="Any OpenAI-compatible endpoint")
    openai_api_key: SecretStr | None = Field(None, description="Key of that endpoint; only model workers need it")
    openai_model: str = Field("gpt-5", description="Model asked where a search names none")
    model_keys: dict[str, str] = Field(
        default_factory=dict,
        description='Keys of further endpoints, as JSON: {"https://host/v1": "NAME"}, where the environment variable '
        "NAME holds the key; never the key itself",
    )
    model_endpoints: list[str] = Field(
        default_factory=list,
        description='Further endpoints that a search may name (`base_url`), as JSON: ["http://gpu7:8000/v1"]; "public" '
        "allows any at a public address. Those that other settings name are allowed",
    )
    model_timeout_s: float = Field(180.0, gt=0, description="Seconds for one model call")
    model_retries: int = Field(2, ge=0, description="Retries inside one call, by the client (429, 5xx, connection)")
    model_max_deferrals: int = Field(
        6, ge=0, description="Times a step is put off for an unavailable model before its search pauses"
    )
    model_backoff_s: float = Field(5.0, ge=0, description="First delay of a put-off step; it doubles, to at most 300 s")
    model_prices: Path | None = Field(
        None, description="TOML file of prices (US dollars per million tokens) over the shipped ones"
    )
    exemplars: bool = Field(
        True,
        description="Show verified kernels of other ops in requests for first ideas and for code, as reading matter",
    )
    model_max_tokens: int = Field(16384, ge=256, description="Longest reply asked for, tokens")
    model_concurrency: int = Field(
        8, ge=1, le=1024, description="Calls that one host has under way at one endpoint at most"
    )
    model_concurrency_by_endpoint: dict[str, Annotated[int, Field(ge=1, le=1024)]] = Field(
        default_factory=dict, description='Other limits for some endpoints, as JSON: {"http://host:8000/v1": 2}'
    )
    model_probe_s: float = Field(
        30.0,
        gt=0,
        description="Seconds after which a search that paused for an unavailable model tries again by itself; they "
        "double with each try that fails",
    )
    model_probe_longest_s: float = Field(600.0, gt=0, description="Longest such delay, seconds")

    judge_job_timeout_s: float = Field(
        600.0, gt=0, description="Seconds for one judge job, compile and baselines included"
    )
    sandbox_minimum: SandboxLevel | None = Field(
        None, description="Least confinement of the judge's runners; where a machine reaches less, nothing is judged"
    )
    attack_s: float | None = Field(
        None,
        ge=0,
        lt=86_400,
        description="Seconds for which a verification searches for a counterexample, a workload; 0: it does not; "
        "default is 5 on a CPU and 2 on a GPU",
    )
    ncu: str | None = Field(
        None,
        description="Nsight Compute's command line, for metrics in profiles on a GPU: a path, or `off`; default is "
        "what PATH or CUDA's own directories have",
    )
    judge_at_start: bool = Field(
        True,
        description="Start a worker's judge, its compilers for GPUs among it, with the worker; otherwise its first job "
        "waits for them",
    )
    judge_compiles: bool | None = Field(
        None,
        description="Whether judge workers take tries at level `compile`. Unset: they do, but `warpsmith up` and "
        "`warpsmith worker` start a worker for these beside a processor's judge, about 0.4 GB more of memory, so that "
        "they wait for no measurement",
    )
    judge_cache: Path | None = Field(None, description="Compiled binaries and device peaks; default is `home`/judge")

    reverify_interval_s: float = Field(
        0.0,
        ge=0,
        description="Seconds between two looks at which stored kernels are to be judged anew (Celery beat); 0: never",
    )
    reverify_period_days: float = Field(
        30.0,
        ge=0,
        description="Days after which a kernel is judged anew though nothing has changed; 0: only after a change",
    )

    retention_days: float = Field(
        0.0,
        ge=0,
        description="Days after its end for which a search keeps the events of single steps and the text of its "
        "prompts; 0: for ever",
    )
    audit_days: float = Field(365.0, ge=0, description="Days for which the audit log is kept; 0: for ever")

    @field_validator("home", mode="after")
    @classmethod
    def _directory(cls, value: Path) -> Path:
        if value.expanduser().exists() and not value.expanduser().is_dir():
            raise ValueError(f"found {value}, which is no directory, expected a directory, or a name for a new one")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _bounded(cls, value: Any) -> Any:
        if isinstance(value, float) and value > MOST:
            raise ValueError(f"expected at most {MOST:.0e}")
        return value

    @field_validator("database_url", mode="after")
    @classmethod
    def _database(cls, value: str | None) -> str | None:
        if value is not None:
            _check_address(value, ("sqlite", "postgresql"))
        return value

    @field_validator("broker_url", mode="after")
    @classmethod
    def _brokers(cls, value: str | None) -> str | None:
        # The value is not repeated: it holds passwords.
        addresses = split_addresses(value or "")
        if len(addresses) == 1 and value:
            _check_address(value, BROKERS)
        schemes = {address.partition("://")[0] for address in addresses}
        if len(addresses) > 1 and ("" in addresses or schemes not in ({"amqp"}, {"amqps"})):
            found = ", ".join(f"{scheme}://" if scheme else "an empty one" for scheme in sorted(schemes))
            raise ValueError(
                f"found {len(addresses)} addresses ({found}), expected one, or the nodes of one RabbitMQ cluster: "
                "amqp://...;amqp://... or amqps://...;amqps://..."
            )
        return value

    @model_validator(mode="after")
    def _queue_type_fits(self) -> Self:
        if self.queue_type == "quorum" and not self.broker.startswith(("amqp://", "amqps://")):
            raise ValueError(
                f"queue_type: found quorum with a broker {self.broker.partition('://')[0]}://, expected classic, or a "
                "RabbitMQ (amqp:// or amqps://)"
            )
        return self

    @field_validator("model_keys", "model_concurrency_by_endpoint", mode="after")
    @classmethod
    def _by_address(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {url.strip().rstrip("/"): entry for url, entry in value.items()}

    @field_validator("otlp_endpoint", mode="after")
    @classmethod
    def _base_address(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("expected the address of a collector, such as http://collector:4318")
        return value.rstrip("/") if value else None

    @field_validator("model_endpoints", mode="after")
    @classmethod
    def _addresses(cls, value: list[str]) -> list[str]:
        return [url.strip().rstrip("/") for url in value]

    @field_validator("model_keys", mode="after")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for url, name in value.items():
            # The value is not repeated: it may be the key itself, put here by mistake.
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"the entry of {url} is not the name of an environment variable")
        return value

    @property
    def database(self) -> str:
        """The database URL in force."""
        url = self.database_url or f"sqlite:///{self.home / 'warpsmith.db'}"
        return url if self.tls_ca is None else add_authority(url, self.tls_ca)

    @property
    def broker(self) -> str:
        """The broker URL in force."""
        return self.broker_url or f"redis+socket://{self.home / 'redis.sock'}"

    @property
    def judge_cache_dir(self) -> Path:
        """The judge's cache directory in force."""
        return self.judge_cache or self.home / "judge"


def _check_address(url: str, kinds: Sequence[str]) -> None:
    """Check kind and port of an address, and the number of a Redis. Raises ValueError, which repeats no password."""
    kind, separator, _ = url.partition("://")
    if not separator or kind.partition("+")[0] not in {each.partition("+")[0] for each in kinds}:
        # A kind that is none may be a password: only what is plain is repeated.
        found = f"{kind}://" if separator and kind.isalnum() else "no such address"
        raise ValueError(f"found {found}, expected {' or '.join(f'{each}://' for each in kinds)} and what follows it")
    try:
        parts = urlsplit(url)
        wrong = parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(f"found a port of {kind}:// that is none, expected a number from 1 to 65535")
    if kind in ("redis", "rediss") and not re.fullmatch(r"/?\d*", parts.path):
        raise ValueError(f"found the database {parts.path[1:]!r} of {kind}://, expected its number")


def split_addresses(broker_url: str) -> list[str]:
    """Split a broker's URL into the addresses of its nodes, as kombu does; a single one is itself."""
    return broker_url.split(";")


def add_authority(database_url: str, authority: Path) -> str:
    """Name the file of certificate authorities in a PostgreSQL URL that asks for TLS and names none itself."""
    address, _, query = database_url.partition("?")
    pairs = parse_qsl(query)  # `host` may come several times
    named = dict(pairs)
    if named.get("sslmode") not in CHECKED_TLS or "sslrootcert" in named:
        return database_url
    return f"{address}?{urlencode([*pairs, ('sslrootcert', str(authority))])}"


@lru_cache
def get_settings() -> Settings:
    """Return the process's settings, read once."""
    return Settings()
