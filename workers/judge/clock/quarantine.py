"""The physics gate: reject a time that is too good to be true, whatever the results. Pure.

A measured peak is itself uncertain, and a kernel may beat it by a little: caches keep part of what a call reads, a
neighbour was idle. A time within the margin passes.
"""

from __future__ import annotations

from typing import Literal

MARGIN = {"cuda": 1.10, "cpu": 1.25}
"""How much faster than the limit a time may be, by type of device.

On a GPU the caches are flushed and the clock is the device's own; on a CPU the peaks are measured on cores that others
share, a moment before or after.
"""

LARGE_RATIO = 10.0
"""A speed-up above this has no margin.

It is believed only where the baseline itself is at least so far from the limit.
"""

_SMALLEST_US = 1e-3


def decide(
    *, time_us: float, limit_us: float, limit_by: Literal["bytes", "operations"], baseline_us: float, device: str
) -> str | None:
    """Return why the candidate's time on one workload is not believed; None where it is.

    `time_us` and `baseline_us` (the fastest baseline) are medians in microseconds; `limit_us` is what the workload's
    bytes or operations need at the measured peak. `device` is the type of device. A baseline that is itself faster than
    the limit shows that the peak was measured too low; its time then replaces the limit.
    """
    limit = min(limit_us, baseline_us)
    ratio = baseline_us / max(time_us, _SMALLEST_US)
    margin = 1.0 if ratio > LARGE_RATIO else MARGIN[device]
    if time_us * margin >= limit:
        return None
    what = {"bytes": "bandwidth", "operations": "rate of operations"}[limit_by]
    reason = f"{time_us:.3g} us, and the measured {what} allows no less than {limit_us:.3g} us"
    if ratio > LARGE_RATIO:
        reason += (
            f"; {ratio:.3g} times as fast as the fastest baseline, which is within {baseline_us / limit:.3g} of it"
        )
    return reason
