"""The outcome of an attack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One row of the table.

    `cpu_s` is the server's processor time, `others_s` the longest wait of another client, `grown_mb` what the server
    grew by.
    """

    name: str
    held: bool
    what: str
    seconds: float
    cpu_s: float | None = None
    others_s: float | None = None
    grown_mb: float | None = None

    def row(self) -> str:
        """Return the row as text."""
        cpu = "" if self.cpu_s is None else f"{self.cpu_s:.2f}"
        others = "" if self.others_s is None else f"{self.others_s:.2f}"
        grown = "" if self.grown_mb is None else f"{self.grown_mb:+.0f}"
        outcome = "holds" if self.held else "FALLS"
        return f"{self.name:44} {self.seconds:8.2f} {cpu:>6} {others:>7} {grown:>6}  {outcome} {self.what}"
