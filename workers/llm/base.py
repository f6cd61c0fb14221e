"""The one interface of a model, and the tree of its errors.

ModelError
├── ModelUnavailable   the endpoint is down, slow, over its rate, refuses the key, answers nonsense: wait, retry, pause
├── ModelBusy          this host has as many calls under way there as it may: come back shortly
├── PoolMiss           the recorded pool has no reply to this request: the branch closes and says so
└── AskPending         agent mode: the request now waits for an answer from outside
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

RequestKind = Literal["reflect", "ideate", "code", "repair"]

CHARS_PER_TOKEN = 4
"""Characters of a token, where nobody counts them; every provider counts in its own way."""


def approximate_tokens(chars: int) -> int:
    """Return the tokens of a text of `chars` characters, about."""
    return -(-chars // CHARS_PER_TOKEN)


@dataclass(frozen=True)
class ModelRequest:
    """One request.

    `identity` (SHA-256, hex) leaves out measured numbers, so a pool replays on any machine.
    """

    kind: RequestKind
    identity: str
    ordinal: int  # 0, then 1, 2 ... for re-asks after an unreadable reply
    messages: tuple[dict[str, str], ...]  # {"role": "system" | "user" | "assistant", "content": ...}
    summary: str  # one line for people: "code 'Fuse both passes' (fusion), variant 0"
    attempt_id: str  # whose ask it is in agent mode; not a part of the identity
    follows: bool = False  # its step made calls already, which it would have to make again


@dataclass(frozen=True)
class ModelReply:
    """One reply, as it came. Tokens and cost are None where they were not counted."""

    text: str
    model: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    latency_s: float


class ModelError(Exception):
    """Base of all model errors."""


class ModelUnavailable(ModelError):  # noqa: N818 - named for what happened
    """The endpoint cannot be used now.

    `final` means that waiting will not help (a refused key): pause at once. `model` is the one that was asked, None
    where none was.
    """

    model: str | None = None

    def __init__(self, reason: str, *, retry_after_s: float | None = None, final: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.final = final


class ModelBusy(ModelError):  # noqa: N818 - named for what happened
    """No call was made: every slot of the endpoint is taken."""


class PoolMiss(ModelError):  # noqa: N818 - named for what happened
    """The pool cannot answer this request."""


class AskPending(ModelError):  # noqa: N818 - named for what happened
    """The request waits in the database as an ask."""


class Model(Protocol):
    """A source of replies: an endpoint, a recorded pool or an agent.

    Implementations are for one thread at a time; they never touch a search's state.
    """

    provider: str

    def complete(self, request: ModelRequest) -> ModelReply:
        """Answer `request`, or raise a `ModelError`."""
        ...
