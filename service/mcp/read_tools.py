"""Tools that read: ops, searches, trees, nodes, kernels."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.service.client.http import Client
from warpsmith.service.documents.nodes import NodeDocument
from warpsmith.service.documents.searches import SearchDocument, SearchState, SearchSummary
from warpsmith.service.documents.workloads import read_workload_times
from warpsmith.service.local.named_ops import find_op, require_op
from warpsmith.service.mcp.context import Desk
from warpsmith.service.mcp.results import Kernels, NodeReport, Ops, OpSpec, Searches, SearchReport, TreeNode, TreeReport
from warpsmith.workers.llm.prompt import feedback
from warpsmith.workers.text import one_line

LONGEST_REASON = 200
IN_FULL = "rejected by the full verification; read_node says why"

Limit = Annotated[int, Field(ge=1, le=200, description="At most so many, newest first")]
SearchId = Annotated[str, Field(min_length=1, max_length=32, description="A search's id, `sr_...`")]
OpFilter = Annotated[str, Field(min_length=1, max_length=128, description="Only those of this op, by name or id")]
NodeId = Annotated[str, Field(min_length=1, max_length=32, description="A node's id, `nd_...`")]


class Reading:
    """Tools that read the service and change nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list_ops(self, limit: Limit = 50) -> Ops:
        """List the ops that the service has stored.

        A search optimises one op: named axes, typed inputs and outputs, a PyTorch reference, tolerances. Start a search
        for one with submit_search; read its spec with read_op."""
        with self._desk.client() as client:
            found = client.ops(most=limit)
        empty = "No op is stored yet: submit_search and judge_candidate take a spec as YAML."
        return Ops(ops=found, next="read_op shows a spec; submit_search starts a search." if found else empty)

    def read_op(
        self, op_id: Annotated[str, Field(min_length=1, max_length=128, description="An op's id, `op_...`, or name")]
    ) -> OpSpec:
        """Read an op's spec: reference, shapes, dtypes, workloads, tolerances.

        It is a template for specs of your own, too."""
        with self._desk.client() as client:
            found = find_op(client, op_id, "op_id", "the id or name of an op")
        return OpSpec(id=found.id, name=found.op.name, spec=found.op.document())

    def list_searches(
        self, state: SearchState | None = None, limit: Limit = 20, op: OpFilter | None = None
    ) -> Searches:
        """List searches, newest first, with their states.

        For one that runs in agent mode, list_asks shows the requests that it waits for."""
        with self._desk.client() as client:
            found = client.searches(most=limit, state=state, op=op)
            if op is not None and not found:
                require_op(client, op, "op")
        return Searches(
            searches=[summarise(item) for item in found],
            next="list_asks(search_id) shows what a running search asks; read_tree shows what it tried.",
        )

    def read_tree(
        self,
        search_id: SearchId,
        after_seq: Annotated[int, Field(ge=-1, description="Only nodes after this `seq`")] = -1,
        limit: Annotated[int, Field(ge=1, le=500, description="At most so many nodes")] = 200,
    ) -> TreeReport:
        """Read a search's tree and progress.

        The tree holds every idea that was tried, with its technique, verdict and speed-up. read_node shows the code of
        one."""
        with self._desk.client() as client:
            document = client.search(search_id)
            nodes = client.tree(search_id)
        seqs = {node.id: node.seq for node in nodes}
        rest = [node for node in nodes if node.seq > after_seq]
        shown = [
            TreeNode(
                id=node.id,
                seq=node.seq,
                parent_seq=None if node.parent_id is None else seqs.get(node.parent_id),
                round=node.round,
                technique=node.technique,
                title=node.title,
                state=node.state,
                verdict=node.verdict,
                gate=node.gate,
                score=node.score,
                repairs=node.repairs,
                # The reason of a full verification may name hold-out shapes, which authors of candidates must not see.
                reason=IN_FULL
                if node.gate == "verify" or node.verification == "failed"
                else one_line(node.reason, LONGEST_REASON)
                if node.reason
                else None,
                verification=node.verification,
                best=node.best,
                origin=node.origin,
                mark=node.mark,
            )
            for node in rest[:limit]
        ]
        more = f"{len(rest) - limit} more: call again with after_seq={shown[-1].seq}. " if len(rest) > limit else ""
        return TreeReport(search=summarise_progress(document), nodes=shown, next=more + advise(document))

    def read_node(self, node_id: NodeId) -> NodeReport:
        """Read one node: the idea, the candidate's code, the verdict, and the feedback on it.

        The feedback says why it failed or what limits its speed."""
        with self._desk.client() as client:
            node = client.node(node_id)
            words, verdict = _describe_latest_verdict(client, node)
        visible = [] if verdict is None else [item for item in verdict["workloads"] if item["role"] != "holdout"]
        return NodeReport(
            id=node.id,
            search_id=node.search_id,
            seq=node.seq,
            state=node.state,
            idea=node.idea,
            language=node.language,
            source=node.source,
            verdict=node.verdict,
            gate=node.gate,
            score=node.score,
            ci95=node.ci95,
            limit_fraction=node.limit_fraction,
            repairs=node.repairs,
            verification=node.verification,
            reason=node.reason if verdict is None else None,
            feedback=words,
            workloads=read_workload_times(visible),
        )

    def list_kernels(self, op: OpFilter | None = None, target: str | None = None, limit: Limit = 50) -> Kernels:
        """List the kernels that searches kept and those that ship, with their speed-ups.

        They are verified winners; speed-ups are over the fastest baseline. `op` is an op's name or id, `target` as in
        `cpu:x86_64`. export_kernel writes one as a package."""
        with self._desk.client() as client:
            found = client.kernels(most=limit, op=op, target=target)
            if op is not None and not found:
                require_op(client, op, "op")
        none = "None yet: a search keeps its best candidate once it ends, if it beats a baseline beyond the noise."
        return Kernels(kernels=found, next="export_kernel writes a package." if found else none)


def summarise(item: SearchSummary) -> SearchReport:
    """Summarise a search of a list."""
    return SearchReport(
        id=item.id,
        op=item.op_name,
        target=item.target,
        language=item.language,
        state=item.state,
        reason=item.reason,
        best_score=item.best_score,
        candidates=item.spend.candidates,
    )


def summarise_progress(document: SearchDocument) -> SearchReport:
    """Summarise a search with its progress."""
    return summarise(document).model_copy(
        update={
            "problem": document.problem,
            "round": document.round,
            "nodes": document.nodes,
            "best_node_id": None if document.best is None else document.best.node_id,
            "kernels": document.kernels,
            "waiting_for": [item.detail for item in document.waiting_for],
        }
    )


def advise(document: SearchDocument) -> str:
    """Say how an agent goes on with a search in this state."""
    waits = {item.what for item in document.waiting_for}
    kept = f"It kept {', '.join(document.kernels)}: export_kernel writes the package." if document.kernels else ""
    if document.state == "finished":
        return f"The search has finished. {kept or 'It kept no kernel; read_tree shows what was tried.'}"
    if document.state in ("failed", "cancelled"):
        ended = f"The search has ended: {document.state}. Its reason says why; submit_search starts another."
        return f"{ended} {kept}".rstrip()
    if document.state == "paused":
        return "The search is paused; answers are kept, and it goes on when a person resumes it."
    if "answer" in waits:
        return "It waits for answers: list_asks, get_ask, answer_ask."
    return "Nothing to answer now: the judge or a worker is at it. list_asks with wait_s waits for the next ask."


def _describe_latest_verdict(client: Client, node: NodeDocument) -> tuple[str | None, Verdict | None]:
    """Return the latest verdict on the node in words, and whole; None before the first."""
    if not node.verdicts:
        return None, None
    verdict: Verdict = node.verdicts[-1].document  # type: ignore[assignment] # as the judge wrote it
    search = client.search(node.search_id)
    op = parse_op(client.op(search.op_id).spec)
    workloads = [resolve_workload(op, each) for each in op.workloads_for(Target.parse(search.target))]
    return feedback.feedback(verdict, workloads), verdict
