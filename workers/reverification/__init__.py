"""Judge stored kernels again under their target's present versions, and keep the result.

A re-verification is a row with a lease, as an attempt is; it belongs to no search and changes none.
`kernels_db.store.reverification_due` says which kernels are to be judged.

States: pending -> running -> done; running -> pending when the lease expires or the judge died. A kernel has at most
one open at a time, because its row is locked to open and to end one. `ask` opens one or returns the open one; `claim`,
`renew` and `finish` work as for an attempt. `finding(evidence, verdict)` is pure: holds, wrong, slower, uncompilable or
unknown. `sweep` asks for what is due, and `reconcile` sends lost messages again.

The end sets the kernel's `standing`, unless the outcome is unknown or a search has kept the kernel again since the
claim. A pending one is sent only while a judge of its target lives, and ends as unknown after seven days without one.
"""

from warpsmith.workers.reverification.finding import Finding, Outcome, finding
from warpsmith.workers.reverification.reconciling import reconcile
from warpsmith.workers.reverification.rows import OPEN, ask, claim, finish, message, renew
from warpsmith.workers.reverification.schedule import sweep

__all__ = [
    "OPEN",
    "Finding",
    "Outcome",
    "ask",
    "claim",
    "finding",
    "finish",
    "message",
    "reconcile",
    "renew",
    "sweep",
]
