"""Hard caps: a step may not spend when a limit of its search is reached.

The policy opens no steps beyond the budget; this is the second check, just before something is spent, with the spending
of others included. A step's spending is committed with the step, in the search's own row, so caps hold across restarts,
pauses and processes.

A model call begins only while every cap but `candidates` has something left, by the committed spending and by the
earlier calls of the same step; a screening only while `wall_clock_s` and `gpu_seconds` have. The baselines and every
full verification are exempt: without baselines there is no search, and a candidate that was paid for is not thrown
away.

Possible overshoot: a reply's size is known only afterwards, so `tokens` and `cost_usd` can be exceeded by the calls
that were under way when the cap was reached: the last call of each step then running, and all earlier calls (a
reflection, two re-asks at most) that such a step had not committed yet. `candidates` and `model_calls` are reserved by
the policy when a step is opened, the latter at CALLS_PER_STEP for each; a step that is put off amid its calls has the
rest of them. So `candidates` is exceeded only where a person lowers it below the number under judgement, and
`model_calls` where a person does, or resumes a search that paused after replies that could not be read. Calls that
brought no reply (an outage) are recorded but not counted. `wall_clock_s` and
`gpu_seconds` are exceeded by no more than the steps under way and the exempt ones. A call whose worker is killed before
it commits is not counted: at most one step's calls for each such death.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.workers.search.budget import exhausted, parse_budget
from warpsmith.workers.steps.rows import spend
from warpsmith.workers.steps.values import ModelCall, Work


def refusal(db: Database, work: Work, now: float, calls: Sequence[ModelCall] = ()) -> str | None:
    """Return the cap that keeps `work` from spending (more) now, in words; None where it may.

    `calls` are those that the step made and did not commit; they count where they brought a reply. For a model step
    every cap counts but `candidates`, in which the step holds its place; for a screening `wall_clock_s` and
    `gpu_seconds` alone; for baselines and full verifications none.
    """
    if work.level in ("baseline", "verify"):
        return None
    with db.reading() as session:
        search = session.get_one(SearchRow, work.search_id)
        budget, spent = replace(parse_budget(search.budget), candidates=None), spend(search, now)
    if work.level == "screen":
        return exhausted(replace(budget, model_calls=None, tokens=None, cost_usd=None), spent)
    answered = [call for call in calls if call.reply is not None]
    tokens = sum((call.prompt_tokens or 0) + (call.completion_tokens or 0) for call in answered)
    cost = sum(call.cost_usd or 0.0 for call in answered)
    return exhausted(
        budget,
        replace(
            spent,
            model_calls=spent.model_calls + len(answered),
            tokens=spent.tokens + tokens,
            cost_usd=spent.cost_usd + cost,
        ),
    )
