"""The number of the judge's protocol, which verdicts carry: those of two protocols are not compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROTOCOL = 3
"""The judge's protocol: it rises when what is timed or checked changes, so verdicts of two are not compared.

2: the device waits until the host has launched a whole burst, so small baselines are no longer timed by the host; on a
CPU the checks before the clock close a slot to writes as `run` returns. 3: the judge searches for the input on which a
candidate is wrong, forbids state between calls, scores the sum of a block's calls, and never gives a value twice.
"""

BEFORE_PROTOCOLS = 2
"""The protocol of a verdict that names none, or an older one."""


def read_protocol(verdict: Mapping[str, Any]) -> int:
    """Return the protocol that a verdict was found under; BEFORE_PROTOCOLS where it names none."""
    found = verdict.get("protocol")
    return found if isinstance(found, int) else BEFORE_PROTOCOLS
