"""Search for an op's best kernel over the API, and for kernels that have drifted."""

from __future__ import annotations

from typing import NoReturn

from warpsmith.kernels_db.spec.near_misses import suggest
from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.kernels import KernelSummary


def choose_best_kernel(client: Client, op: str, target: str | None, field: str = "KERNEL|OP") -> KernelSummary:
    """Choose the kernel of an op with the highest score, if possible one that has not drifted.

    `field` is the argument that names the op. Without a target, kernels for the targets of live workers come first: a
    shipped kernel for a GPU that no worker has may have the higher score.
    """
    found = client.kernels(op=op, target=target)
    if not found:
        _refuse(client, op, target, field)
    if len({item.target for item in found}) > 1:
        here = {worker.target for worker in client.workers() if worker.alive}
        found = [item for item in found if item.target in here] or found
    best: dict[str, KernelSummary] = {}
    for item in sorted(found, key=_rank):
        best[item.op_id] = item
    if len(best) > 1:  # speed-ups of ops that differ, in their sizes at least, say nothing of one another
        each = ", ".join(f"{one.op_id} ({one.id}, {one.score:.2f}x on {one.target})" for one in best.values())
        misuse(field, op, f"one op, but {len(best)} ops of this name have a kernel; the id of one: {each}")
    return max(found, key=_rank)


def _rank(item: KernelSummary) -> tuple[bool, float]:
    return not has_drifted(item), item.score


def _refuse(client: Client, op: str, target: str | None, field: str) -> NoReturn:
    """End with misuse: the op has no kernel, or none for the target."""
    elsewhere = [] if target is None else client.kernels(op=op, target=None)
    if target is not None and elsewhere:
        there = ", ".join(sorted({item.target for item in elsewhere}))
        misuse("target" if field == "kernel" else "--target", target, f"one that {op} has a kernel for: {there}")
    names = sorted({item.op_name for item in client.kernels()})
    hint = "; a search is exported with --format pool" if op.startswith("sr_") and field == "KERNEL|OP" else ""
    known = ", ".join(names) or "there is none yet"
    if client.ops(name=op, most=1):
        misuse(field, op, f"an op with a kernel: no search of {op} has kept one; warpsmith searches --op {op}")
    misuse(field, op, f"a kernel's id (kn_...) or an op with a kernel: {known}{hint}{suggest(op, names)}")


def describe_drift(client: Client, kernel_id: str) -> str | None:
    """Describe the drift of a kernel from its evidence; None where none was found."""
    again = client.kernel(kernel_id).reverification
    if again is None or not again.drifted:
        return None
    return f"{kernel_id} has drifted ({again.state}); warpsmith reverify {kernel_id} judges it again"


def has_drifted(item: KernelSummary) -> bool:
    """Check whether the latest re-verification found it wrong, slow, or uncompilable."""
    return item.reverification is not None and item.reverification.drifted
