"""Ideate and code steps: from a claimed step to a request, from the model's reply to what is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels_db.db import Database
from kernels_db.op import Target, parse_op
from kernels_db.resolve import resolve_workload
from workers import log, steps
from workers.clock import Clock
from workers.model import parsing, requests
from workers.model.base import AskPending, Model, ModelReply, ModelRequest, ModelUnavailable, PoolMiss
from workers.model.parsing import Idea, Unreadable
from workers.settings import Settings
from workers.steps import ModelCall, NodeRecord, Work

LONGEST_BACKOFF_S = 300.0

logger = log.get(__name__)


@dataclass
class ModelStep:
    """One ideate or code step (a repair is a code step), held by `owner`."""

    db: Database
    settings: Settings
    work: Work
    owner: str
    now: Clock

    def run(self, model: Model) -> bool:
        """Ask `model` and commit what comes of it; False where the lease was lost meanwhile.

        An unreadable reply is asked again with what was wrong about it, as often as the step's budget allows.
        """
        context = request_context(self.work)
        calls: list[ModelCall] = []
        allowed = int(self.work.params.get("calls", 1 + parsing.MAX_REASKS))
        while True:
            request = requests.build(context)
            try:
                reply = model.complete(request)
            except AskPending:
                life_s = self.settings.ask_expires_s
                return steps.wait_for_answer(self.db, self.work.attempt_id, self.owner, request, self.now(), life_s)
            except PoolMiss as miss:
                return self._close(str(miss), calls)
            except ModelUnavailable as unavailable:
                calls.append(ModelCall.failed(request, model.provider, unavailable.reason))
                return self._defer(unavailable, calls)
            try:
                committed = self._commit(request, model, reply, calls)
            except Unreadable as unreadable:
                problem = unreadable.problem
            else:
                return committed
            calls.append(ModelCall.answered(request, model.provider, reply, problem))
            if len(calls) >= allowed:
                return self._close(f"no readable reply in {len(calls)} calls: {problem}", calls)
            logger.info("the reply could not be read; asking again", problem=problem)
            context = requests.reask(context, reply.text, problem)

    def _commit(self, request: ModelRequest, model: Model, reply: ModelReply, calls: list[ModelCall]) -> bool:
        """Commit what `reply` holds; raises Unreadable."""
        if self.work.kind == "ideate":
            ideas = self._allowed(parsing.ideas(reply, int(self.work.params["ideas"])))
            calls.append(ModelCall.answered(request, model.provider, reply))
            logger.info("ideas", ideas=len(ideas))
            return steps.complete_ideate(self.db, self.work.attempt_id, self.owner, ideas, calls, self.now())
        source = parsing.code(reply)
        calls.append(ModelCall.answered(request, model.provider, reply))
        logger.info("code", characters=len(source))
        language = self.work.language
        return steps.complete_code(self.db, self.work.attempt_id, self.owner, source, language, calls, self.now())

    def _allowed(self, ideas: list[Idea]) -> list[Idea]:
        """The ideas whose technique the step may use: a restart rules some out."""
        avoided = avoid(self.work)
        allowed = [idea for idea in ideas if idea["technique"] not in avoided]
        if not allowed:
            raise Unreadable(f"Every idea uses a technique that is ruled out: {', '.join(avoided)}.")
        return allowed

    def _close(self, reason: str, calls: list[ModelCall]) -> bool:
        logger.info("the branch closes", reason=reason)
        return steps.close_branch(self.db, self.work.attempt_id, self.owner, reason, calls, self.now())

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
            final=unavailable.final,
        )


def request_context(work: Work) -> requests.RequestContext:
    """What the request of a model step is built from."""
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
        parent=_facts(work.parent),
        best=_facts(work.best),
        ledger=tuple(requests.ledger_entry(**tried._asdict()) for tried in work.ledger),
        ideas=int(work.params.get("ideas", 1)),
        asked=work.asked,
        avoid=avoid(work),
        idea=work.node.idea if kind != "ideate" else None,
        variant=work.node.variant,
        variants=work.variants,
        failing=_facts(work.node) if kind == "repair" else None,
    )


def avoid(work: Work) -> tuple[str, ...]:
    """Techniques that the step's ideas may not use."""
    names = str(work.params.get("technique_not_in") or "")
    return tuple(name for name in names.split(",") if name)


def _facts(node: NodeRecord | None) -> requests.NodeFacts | None:
    if node is None or node.source is None or node.source_digest is None:
        return None
    return requests.NodeFacts(node.seq, node.idea, node.source, node.source_digest, node.document)
