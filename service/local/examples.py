"""The op specs that ship with Warpsmith, as files."""

from __future__ import annotations

from pathlib import Path

PLACES = (Path(__file__).resolve().parents[1] / "examples", Path(__file__).resolve().parents[2] / "examples")
"""Directories of the specs, in an installed package and in a checkout."""


def example_directory() -> Path | None:
    """Find the op specs that ship; None where the package was built without them."""
    return next((place for place in PLACES if place.is_dir()), None)


def list_examples() -> dict[str, Path]:
    """List the files of the examples by the name of their op; none where the package was built without them."""
    directory = example_directory()
    return {} if directory is None else {path.stem: path for path in sorted(directory.glob("*.yaml"))}
