"""What ships of traced references: a cache adds to it and takes nothing away."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.known import keep
from warpsmith.workers.optimize.compiled import known


def test_leads_of_a_reference_that_ship_are_kept_beside_those_of_a_cache(tmp_path: Path) -> None:
    """A process that finds a lead among what ships traces it no more, so that its cache has the other leads alone."""
    cache, output = tmp_path / "cache", tmp_path / "known"
    (cache / "patterns").mkdir(parents=True)
    output.mkdir()
    ships = {"both": {"3": None, "1": {"nodes": []}}, "shipped": {"3": None}}
    file = output / known.references_file()
    file.write_text(json.dumps({known.REFERENCES: ships}), encoding="utf-8")
    for name, leads in {"both": {"1x5": None}, "cached": {"3": None}}.items():
        (cache / "patterns" / f"{name}.json").write_text(json.dumps(leads), encoding="utf-8")

    assert keep(cache, ["default"], torch.device("cpu"), output) == [file]
    assert json.loads(file.read_text("utf-8"))[known.REFERENCES] == {
        "both": {"3": None, "1": {"nodes": []}, "1x5": None},
        "cached": {"3": None},
        "shipped": {"3": None},
    }
