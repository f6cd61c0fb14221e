"""Run the tests in two phases: `python -m tests [--nightly] [arguments of pytest]`.

Those that share the machine run first, on two workers; then the `alone` ones, one after the other. The second phase
follows a failed first one too. The exit status is that of the worse, and the last line is `N passed, N failed,
N skipped` over both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.kinds import ALONE, TOGETHER, several

# A module goes to one worker as a whole, so what its tests share is built once. The order is `tests.kinds`': by number
# of tests alone, xdist's own, a few slow ones would come last and one worker would wait for them.
TWO_WORKERS = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
NO_TESTS = int(pytest.ExitCode.NO_TESTS_COLLECTED)
INTERRUPTED = 130  # as a shell says of Ctrl-C


# Options as one word: pytest reads the command line once before it knows them, and takes a separate value for a path.
class Phase:
    """One run of pytest: its exit status, and what it counted; nothing where it broke off before it could."""

    def __init__(self, *arguments: str) -> None:
        with tempfile.TemporaryDirectory(prefix="ws-tests-") as directory:
            counts = Path(directory) / "counts.json"
            command = [sys.executable, "-m", "pytest", *arguments, f"--counts={counts}"]
            with subprocess.Popen(command) as process:
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    process.wait()  # the same Ctrl-C reached it: it writes its summary
                    raise SystemExit(INTERRUPTED) from None
            self.code = code if code >= 0 else 128 - code
            self._report: dict[str, Any] | None = json.loads(counts.read_bytes()) if counts.is_file() else None

    @property
    def seen(self) -> dict[str, Any] | None:
        """What the collection found; None where it did not end."""
        return self._report["seen"] if self._report else None

    @property
    def read_everything(self) -> bool:
        """Whether every module was imported, so that what it found is all there is."""
        return self.seen is not None and self._report is not None and not self._report["unread"]

    @property
    def ended(self) -> dict[str, int]:
        """How many tests passed, failed and were skipped. A phase that broke off is one failure."""
        ended: dict[str, int] = self._report["ended"] if self._report else {"passed": 0, "failed": 0, "skipped": 0}
        if self.code not in (0, NO_TESTS) and not ended["failed"]:
            return {**ended, "failed": 1}
        return ended


def run(arguments: list[str]) -> int:
    """Run both phases, print the sums; returns the exit status."""
    print("== tests that share the machine", flush=True)
    phases = [Phase(*TWO_WORKERS, *arguments, f"--phase={TOGETHER}")]
    found = phases[0].seen
    if not phases[0].read_everything or found is None or found["alone_in"]:
        print("== tests that run alone", flush=True)
        with tempfile.NamedTemporaryFile("w", prefix="ws-tests-", suffix=".json") as modules:
            only: list[str] = []
            # A path that is named must be found: pytest refuses one whose module is left unread.
            if phases[0].read_everything and found is not None and not found["paths_named"]:
                json.dump(found["alone_in"], modules)
                modules.flush()
                only = [f"--modules={modules.name}"]
            phases.append(Phase(*arguments, "-n0", f"--phase={ALONE}", *only))
    ended = {name: sum(phase.ended[name] for phase in phases) for name in ("passed", "failed", "skipped")}
    alone = sum(phases[1].ended.values()) if len(phases) > 1 else 0
    print(f"== {several(sum(ended.values()), 'test')} run, {alone} of them alone. {left_out(phases, arguments)}")
    print(", ".join(f"{number} {name}" for name, number in ended.items()), flush=True)
    return status([phase.code for phase in phases])


def left_out(phases: list[Phase], arguments: list[str]) -> str:
    """What was left to `make test-all`, and why."""
    if any(phase.seen is None for phase in phases):
        return "What was left out is unknown: the collection did not end."
    nightly = sum(phase.seen["nightly"] for phase in phases if phase.seen)
    if "--nightly" in arguments:
        return "No kind of test was left out."
    if nightly == 0:
        return "None was left to `make test-all`."
    return f"Left to `make test-all`, because slow: {several(nightly, 'nightly test')}."


def status(codes: list[int]) -> int:
    """The worse of the exit statuses; a phase without tests counts only where no other had some."""
    return max((code for code in codes if code != NO_TESTS), default=NO_TESTS)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
