"""Seeds of a search: stored kernels for similar ops, offered as candidates of round 0.

They are offered beside the root.

A seed brings only its code: measurements of it, made elsewhere and on other shapes, count for nothing, and it is judged
like any candidate.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.lineage import last_idea
from warpsmith.kernels_db.store.records import Offer
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers.search.tree import Budget
from warpsmith.workers.steps.planting import adopt
from warpsmith.workers.steps.rows import add_event

MOST_SEEDS = 3
SHARE_OF_CANDIDATES = 4
"""At most one of so many candidates of the budget is a seed.

The rest are for the search itself.
"""


def count_seeds(wanted: int, budget: Budget) -> int:
    """Count the kernels to start from: at most `wanted` and MOST_SEEDS, and their share of the candidates."""
    most = min(wanted, MOST_SEEDS)
    return most if budget.candidates is None else min(most, budget.candidates // SHARE_OF_CANDIDATES)


def plant_seeds(session: Session, search: SearchRow, root: NodeRow, offers: Sequence[Offer], now: float) -> None:
    """Add a node for each of `offers` under the root; an event names the kernel it came from."""
    for offer in offers:
        idea = last_idea(offer.kernel.lineage)
        node = adopt(
            session,
            search,
            root.id,
            now,
            origin="stored",
            source=offer.kernel.source,
            language=offer.kernel.language,
            technique=None if idea is None else idea["technique"][:64],
            idea=idea,
        )
        told = {"kernel_id": offer.kernel.id, "op": offer.op, "target": offer.kernel.target}
        add_event(session, search, "node.seeded", now, node, similarity=round(offer.similarity, 3), **told)
