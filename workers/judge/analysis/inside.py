"""The sandbox's side of an analysis: request as source text, answer as a tensor of bytes."""

from __future__ import annotations

import json
from typing import Any

import torch

from warpsmith.workers.judge.analysis import module, reference, task

ANSWER_BYTES = 1 << 20

_TASKS = {"module": module.analyse, "task": task.analyse, "smaller": task.lower, "reference": reference.compare}


def answer(request: str) -> torch.Tensor:
    """Return the answer to a request as UTF-8 JSON, padded with spaces to ANSWER_BYTES.

    Raises what the file raises.
    """
    document: dict[str, Any] = json.loads(request)
    raw = json.dumps(_TASKS[document["task"]](document), allow_nan=False).encode()
    if len(raw) > ANSWER_BYTES:
        raise ValueError(f"{len(raw)} bytes describe what it computes on, at most {ANSWER_BYTES}")
    return torch.frombuffer(bytearray(raw.ljust(ANSWER_BYTES)), dtype=torch.uint8)
