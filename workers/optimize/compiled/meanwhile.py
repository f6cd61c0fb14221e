"""Kernels compared in their places in threads, while Inductor compiles the graph in which they stand.

Their compilers, and the GPU, work mostly outside of Python, as Inductor does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from . import choice, inductor
from .choice import MOST_AT_ONCE, Decision
from .places import Region


class Meanwhile:
    """Comparisons that are under way, one for each kind of region."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[Region, Future[Decision | None]]] = {}
        self._held = ExitStack()

    def begin(self, regions: Sequence[Region]) -> None:
        """Begin to compare kernels in these places; each region's graph is taken here, for it may be rewritten next."""
        kinds = {region.key: region for region in regions if region.key not in self._asked}
        if not kinds:
            return
        for kernel in {region.kernel.name: region.kernel.kernel for region in kinds.values()}.values():
            self._held.enter_context(kernel.unwatched())  # it holds for a process, and no thread may end it for others
        several = ThreadPoolExecutor(max_workers=MOST_AT_ONCE)
        for key, region in kinds.items():
            region.ready()
            self._asked[key] = region, several.submit(choice.in_thread, region, choice.compare)
        several.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until nothing is under way."""
        for _, found in self._asked.values():
            found.exception()

    def end(self) -> dict[str, Decision | None]:
        """Wait for all; returns by region why its kernel may not stand there, None where it may.

        What raised in a thread, for want of memory say, is compared again by itself. Raises what is raised then.
        """
        asked, self._asked = self._asked, {}
        with self._held.pop_all():
            raised = [region for region, found in asked.values() if found.exception() is not None]
            told = {key: found.result() for key, (region, found) in asked.items() if region not in raised}
            with inductor.outside():
                return told | {region.key: choice.compare(region) for region in raised}
