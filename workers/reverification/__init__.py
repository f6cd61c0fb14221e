"""Judging stored kernels anew under what their target has now, and what that says of them.

A re-verification is a row with a lease, as an attempt is; it belongs to no search and changes none. `kernels_db.due`
says which kernels are to be judged.
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
