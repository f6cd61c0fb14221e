"""The fork server of a judge with some of its defences off: see `undefended`."""

from __future__ import annotations

from benchmarks.redteam_proof.undefended import without_named
from warpsmith.workers.judge.runner import fork_server as theirs

if __name__ == "__main__":
    without_named()
    theirs.main()
