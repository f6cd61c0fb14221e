"""Every setting that more than one process reads, from `WARPSMITH_*` variables or a `.env` file.

The layers import one way, so the settings that workers need stand here and `service.settings` adds those of the API.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from kernels_db.job import SandboxLevel


class Settings(BaseSettings):
    """Settings shared by API, workers and reconciler."""

    model_config = SettingsConfigDict(
        env_prefix="WARPSMITH_", env_file=".env", extra="ignore", hide_input_in_errors=True
    )

    home: Path = Field(
        Path.home() / ".warpsmith", description="Directory of the default database, caches and the private Redis"
    )
    database_url: str | None = Field(None, description="SQLAlchemy URL; default is SQLite under `home`")
    broker_url: str | None = Field(
        None,
        description="Celery broker: redis://, redis+socket:// or amqp://; default is the private Redis under `home`",
    )
    log_format: Literal["auto", "human", "json"] = Field(
        "auto", description="human on a terminal, json elsewhere, or one of them always"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

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
    model_timeout_s: float = Field(180.0, gt=0, description="Seconds for one model call")
    model_retries: int = Field(2, ge=0, description="Retries inside one call, by the client (429, 5xx, connection)")
    model_max_deferrals: int = Field(
        6, ge=0, description="Times a step is put off for an unavailable model before its search pauses"
    )
    model_backoff_s: float = Field(5.0, ge=0, description="First delay of a put-off step; it doubles, to at most 300 s")
    model_prices: Path | None = Field(
        None, description="TOML file of prices (US dollars per million tokens) over the shipped ones"
    )
    model_max_tokens: int = Field(16384, ge=256, description="Longest reply asked for, tokens")

    judge_job_timeout_s: float = Field(
        600.0, gt=0, description="Seconds for one judge job, compile and baselines included"
    )
    sandbox_minimum: SandboxLevel | None = Field(
        None, description="Least confinement of the judge's runners; where a machine reaches less, nothing is judged"
    )
    judge_cache: Path | None = Field(None, description="Compiled binaries and device peaks; default is `home`/judge")

    @property
    def database(self) -> str:
        """The database URL in force."""
        return self.database_url or f"sqlite:///{self.home / 'warpsmith.db'}"

    @property
    def broker(self) -> str:
        """The broker URL in force."""
        return self.broker_url or f"redis+socket://{self.home / 'redis.sock'}"

    @property
    def judge_cache_dir(self) -> Path:
        """The judge's cache directory in force."""
        return self.judge_cache or self.home / "judge"


@lru_cache
def get_settings() -> Settings:
    """The process's settings, read once."""
    return Settings()
