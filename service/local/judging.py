"""Judging of one job on this machine, for the command line and MCP."""

from __future__ import annotations

from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.service.client.errors import FAILED, CommandError
from warpsmith.workers.judging.judge import Judge


def judge_once(job: Job) -> Verdict:
    """Judge one job in a judge of its own; CommandError where there is no verdict."""
    with Judge() as judge:
        found = judge.submit(job)
    if found.document is None:
        raise CommandError(f"the judge gave no verdict: {found.reason}", FAILED)
    return found.document
