"""The only code that changes a search's state.

Each function takes a `Database`, makes one write transaction that locks the search's row first, appends events, and
returns what was done; messages are sent by the caller, after the commit. Time comes in as `now` (epoch seconds), so
the caller owns the clock. Everything may be called twice, from several processes at once, and after any of them
died.

    create_search   a search with its root, queued; `also` runs in the same transaction (the API's Idempotency-Key)
    advance         asks the policy, opens attempts; the `Message`s that it returns are to be sent after the commit
    take            claims the step whose turn it is between teams, told by any message of its queue
    claim, renew    pending -> running under a lease, for an owner that is new each time; None or False: not ours
    complete_*      one for each kind of step, `close_branch`, `defer`, `wait_for_answer`, `give_up`: the ends of an
                    attempt. False: the lease was lost, and nothing is written. With a `Following` as `also` they do
                    what `advance` does in the same transaction
    tell            the answer to an ask; raises AskClosed where the ask is not open
    pause, resume, cancel       raise WrongState where the state forbids it
    label_search    name, tags, notes, archive; delete_search deletes one that has ended, but not the kernels it led to
    trying          tries of candidates for a node before it is answered: no steps, and nothing of the tree changes
    prune           what only watchers needed, deleted of searches that ended long ago
    reconcile       expired leases back to pending, lost messages again, stalled searches advanced

States. Search: queued -> running -> finished | failed | cancelled; running <-> paused. Node: planned -> coding ->
coded -> judging -> judged, with judged -> coding for a repair, and closed from coding. Attempt: pending -> running ->
succeeded | failed | cancelled; running -> pending when its lease expires or it is deferred; running -> waiting ->
pending for an ask; a ban cancels one that no worker does, which is pending again where the policy asks for it once more
(`bans`). An unknown search or ask raises LookupError.

A message without an answer is sent again after `resend_after_s`, then more and more rarely. Three unreadable calls in a
row, of two steps, pause the search. A policy that raises, or asks for what the tree does not allow, fails its search
with the reason. When a search ends, its best verified candidate is kept as a kernel if it is surely faster than at
least one baseline. `Work` is what a claimed step needs; a `ModelCall` with `reply` and `error` is an unreadable reply,
with `error` alone a failed call.
"""

from warpsmith.workers.steps.asks import AskClosed, replacement, tell, wait_for_answer
from warpsmith.workers.steps.bundling import Taken, take_jobs
from warpsmith.workers.steps.caps import refusal
from warpsmith.workers.steps.claims import claim, give_up, renew
from warpsmith.workers.steps.completion import close_branch, complete_code, complete_ideate, complete_judge
from warpsmith.workers.steps.labels import MOST_TAGS, Deleted, Labels, delete_search, label_search
from warpsmith.workers.steps.lifecycle import (
    Following,
    NewSearch,
    advance,
    cancel,
    create_search,
    find_submission,
    pause,
    resume,
)
from warpsmith.workers.steps.merging import Merged, merge_verdict, note_unjudged
from warpsmith.workers.steps.outages import defer, put_off
from warpsmith.workers.steps.pruning import Pruned, prune
from warpsmith.workers.steps.quotas import QuotaReached, check_device, wait_for_quota
from warpsmith.workers.steps.reading import read_exemplars
from warpsmith.workers.steps.reconciling import reconcile
from warpsmith.workers.steps.returning import GivenBack, give_back, settle_unjudged
from warpsmith.workers.steps.turns import take
from warpsmith.workers.steps.values import Message, ModelCall, NodeRecord, Tried, UnknownSearch, Work, WrongState
from warpsmith.workers.steps.verdict_checks import VerdictRefused

__all__ = [
    "MOST_TAGS",
    "AskClosed",
    "Deleted",
    "Following",
    "GivenBack",
    "Labels",
    "Merged",
    "Message",
    "ModelCall",
    "NewSearch",
    "NodeRecord",
    "Pruned",
    "QuotaReached",
    "Taken",
    "Tried",
    "UnknownSearch",
    "VerdictRefused",
    "Work",
    "WrongState",
    "advance",
    "cancel",
    "check_device",
    "claim",
    "close_branch",
    "complete_code",
    "complete_ideate",
    "complete_judge",
    "create_search",
    "defer",
    "delete_search",
    "find_submission",
    "give_back",
    "give_up",
    "label_search",
    "merge_verdict",
    "note_unjudged",
    "pause",
    "prune",
    "put_off",
    "read_exemplars",
    "reconcile",
    "refusal",
    "renew",
    "replacement",
    "resume",
    "settle_unjudged",
    "take",
    "take_jobs",
    "tell",
    "wait_for_answer",
    "wait_for_quota",
]
