"""Record which configuration Triton's autotuner took at each launch.

It runs in a runner, beside the candidate. What it says decides nothing in the judge: an export ships the configuration
that is named, where the source has it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from warpsmith.kernels_db.job.documents import Configuration

MOST = 50
"""Launches of tuned kernels of a call that are recorded, each kernel, key and configuration once."""
_LONGEST = 200
_MOST_VALUES = 50


@contextmanager
def recorded() -> Iterator[list[Configuration]]:
    """Record the launches inside the block of kernels that have several configurations."""
    found: list[Configuration] = []
    module: Any = sys.modules.get("triton.runtime.autotuner")
    if module is None:
        yield found
        return
    tuner = module.Autotuner
    run = tuner.run

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        if len(self.configs) > 1 and len(found) < MOST:
            given = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
            key = [given[name] for name in self.keys if name in given]
            one: Any = {"kernel": self.base_fn.__name__, "key": key, "configuration": self.best_config.all_kwargs()}
            if _is_plain(one) and one not in found:
                found.append(one)
        return result

    tuner.run = noted
    try:
        yield found
    finally:
        tuner.run = run


def checked(found: object) -> list[Configuration]:
    """Return what a runner told, if it is as `recorded` gives it. Raises TypeError."""
    if not isinstance(found, list) or len(found) > MOST or not all(map(_is_plain, found)):
        raise TypeError(f"found {str(found)[:_LONGEST]}, expected at most {MOST} of kernel, key and configuration")
    return found


def _is_plain(one: Any) -> bool:
    """Check that a record has numbers and short texts alone."""
    if not isinstance(one, dict) or set(one) != {"kernel", "key", "configuration"}:
        return False
    kernel, key, took = one["kernel"], one["key"], one["configuration"]
    if not isinstance(key, list) or not isinstance(took, dict) or len(key) + len(took) > _MOST_VALUES:
        return False
    texts = [kernel, *took, *(value for value in (*key, *took.values()) if isinstance(value, str))]
    return all(isinstance(text, str) and len(text) <= _LONGEST for text in texts) and all(
        isinstance(value, bool | int | float | str) for value in (*key, *took.values())
    )
