"""Draws the picture of docs/report.md, by `make pictures`.

Every number in it is measured by gradproof's own modules when the script runs. The background
is transparent and the colours are of medium brightness, so that one file is readable on a light
page and on a dark one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from gradproof._data.settings import RunSettings
from gradproof._measurements import Measurements
from gradproof.torch import _adapter as adapter

FOLDER = Path(__file__).parent / "pictures"

# Against white and against the near-black of dark pages each has a contrast of at least 3.
GREY, BLUE, RED = "#7c7c7c", "#3f84c8", "#d2543d"

STYLE = {
    "svg.fonttype": "none",  # text stays text: small files, and the reader's own font
    "svg.hashsalt": "gradproof",  # the same data draw the same file
    "font.size": 9,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "savefig.transparent": True,
}


def main() -> None:
    """Draw it."""
    mpl.use("svg")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "steps.svg"
    with mpl.rc_context(STYLE):
        draw_steps().savefig(path, metadata={"Date": None, "Creator": None})
    print(f"{path.relative_to(FOLDER.parent.parent)}: {path.stat().st_size / 1024:.0f} KiB")


def wave(x: torch.Tensor) -> torch.Tensor:
    """The function of the picture."""
    return torch.exp(torch.sin(x))


POINT = 0.6875  # a number of every precision
SMALLEST = {torch.float64: 44, torch.float32: 21, torch.bfloat16: 7}  # steps down to 2**-k


def draw_steps() -> Any:
    """Error of plain differences at every step, the steps of the table, and the error bar."""
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.7), sharey=True, layout="constrained")
    for place, (dtype, smallest) in zip(axes, SMALLEST.items(), strict=True):
        _draw_table(place, dtype, smallest)
    axes[0].set_ylabel("error, in parts of the derivative")
    axes[0].legend(frameon=False, fontsize=7, loc="lower left", labelcolor=GREY)
    figure.supxlabel("step h", fontsize=9, color=GREY)
    return figure


def _draw_table(place: Axes, dtype: torch.dtype, smallest: int) -> None:
    x = torch.tensor([POINT], dtype=dtype, requires_grad=True)
    map_ = adapter.build(wave, (x,))
    measurements = Measurements(map_, RunSettings(seed=0))
    u = measurements.tangent(0)
    exact = math.exp(math.sin(POINT)) * math.cos(POINT) * u[0]

    def off(step: float) -> float:
        move = step * u
        odd = map_.value(map_.point + move) - map_.value(map_.point - move)
        return float(abs(odd[0] / (2 * step) - exact) / abs(exact)) or math.nan

    steps = [2.0**-k for k in range(1, smallest)]
    place.loglog(steps, [off(h) for h in steps], color=GREY, lw=0.8)
    table, slopes = measurements.table.steps, measurements.slopes
    place.loglog(table, [off(h) for h in table], "o", ms=4, color=BLUE, label="a step of the table")
    bar = float(slopes.bar[0] / abs(exact))
    place.axhline(bar, color=RED, lw=1.2, label="error bar, extrapolated")
    gap = float(abs(slopes.middle[0] - exact) / abs(exact))
    place.set_title(f"{str(dtype)[6:]}: bar {bar:.0e}, error {gap:.0e}")
    place.set_ylim(1e-14, 3)
    if smallest < 10:
        place.set_xlim(4e-3, 1)
    place.xaxis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    main()
