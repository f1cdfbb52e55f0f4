"""Draws the pictures of docs/how-it-decides.md, by `make pictures`.

Every number in them is measured by gradproof's own modules when the script runs. The background
is transparent and the colours are of medium brightness, so that one file is readable on a light
page and on a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from gradproof._adapters import torch as adapter
from gradproof._data.settings import Settings
from gradproof._judge.claims import Backward
from gradproof._measure import directional, probes
from gradproof._measure.ladder import Ladder, Plan
from gradproof._measure.one_sided import KINDS
from gradproof._measure.statistics import RUNS, Samples, statistics

FOLDER = Path(__file__).parent / "pictures"
SETTINGS = Settings(seed=0, derived=True)

# Against white and against the near-black of dark pages each has a contrast of at least 3.
GREY, BLUE, RED, GREEN = "#7c7c7c", "#3f84c8", "#d2543d", "#3d9257"

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
    """Draw all of them."""
    mpl.use("svg")
    FOLDER.mkdir(exist_ok=True)
    pictures = {
        "steps": draw_steps,
        "kinks": draw_kinks,
        "honest_runs": draw_honest_runs,
        "oracles": draw_oracles,
        "layers": draw_layers,
    }
    with mpl.rc_context(STYLE):
        for name, draw in pictures.items():
            figure = draw()
            path = FOLDER / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None, "Creator": None})
            plt.close(figure)
            print(f"{path.relative_to(FOLDER.parent.parent)}: {path.stat().st_size / 1024:.0f} KiB")


# Error against step.


def wave(x: torch.Tensor) -> torch.Tensor:
    """The function of the first picture."""
    return torch.exp(torch.sin(x))


POINT = 0.6875  # a number of every precision
SMALLEST = {torch.float64: 44, torch.float32: 21, torch.bfloat16: 7}  # steps down to 2**-k


def draw_steps() -> Any:
    """Error of plain differences at every step, the ladder's rungs, and its error bar."""
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.7), sharey=True, layout="constrained")
    for place, (dtype, smallest) in zip(axes, SMALLEST.items(), strict=True):
        _draw_ladder(place, dtype, smallest)
    axes[0].set_ylabel("error, in parts of the derivative")
    axes[0].legend(frameon=False, fontsize=7, loc="lower left", labelcolor=GREY)
    figure.supxlabel("step h", fontsize=9, color=GREY)
    return figure


def _draw_ladder(place: Axes, dtype: torch.dtype, smallest: int) -> None:
    x = torch.tensor([POINT], dtype=dtype, requires_grad=True)
    map_ = adapter.build(wave, (x,))
    u = probes.scales_of(map_)
    exact = math.exp(math.sin(POINT)) * math.cos(POINT) * u[0]
    start = directional.centre(map_).value
    made = Ladder(
        map_.value, map_.point, start, u, resolution=map_.resolution, plan=Plan.of(map_.resolution)
    )
    found = made.solve()

    def off(step: float) -> float:
        move = step * u
        odd = map_.value(map_.point + move) - map_.value(map_.point - move)
        return float(abs(odd[0] / (2 * step) - exact) / exact)

    steps = [2.0**-k for k in range(1, smallest)]
    place.loglog(steps, [off(h) or math.nan for h in steps], color=GREY, lw=0.8)
    rungs = made.steps
    place.loglog(rungs, [off(h) or math.nan for h in rungs], "o", ms=4, color=BLUE, label="a rung")
    best, error = float(found.step[0]), float(found.error[0] / exact)
    place.loglog([best], [off(best)], "o", ms=9, mfc="none", mec=BLUE, label="best single rung")
    place.axhline(error, color=RED, lw=1.2, label="error bar, extrapolated")
    gap = float(abs(found.value[0] - exact) / exact)
    place.set_title(f"{str(dtype)[6:]}: bar {error:.0e}, error {gap:.0e}")
    place.set_ylim(1e-14, 3)
    if smallest < 10:
        place.set_xlim(4e-3, 1)
    place.xaxis.set_minor_formatter(NullFormatter())


# Kinks.


def hinge(x: torch.Tensor) -> torch.Tensor:
    """Smooth but for a kink at zero, where the slope changes from 1 to 2."""
    return torch.sin(x) + torch.relu(x)


def draw_kinks() -> Any:
    """The even part over the step, at three points of one function."""
    figure, place = plt.subplots(figsize=(5.4, 2.7), layout="constrained")
    points = (
        (0.0, RED, "at 0", (1e-5, 0.85)),
        (0.01, BLUE, "at 0.01", (3e-4, 3e-7)),
        (1.0, GREEN, "at 1", (3e-5, 3e-4)),
    )
    steps = [2.0**-k for k in range(1, 22)]
    for x, colour, words, label_at in points:
        map_ = adapter.build(hinge, (torch.tensor([x], dtype=torch.float64, requires_grad=True),))
        one, start = np.ones(1), directional.centre(map_).value
        even = [map_.value(map_.point + h) + map_.value(map_.point - h) - 2 * start for h in steps]
        sizes = [float(abs(e[0])) / (2 * h) for e, h in zip(even, steps, strict=True)]
        plan = Plan(top=2.0**-6, ratio=2.0**-5, rungs=7)
        kind = Ladder(
            map_.value, map_.point, start, one, resolution=map_.resolution, plan=plan
        ).kinks()
        place.loglog(steps, [size or math.nan for size in sizes], "o-", ms=3, lw=1, color=colour)
        place.text(*label_at, f"{words}: {KINDS[int(kind.kind[0])]}", color=colour)
    place.set_xlabel("step h")
    place.set_ylabel("|F(x+h) + F(x-h) - 2 F(x)| / 2h")
    place.set_ylim(1e-8, 6)
    return figure


# Honest runs.


class Normal(torch.autograd.Function):
    """Rows divided by their root mean square; the gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:  # noqa: D102  # autograd's protocol
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True))
        ctx.save_for_backward(x * scale, scale)
        ctx.factor = factor
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: D102  # likewise
        normal, scale = ctx.saved_tensors
        return ctx.factor * scale * (grad - normal * (grad * normal).mean(-1, keepdim=True)), None


MANY = 400
MISTAKE = 1.01


def draw_honest_runs() -> Any:
    """The slope of many rounded runs beside a right kernel's and a wrong one's."""
    right, wrong, honest, allowed = slopes()
    figure, place = plt.subplots(figsize=(5.4, 2.5), layout="constrained")
    place.hist(honest, bins=24, color=GREY, alpha=0.55)
    top = place.get_ylim()[1]
    lines = (
        (right, GREEN, f"right kernel: {right:.2g}", 0.94),
        (allowed, GREY, f"allowed: {allowed:.2g}", 0.7),
        (wrong, RED, f"gradient 1 % too large: {wrong:.2g}", 0.46),
    )
    for value, colour, label, height in lines:
        place.axvline(value, color=colour, lw=1.4, ls="--" if colour == GREY else "-")
        side, gap = ("left", 5) if value < wrong else ("right", -5)
        place.annotate(
            label,
            (value, height * top),
            (gap, 0),
            textcoords="offset points",
            color=colour,
            ha=side,
        )
    place.set_xlabel(f"slope: factor on the whole gradient, in eps of bfloat16 = {2.0**-7:.2g}")
    place.set_ylabel(f"honest runs, of {MANY}")
    place.set_xlim(0, 1.08 * wrong)
    return figure


def slopes() -> tuple[float, float, list[float], float]:
    """The slope, in eps, of a right kernel, a wrong one, and honest runs; and what is allowed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 32, generator=generator).to(torch.bfloat16).requires_grad_()

    def kernel(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: Normal.apply(x, factor)  # type: ignore[no-any-return, no-untyped-call]

    map_ = adapter.build(kernel(1.0), (x,))
    mode = Backward(map_, SETTINGS).in_few_bits()
    unit, tiny = map_.domain.slots[0].grain.unit, map_.domain.slots[0].grain.tiny
    oracle = map_.in_double()
    exact = np.stack([oracle.vjp(v) for v in mode.probes])

    def gap(which: Any) -> Any:
        return np.stack([which.vjp(v) for v in mode.probes]) - exact

    runs = np.stack([gap(oracle.rounded(unit, tiny, seed)) for seed in range(MANY)])

    def slope(off: Any) -> Any:
        samples = Samples(off, exact, runs[:RUNS], map_.domain.slots[0].shape, 2 * unit, tiny)
        return next(one for one in statistics(samples) if one.name == "slope")

    right, wrong = slope(gap(map_)), slope(gap(adapter.build(kernel(MISTAKE), (x,))))
    eps = 2 * unit
    honest = [slope(run).value / eps for run in runs]
    return right.value / eps, wrong.value / eps, honest, right.allowed / eps


# The flow of oracles.


def draw_oracles() -> Any:
    """Which question is asked of which source, and where each answer leads."""
    figure, place = plt.subplots(figsize=(7.6, 4.3), layout="constrained")
    place.set_axis_off()
    place.set_xlim(0, 100)
    place.set_ylim(0, 62)
    boxes = (
        (17, 54, "the same function\nin float64", BLUE),
        (49, 54, "reference=\nin float64", BLUE),
        (
            33,
            39,
            "Does its noise show more bits than the claims have?\nHas it the same value?",
            GREY,
        ),
        (33, 24, "Differences, each with its error bar:\nis its own derivative right?", GREY),
        (33, 9, "Statistics: are the claims off from it\nby more than honest rounding?", GREY),
        (
            83,
            39,
            "differences in its own precision:\nFAILED beyond their bars,\ninconclusive below",
            GREY,
        ),
        (83, 24, "the same function: FAILED, the formula\na reference: refused", RED),
        (83, 9, "passed, to the resolution said,\nor FAILED, with the statistic", GREEN),
    )
    for x, y, words, colour in boxes:
        style = {"boxstyle": "round,pad=0.5", "fc": "none", "ec": colour}
        place.text(x, y, words, ha="center", va="center", color=colour, bbox=style, fontsize=8.5)
    arrows = (
        ((17, 50.5), (27, 42.5), ""),
        ((49, 50.5), (39, 42.5), ""),
        ((33, 35.5), (33, 27.5), "yes"),
        ((33, 20.5), (33, 12.5), "yes"),
        ((55, 39), (66, 39), "no"),
        ((49, 24), (66, 24), "no"),
        ((49, 9), (69, 9), ""),
    )
    for start, end, word in arrows:
        arrow = {"arrowstyle": "-|>", "color": GREY, "lw": 1}
        place.annotate("", xy=end, xytext=start, arrowprops=arrow)
        middle = ((start[0] + end[0]) / 2 + 1, (start[1] + end[1]) / 2 + 0.8)
        place.text(*middle, word, color=GREY, fontsize=8)
    return figure


# The folders, lowest first; those side by side know nothing of each other.
LAYERS = (
    (("_data", "spaces, vectors, records, settings"),),
    (("_maps/contract", "what a function at a point can be asked"), ("_guard", "what is put back")),
    (("_measure", "steps, noise, error bars, probes: slopes of F"),),
    (("_maps", "maps around a map"),),
    (("_judge", "claims, what they may be off by, the screen, entries"),),
    (("_locate", "which entries are wrong: from numbers alone, and confirmed"),),
    (("_verdict", "oracles, other points, few bits: one verdict"),),
    (("_checks", "a row each"), ("_adapters", "PyTorch, JAX, NumPy: maps")),
    (("_explain", "words and causes, from evidence"),),
    (("_engine", "runs the rows"), ("_render", "records to text and pages")),
    (
        ("gradproof", "check"),
        ("torch, jax", "drop-ins"),
        ("cli, _survey, pytest_plugin", ""),
    ),
)


def draw_layers() -> Any:
    """Which folder may import which: imports point down only."""
    figure, place = plt.subplots(figsize=(7.6, 4.6), layout="constrained")
    place.set_axis_off()
    place.set_xlim(0, 100)
    place.set_ylim(0, len(LAYERS))
    for height, row in enumerate(LAYERS):
        width = 100 / len(row)
        for k, (name, words) in enumerate(row):
            left = k * width + 0.5
            colour = GREY if name in ("_data", "_guard", "_explain", "_render") else BLUE
            box = plt.Rectangle((left, height + 0.08), width - 1, 0.84, fill=False, ec=colour)
            place.add_patch(box)
            told = f"{name}: {words}" if words else name
            place.text(left + 1.2, height + 0.5, told, va="center", color=colour, fontsize=8.5)
    return figure


if __name__ == "__main__":
    main()
