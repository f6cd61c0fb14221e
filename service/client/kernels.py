"""Search for an op's best kernel over the API, and for kernels that have drifted."""

from __future__ import annotations

from warpsmith.service.client.errors import misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.kernels import KernelSummary


def choose_best_kernel(client: Client, op: str, target: str | None, field: str = "KERNEL|OP") -> KernelSummary:
    """Choose the kernel of an op with the highest score, if possible one that has not drifted.

    `field` is the argument that names the op. Without a target, kernels for the targets of live workers come first: a
    shipped kernel for a GPU that no worker has may have the higher score.
    """
    found = client.kernels(op=op, target=target)
    if len({item.target for item in found}) > 1:
        here = {worker.target for worker in client.workers() if worker.alive}
        found = [item for item in found if item.target in here] or found
    if not found:
        there = sorted({item.op_name for item in client.kernels()})
        hint = "; a search is exported with --format pool" if op.startswith("sr_") and field == "KERNEL|OP" else ""
        misuse(
            field, op, f"a kernel's id (kn_...) or an op with a kernel: {', '.join(there) or 'there is none yet'}{hint}"
        )
    return max(found, key=lambda item: (not has_drifted(item), item.score))


def describe_drift(client: Client, kernel_id: str) -> str | None:
    """Describe the drift of a kernel from its evidence; None where none was found."""
    again = client.kernel(kernel_id).reverification
    if again is None or not again.drifted:
        return None
    return f"{kernel_id} has drifted ({again.state}); warpsmith reverify {kernel_id} judges it again"


def has_drifted(item: KernelSummary) -> bool:
    """Check whether the latest re-verification found it wrong, slow, or uncompilable."""
    return item.reverification is not None and item.reverification.drifted
