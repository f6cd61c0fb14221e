"""Refuse ideas that were tried already, before they cost a model call or judge time.

Duplicates are refused at three points: an idea whose text was seen within its technique (here), a candidate whose
normalised source was seen (`workers.gate.normalise`, when the code is stored), and a candidate whose compiled binary
was seen (the judge's build cache).
"""

from __future__ import annotations

import hashlib
import re

_NOT_WORDS = re.compile(r"[\W_]+")


def idea_digest(technique: str, text: str) -> str:
    """Compute the SHA-256 (hex) of an idea: its technique and the words of its text.

    Case, punctuation and spacing do not count.
    """
    words = (" ".join(_NOT_WORDS.split(part.casefold())).strip() for part in (technique, text))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()
