"""Bytes of the commands to a runner and of its answers, and bounds of what it tells.

Standard library only, so that both sides may import it at once.
"""

from __future__ import annotations

CALL, CALL_AND_CLOSE, BURST, GO, DELIVER, FREE, NOTHING = b"C", b"L", b"B", b"G", b"D", b"F", b"N"
HOST = b"H"
DONE, FAILED = b"K", b"E"

LONGEST_TEXT = 4000
LONGEST_NAME, MOST_NAMES = 500, 100
"""Characters of a text that a runner tells; of the names of kernels, and how many of them."""
