"""The only code that changes a search's state.

Each function takes a `Database`, makes one write transaction that locks the search's row first, appends events, and
returns what was done; messages are sent by the caller, after the commit. Time comes in as `now` (epoch seconds), so
whoever calls owns the clock. Everything may be called twice, from several processes at once, and after any of them
died.
"""

from warpsmith.workers.steps.asks import AskClosed, replacement, tell, wait_for_answer
from warpsmith.workers.steps.bundling import GivenBack, Taken, give_back, settle_unjudged, take_jobs
from warpsmith.workers.steps.caps import refusal
from warpsmith.workers.steps.claims import claim, give_up, renew
from warpsmith.workers.steps.completion import close_branch, complete_code, complete_ideate, complete_judge
from warpsmith.workers.steps.lifecycle import advance, cancel, create_search, pause, resume
from warpsmith.workers.steps.merging import Merged, VerdictRefused, merge_verdict, note_unjudged
from warpsmith.workers.steps.outages import defer, put_off
from warpsmith.workers.steps.reconciling import reconcile
from warpsmith.workers.steps.values import Message, ModelCall, NodeRecord, Tried, Work, WrongState

__all__ = [
    "AskClosed",
    "GivenBack",
    "Merged",
    "Message",
    "ModelCall",
    "NodeRecord",
    "Taken",
    "Tried",
    "VerdictRefused",
    "Work",
    "WrongState",
    "advance",
    "cancel",
    "claim",
    "close_branch",
    "complete_code",
    "complete_ideate",
    "complete_judge",
    "create_search",
    "defer",
    "give_back",
    "give_up",
    "merge_verdict",
    "note_unjudged",
    "pause",
    "put_off",
    "reconcile",
    "refusal",
    "renew",
    "replacement",
    "resume",
    "settle_unjudged",
    "take_jobs",
    "tell",
    "wait_for_answer",
]
