"""A campaign's documents: of a model of three regions, two of them searched, one of whose kernels stays."""

from __future__ import annotations

from typing import Any

MODEL_DIGEST = "ab" * 32
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "target": "cpu",
    "model": {"provider": "agent"},
    "budget": {"candidates": 40},
    "time_s": 1.0,
}


def begun(**settings: Any) -> dict[str, Any]:
    """The request that begins a campaign."""
    return {"model_name": "transformer.py", "model_digest": MODEL_DIGEST, "settings": SETTINGS | settings}


def region(name: str, time_us: float, **more: Any) -> dict[str, Any]:
    """A region, in full."""
    return {
        "name": name,
        "operators": name.replace("_", " + "),
        "places": ["blocks.0", "blocks.1"],
        "count": 2,
        "time_us": time_us,
        "share": round(time_us / 500.0, 4),
        "limit_us": 20.0,
        "limit_by": "bytes",
        "joins": 1,
        "counted": 2,
        "saving_us": time_us - 20.0,
        "op_id": None,
        "model": {"provider": "agent"},
        "budget": {},
        "search_id": None,
        "search_state": None,
        "kernel_id": None,
        "score": None,
        "score_ci95": None,
        "served": 0,
        "alone": None,
        "beside": None,
        "kept": False,
        "reason": None,
    } | more


def variant(name: str, ms: float, over_compiled: float, ci95: list[float]) -> dict[str, Any]:
    """A variant of the model, timed."""
    gain = {"speedup": 0.9 / ms, "speedup_ci95": ci95, "over_compiled": over_compiled, "over_compiled_ci95": ci95}
    return {"variant": name, "ms": ms, "ms_ci95": [ms, ms], **gain, "agrees": True}


SEARCHED = {"op_id": "op_1", "search_state": "finished", "served": 2}
PROGRESS: dict[str, Any] = {
    "state": "finished",
    "stopped": None,
    "profile": {"device": "cpu", "graphs": 1, "model_us": 950.0, "compiled_us": 500.0, "saving_us": 350.0},
    "regions": [
        region(
            "rms_norm_linear_gelu",
            250.0,
            joins=3,
            budget={"candidates": 28},
            search_id="sr_1",
            kernel_id="kn_1",
            score=1.7,
            score_ci95=[1.6, 1.8],
            alone={"speedup": 1.24, "ci95": [1.2, 1.28], "saved_us": 97.0},
            beside={"speedup": 1.25, "ci95": [1.2, 1.3], "saved_us": 100.0},
            kept=True,
            **SEARCHED,
        ),
        region(
            "attention",
            120.0,
            budget={"candidates": 12},
            search_id="sr_2",
            kernel_id="kn_2",
            score=1.1,
            score_ci95=[1.05, 1.15],
            alone={"speedup": 1.0, "ci95": [0.97, 1.03], "saved_us": 0.4},
            beside={"speedup": 0.99, "ci95": [0.96, 1.02], "saved_us": -2.0},
            reason="the model is not surely faster with it: 0.99x [0.96, 1.02]",
            **SEARCHED,
        ),
        region("linear_add", 40.0, counted=0, saving_us=0.0, reason="it overlaps regions that save more"),
    ],
    "rounds": 2,
    "variants": [
        variant("model", 0.9, 0.56, [0.5, 0.6]),
        variant("compiled", 0.5, 1.0, [1.0, 1.0]),
        variant("all", 0.4, 1.25, [1.2, 1.3]),
    ],
    "package": "transformer_kernels",
}
"""What the client that finished the campaign stored last."""
