"""The prompts in full, as a model reads them, and stories as people do: reviewed as text, held to the code by tests.

`python -m tests.golden` writes them anew after a change.
"""

from __future__ import annotations

from pathlib import Path

from warpsmith.workers.llm.base import ModelRequest

DIRECTORY = Path(__file__).parent


def shown(request: ModelRequest) -> str:
    """A request as its golden file has it: every message under its role."""
    parts = [f"<!-- {message['role']} -->\n\n{message['content'].rstrip()}\n" for message in request.messages]
    return "\n".join(parts)
