"""What is known about regions: what was found here before, in a file of the user's cache, and what ships.

The file's name has the machine's kind, the versions and Inductor's configuration; in it each region has its key, which
has the kernel's digest. So another process, and another model with the same regions, need not measure again.

A decision that ships spares the timing, and Inductor's code for the region. Whether the kernel is right is asked here
all the same, in threads while Inductor compiles the graph: only what was compared here is kept as found here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from warpsmith.kernels_db.runtime.cache import cache_directory
from warpsmith.workers.judge.machine.processor import cpu_name, vector_extensions

from . import choice, inductor, known
from .choice import FORMAT, Decision
from .meanwhile import Meanwhile
from .patterns import keep
from .places import Region


def kind_of(device: torch.device) -> str:
    """Return what a device is among all of its type: what was timed on one is kept for those of this name.

    Of a CPU its model, the instructions that kernels are compiled to, and how many threads PyTorch runs on it.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


@functools.cache
def _processor() -> str:
    return ", ".join([cpu_name(), *vector_extensions()])


class Choices:
    """What is known about regions under a configuration of Inductor's."""

    def __init__(self, device: torch.device, patches: inductor.Patches) -> None:
        facts = [FORMAT, kind_of(device), torch.__version__, torch.version.cuda, sorted(map(repr, patches.items()))]
        digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        self._patches = patches
        self.file = cache_directory().parent / "choices" / f"{digest}.json"
        """In which it is kept what was found here."""
        self._own = _read(self.file)
        self._shipped = _parsed(known.decisions(digest))
        self._meanwhile = Meanwhile()

    def known(self, region: Region) -> Decision | None:
        """Return what was found, None where nobody looked."""
        return self._own.get(region.key, self._shipped.get(region.key))

    @functools.cached_property
    def name(self) -> str:
        """A name of this cache: Inductor's code is taken from its own cache only beside what is known of it here."""
        file, fresh = self.file.with_name("name"), uuid.uuid4().hex
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8") as written:
                written.write(fresh)
                written.flush()
                with contextlib.suppress(FileExistsError):
                    os.link(written.name, file)
            return file.read_text("utf-8")
        except OSError:
            return fresh

    @property
    def refuted(self) -> list[str]:
        """Keys of regions where what ships was found wrong here: code that was compiled before is not to be taken."""
        return sorted(key for key in self._shipped.keys() & self._own.keys() if self._own[key].why)

    def graph(self, digest: str) -> Path:
        """Return the file in which it is kept what became of the regions of a graph."""
        return self.file.with_suffix("") / f"{digest}.json"

    def decide(self, wanted: Sequence[Region]) -> None:
        """Look at regions, each kind once, and keep what is found."""
        regions = list({region.key: region for region in wanted}.values())
        without = choice.Without(self._patches)
        with inductor.phase("loading"):
            choice.load(regions, without)
        for region in regions:
            self._own[region.key] = choice.decide(region, without)
        _write(self.file, self._own)

    def uncompared(self, chosen: Sequence[Region]) -> list[Region]:
        """Return the places of which only what ships says that their kernels may stand there."""
        return [region for region in chosen if region.key not in self._own]

    def compare_meanwhile(self, chosen: Sequence[Region]) -> None:
        """Begin to compare the kernels that are to stand in these places where only what ships speaks for them."""
        self._meanwhile.begin(self.uncompared(chosen))
        if self._patches.get("max_autotune"):
            self._meanwhile.wait()  # Inductor times kernels of its own while it compiles: nothing may run beside

    def compared(self) -> bool:
        """Wait for what was begun, and keep what was found; returns whether all kernels are right."""
        with inductor.phase("waiting"):
            found = self._meanwhile.end()
        for key, unfit in found.items():
            self._own[key] = self._shipped[key] if unfit is None else unfit
        if found:
            _write(self.file, self._own)
        return not any(found.values())


def _read(file: Path) -> dict[str, Decision]:
    """Return the decisions of a file; none where it is not there, or is not one that was written here."""
    try:
        return _parsed(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def _parsed(documents: object) -> dict[str, Decision]:
    try:
        return {key: choice.read(each) for key, each in documents.items()}  # type: ignore[attr-defined]
    except (TypeError, KeyError, AttributeError):
        return {}


def _write(file: Path, decisions: dict[str, Decision]) -> None:
    """Keep decisions beside those that another process wrote meanwhile."""
    lasting = _read(file) | {key: each for key, each in decisions.items() if each.lasting}
    keep(file, {key: asdict(each) for key, each in sorted(lasting.items())})
