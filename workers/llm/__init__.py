"""Models behind one interface.

`prompt.requests.build(context)` makes a `ModelRequest`: messages, summary and identity. It is pure, and a hold-out
workload never enters a prompt. `reply.parsing` reads `ideas`, `code` and `lessons` from a `ModelReply`; it raises
Unreadable, whose text is written for the model, and `requests.reask` puts the request again at most
`parsing.MAX_REASKS` times. `prompt.feedback` tells a verdict to the model.

The identity of a request is SHA-256 over canonical JSON of: its kind, the op's semantic digest, device type, language
and the digest of the parent's source. In addition, `ideate`: how often this parent was asked before; `code`: the
variant, and the idea's text where the policy has ideas; `repair`: the digest of the failing source; `reflect`: the
round, and how often ideas were asked for. Measured numbers are left out, so a pool replays on any machine.

A search's `model` document is {"provider": "openai", "model"?, "base_url"?}, {"provider": "replay", "pool": ID} or
{"provider": "agent", "pool"?: ID}; with a pool an agent is asked only what the pool does not hold. `check_model` and
`open_model` are in `providers.factory`: they need the database, which requests and replies do not. `check_model` raises
SpecError. A key never enters the database, and the key of the settings goes to the configured endpoint alone.
"""

from warpsmith.workers.llm.base import (
    AskPending,
    Model,
    ModelError,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    PoolMiss,
)

__all__ = [
    "AskPending",
    "Model",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "ModelUnavailable",
    "PoolMiss",
]
