"""Ideate and code steps: from a claimed step to a request, from the reply to the commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import log, steps, tracing
from warpsmith.workers.clock import Clock
from warpsmith.workers.llm.base import (
    AskPending,
    Model,
    ModelBusy,
    ModelError,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    PoolMiss,
)
from warpsmith.workers.llm.prompt import candidates, requests
from warpsmith.workers.llm.prompt.privacy import Private
from warpsmith.workers.llm.reply import parsing
from warpsmith.workers.llm.reply.parsing import Idea, Lesson, Unreadable
from warpsmith.workers.llm.reply.techniques import ruled_out
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import ModelCall, NodeRecord, Work

LONGEST_BACKOFF_S = 300.0
BUSY_DELAY_S = 1.0
"""Seconds for which a step is put back when every slot of its endpoint is taken.

The reconciler sends it again then.
"""

logger = log.get(__name__)


@dataclass
class ModelStep:
    """One ideate or code step (a repair is a code step), held by `owner`.

    `following`: opens, with the commit, what follows. `salvaged`: the ideas of a reply that was cut off.
    """

    db: Database
    settings: Settings
    work: Work
    owner: str
    now: Clock
    following: steps.Following | None = None
    salvaged: list[Idea] = field(default_factory=list, init=False)

    def run(self, model: Model) -> bool:
        """Ask `model` and commit the result; False where the lease was lost meanwhile.

        An unreadable reply is asked again with the error that was found, as often as the step's budget allows. A
        reflection comes first where the step has one; its lessons go into the request for ideas.
        """
        own = self._context()
        private = Private.here(self.settings)
        calls: list[ModelCall] = []
        # Replies from before it was put off count: a step has its calls once, however often it begins. One is always
        # left, where a person resumed the search.
        allowed = max(1, int(self.work.params.get("calls", 1 + parsing.MAX_REASKS)) - self.work.replies)
        context = replace(own, kind="reflect") if reflects(self.work, allowed) else own
        while True:
            request = replace(private.request(requests.build(context)), follows=bool(calls))
            capped = steps.refusal(self.db, self.work, self.now(), calls)
            if capped is not None:
                return self._give_in(capped, calls)
            try:
                with tracing.span("model call", "CLIENT") as note:
                    note(kind=request.kind, provider=model.provider)
                    reply = model.complete(request)
                    note(model=reply.model, prompt_tokens=reply.prompt_tokens, cost_usd=reply.cost_usd)
                    note(completion_tokens=reply.completion_tokens, finish_reason=reply.finish_reason)
            except ModelError as error:
                if request.kind == "reflect" and isinstance(error, PoolMiss):
                    logger.info("no reflection", reason=str(error))
                    context = own
                    continue
                return self._unanswered(error, request, model, calls)
            if request.kind == "reflect":
                context = replace(own, lessons=self._lessons(request, model, reply, calls))
                continue
            try:
                committed = self._commit(request, model, reply, calls, last=len(calls) + 1 >= allowed)
            except Unreadable as unreadable:
                problem = unreadable.problem
            else:
                return committed
            calls.append(ModelCall.answered(request, model.provider, reply, problem))
            if len(calls) >= allowed:
                return self._give_in(f"no readable reply in {len(calls)} calls: {problem}", calls)
            logger.info("the reply could not be read; asking again", problem=problem)
            context = requests.reask(context, reply.text, problem)

    def _context(self) -> requests.RequestContext:
        """Return the facts of the request; kernels to read are asked for only where they are on and it shows them."""
        context = request_context(self.work)
        most = requests.most_exemplars(context) if self.settings.exemplars else 0
        return replace(context, exemplars=steps.read_exemplars(self.db, self.work, most)) if most else context

    def _lessons(
        self, request: ModelRequest, model: Model, reply: ModelReply, calls: list[ModelCall]
    ) -> tuple[Lesson, ...]:
        """Read the lessons of a reflection; none where it is unreadable: ideas need no lessons."""
        lessons, problem = list[Lesson](), None
        try:
            lessons = parsing.lessons(reply)
        except Unreadable as unreadable:
            problem = unreadable.problem
        logger.info("lessons", lessons=len(lessons), problem=problem)
        calls.append(ModelCall.answered(request, model.provider, reply, problem))
        return tuple(lessons)

    def _unanswered(self, error: ModelError, request: ModelRequest, model: Model, calls: list[ModelCall]) -> bool:
        """Commit that `request` brought no reply."""
        match error:
            case AskPending():
                life_s = self.settings.ask_expires_s
                attempt_id, now = self.work.attempt_id, self.now()
                return steps.wait_for_answer(self.db, attempt_id, self.owner, request, now, life_s, self.following)
            case PoolMiss():
                return self._give_in(str(error), calls)
            case ModelBusy():
                attempt_id, now = self.work.attempt_id, self.now()
                reason = str(error)
                return steps.put_off(self.db, attempt_id, self.owner, reason, BUSY_DELAY_S, calls, now, self.following)
            case ModelUnavailable():
                calls.append(ModelCall.failed(request, model.provider, error.reason, model=error.model))
                return self._defer(error, calls)
        raise error

    def _commit(
        self, request: ModelRequest, model: Model, reply: ModelReply, calls: list[ModelCall], *, last: bool
    ) -> bool:
        """Commit what `reply` holds; raises Unreadable. `last`: the step may make no further call."""
        if self.work.kind == "ideate":
            ideas = self._whole(reply, self._allowed(parsing.ideas(reply, int(self.work.params["ideas"]))), last=last)
            calls.append(ModelCall.answered(request, model.provider, reply))
            logger.info("ideas", ideas=len(ideas))
            return self._complete_ideate(ideas, calls)
        source = parsing.code(reply)
        calls.append(ModelCall.answered(request, model.provider, reply))
        logger.info("code", characters=len(source))
        language = self.work.language
        attempt_id, now = self.work.attempt_id, self.now()
        return steps.complete_code(self.db, attempt_id, self.owner, source, language, calls, now, self.following)

    def _whole(self, reply: ModelReply, ideas: list[Idea], *, last: bool) -> list[Idea]:
        """Return the ideas to go on with.

        A list that was cut off at the token limit is asked for once more, and the longer of the two counts; raises
        Unreadable for that.
        """
        wanted = int(self.work.params["ideas"])
        if len(ideas) < wanted and reply.finish_reason == "length" and not self.salvaged and not last:
            self.salvaged = ideas
            raise Unreadable(
                f"The reply was cut off at the token limit after {len(ideas)} of {wanted} ideas. "
                f"Give all {wanted} again, each in fewer words."
            )
        return max(ideas, self.salvaged, key=len)

    def _give_in(self, reason: str, calls: list[ModelCall]) -> bool:
        """Go on without a further reply: with the ideas of a cut one, or close the branch."""
        if not self.salvaged:
            return self._close(reason, calls)
        return self._complete_ideate(self.salvaged, calls)

    def _complete_ideate(self, ideas: list[Idea], calls: list[ModelCall]) -> bool:
        attempt_id, now = self.work.attempt_id, self.now()
        return steps.complete_ideate(self.db, attempt_id, self.owner, ideas, calls, now, self.following)

    def _allowed(self, ideas: list[Idea]) -> list[Idea]:
        """Return the ideas whose technique the step may use: a restart rules some out."""
        avoided = avoid(self.work)
        allowed = [idea for idea in ideas if idea["technique"] not in avoided]
        if not allowed:
            raise Unreadable(f"Every idea uses a technique that is ruled out: {', '.join(avoided)}.")
        return allowed

    def _close(self, reason: str, calls: list[ModelCall]) -> bool:
        logger.info("the branch closes", reason=reason)
        attempt_id, now = self.work.attempt_id, self.now()
        return steps.close_branch(self.db, attempt_id, self.owner, reason, calls, now, self.following)

    def _defer(self, unavailable: ModelUnavailable, calls: list[ModelCall]) -> bool:
        backoff = min(self.settings.model_backoff_s * 2.0 ** min(self.work.deferrals, 30), LONGEST_BACKOFF_S)
        delay = max(backoff, min(unavailable.retry_after_s or 0.0, LONGEST_BACKOFF_S))
        logger.warning("the model is unavailable", reason=unavailable.reason, again_in_s=delay)
        return steps.defer(
            self.db,
            self.work.attempt_id,
            self.owner,
            unavailable.reason,
            delay,
            calls,
            self.now(),
            max_deferrals=self.settings.model_max_deferrals,
            probe_s=self.settings.model_probe_s,
            longest_probe_s=self.settings.model_probe_longest_s,
            final=unavailable.final,
            also=self.following,
        )


def request_context(work: Work) -> requests.RequestContext:
    """Return the facts from which the request of a model step is built, without kernels to read."""
    op, target = parse_op(work.op), Target.parse(work.target)
    kind: Literal["ideate", "code", "repair"] = "ideate"
    if work.kind == "code":
        kind = "repair" if work.ordinal > 0 else "code"
    return requests.RequestContext(
        kind=kind,
        attempt_id=work.attempt_id,
        op=op,
        target=target,
        language=work.language,
        workloads=tuple(resolve_workload(op, workload) for workload in op.workloads_for(target)),
        baselines=work.baselines,
        earlier=work.earlier,
        parent=_facts(work.parent),
        best=_facts(work.best),
        other=_facts(work.other),
        leads_on=work.leads_on,
        joins=work.joins,
        sweeps=work.expected_sweep.is_worthwhile,
        sweep_s=work.expected_sweep.seconds,
        sweep_timed=work.expected_sweep.timed,
        ledger=tuple(requests.ledger_entry(**tried._asdict()) for tried in work.ledger),
        ideas=int(work.params.get("ideas", 1)),
        asked=work.asked,
        avoid=avoid(work),
        round=int(work.params.get("round", 0)),
        idea=work.node.idea if kind != "ideate" else None,
        variant=work.node.variant,
        variants=work.variants,
        failing=_facts(work.node) if kind == "repair" else None,
        counterexamples=tuple(one.description for one in work.counterexamples if not one.hidden),
    )


def reflects(work: Work, calls: int) -> bool:
    """Check whether the step begins with a reflection.

    It is planned, there is something to reflect on, and a call is left for the ideas.
    """
    return work.kind == "ideate" and bool(work.params.get("reflect")) and bool(work.ledger) and calls > 1


def avoid(work: Work) -> tuple[str, ...]:
    """Return the techniques that the step's ideas may not use."""
    return ruled_out(work.params)


def _facts(node: NodeRecord | None) -> candidates.NodeFacts | None:
    if node is None or node.source is None or node.source_digest is None:
        return None
    return candidates.NodeFacts(node.seq, node.idea, node.source, node.source_digest, node.document, node.metrics)
