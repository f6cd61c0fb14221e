"""Best-so-far curves as a PNG, one panel for each op.

Each shows the speed-up against the share of the money.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks.policies.contestants import DEFAULT
from benchmarks.policies.play import Played

mpl.use("Agg")
from matplotlib import pyplot as plt

POINTS = 60


def draw(png: Path, plays: Mapping[str, Mapping[str, list[Played]]], money: Mapping[str, float], title: str) -> None:
    """Draw the geometric mean over the seeds of every policy (first key), by op (second key)."""
    ops = list(money)
    columns = min(3, len(ops))
    rows = -(-len(ops) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 3.4 * rows), squeeze=False, layout="constrained")
    shares = np.linspace(0.0, 1.0, POINTS)
    for axis, op in zip(axes.flat, ops, strict=False):
        for name, by_op in plays.items():
            curve = [
                float(np.exp(np.mean([np.log(played.best_at(share * money[op])) for played in by_op[op]])))
                for share in shares
            ]
            axis.plot(shares, curve, label=name, linewidth=2.2 if name == DEFAULT else 1.2)
        axis.set_title(f"{op}, ${money[op]:.2f}", fontsize=10)
        axis.set_xlabel("share of the money")
        axis.set_ylabel("speed-up over the fastest baseline")
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(ops) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=8)
    figure.suptitle(title, fontsize=11)
    png.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=110)
    plt.close(figure)
