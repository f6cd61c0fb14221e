"""The tool that judges a single candidate.

The service judges candidates of its searches, and tries for their nodes (`search_tools`). This runs the judge on the
host of the MCP server, outside of any search, as `warpsmith judge` does: sandboxed, with its own processes, one
candidate at a time. For another host's target it can compile at most; an agent might take that for a verdict, so only
level compile does it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from warpsmith.kernels_db.job.documents import CandidateLanguage, Verdict, has_compiled, tier_of
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.service.client.errors import misuse
from warpsmith.service.documents.workloads import read_workload_times
from warpsmith.service.mcp.context import Desk
from warpsmith.service.mcp.results import JudgeReport
from warpsmith.service.mcp.specs import OpArgument, spec_of
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging.candidates import read_candidate
from warpsmith.workers.judging.submission import candidate_job, limits_of
from warpsmith.workers.judging.targets import choose_place, choose_target, list_own_targets
from warpsmith.workers.llm.prompt import feedback

INSTEAD = (
    "start `warpsmith mcp` on a host that has that device, or answer the ask untried: the candidates of a search are "
    "judged by a worker for its target"
)
"""Advice for a candidate for another device."""
GOOD = "Correct, and timed: answer an ask with it, or go on."
FREE = "Correct, and timed. No search takes free Python: answer an ask with kernels of the search's language."


class Judging:
    """The tool that judges on this machine."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def judge_candidate(
        self,
        op: OpArgument,
        source: Annotated[
            str,
            Field(
                min_length=1,
                max_length=1_000_000,
                description="The candidate: one Python file; or, for an op of the same format, a KernelBench "
                "ModelNew, a FlashInfer-Bench Solution (JSON) or a GPU MODE submission",
            ),
        ],
        language: Annotated[
            CandidateLanguage | None,
            Field(description="Read from the imports where not given; python is free, held by the sandbox alone"),
        ] = None,
        target: Annotated[
            str | None,
            Field(description="cpu, cuda:sm_90 ...; by default the CPU for cpp and python, else the first GPU here"),
        ] = None,
        level: Annotated[
            Literal["compile", "screen", "verify"],
            Field(
                description="compile: gate and compilers alone, in seconds. screen: the bench workloads, a short "
                "timing. verify: everything, as for a winner"
            ),
        ] = "screen",
    ) -> JudgeReport:
        """Compile, check against PyTorch and time one candidate, outside of any search.

        It runs on the host of this MCP server, not on the service's judge workers: a target whose device that host does
        not have is refused, except at level compile, and times are those of its device. It runs in a sandbox and takes
        from some seconds to minutes; one candidate at a time. For an ask of a search, try_candidate judges on the
        search's own device."""
        with self._desk.client() as client:
            # A spec that comes whole needs no service.
            spec = parse_op(spec_of(client, op))
        candidate = read_candidate(spec, source, language)
        wanted = str(choose_target(target, candidate.language))
        if level != "compile" and wanted not in (here := list_own_targets()):
            misuse("target", wanted, f"{' or '.join(here)}, which the host of this MCP server has; {INSTEAD}")
        place = choose_place(wanted, candidate.language)
        limits = limits_of(ServiceSettings())
        job = candidate_job(spec, candidate, place, level=level, workloads=None, limits=limits)
        verdict = self._desk.judge.judge(job)
        workloads = [resolve_workload(spec, each) for each in spec.workloads_for(place.target)]
        good = GOOD if tier_of(candidate.language) == "gated" else FREE
        return JudgeReport(
            verdict=verdict["verdict"],
            gate=verdict["gate"],
            reason=feedback.cause(verdict, workloads),
            op=spec.name,
            target=wanted,
            language=candidate.language,
            tier=tier_of(candidate.language),
            level=level,
            score=verdict["score"],
            score_ci95=verdict["score_ci95"],
            feedback=feedback.feedback(verdict, workloads),
            workloads=read_workload_times([item for item in verdict["workloads"] if item["role"] != "holdout"]),
            sandbox=str(verdict["sandbox"].get("level", "none")),
            note=place.shortfall,
            next=_advise(verdict, level, good),
        )


def _advise(verdict: Verdict, level: str, good: str) -> str:
    """Say what to do next."""
    if verdict["verdict"] == "accepted":
        return good
    if level == "compile" and has_compiled(verdict):
        return "It compiles: judge it at level screen, or try_candidate, before you rely on it."
    return "The feedback says what to change."
