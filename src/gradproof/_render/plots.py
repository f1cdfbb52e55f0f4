"""Pictures for the page: error against step, and slopes at a kink; by matplotlib.

The pictures take their colours from the page, so that they follow its light or dark scheme, and
every point can be reached with the keyboard and says its numbers.
"""

from __future__ import annotations

import html
import importlib.util
import io
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

from gradproof._data.records import Curve, Kink
from gradproof._render._spans import number

# A colour that matplotlib writes -> the page's name for it.
COLOURS = {
    "#101010": "var(--ink)",
    "#202020": "var(--soft)",
    "#303030": "var(--blue)",
    "#404040": "var(--red)",
    "#505050": "var(--green)",
    "#606060": "var(--amber)",
    "#707070": "var(--line)",
}
INK, SOFT, BLUE, RED, GREEN, AMBER, LINE = COLOURS
STYLE = {
    "svg.fonttype": "none",  # text stays text: small, readable, and in the page's own font
    "font.size": 9,
    "text.color": SOFT,
    "axes.edgecolor": LINE,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.transparent": True,
}
WIDTH, HEIGHT = 5.0, 3.0  # inches, of 72 units
AXES = (0.14, 0.16, 0.85, 0.81)  # left, bottom, width and height, as parts of the picture
FLOOR = 1e-3  # of the smallest difference that is not zero: where zeros are drawn


def available() -> bool:
    """Whether matplotlib, of the extra `report`, is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def error_against_step(curve: Curve, name: str) -> str:
    """The V of a measurement: how far each plain difference is from the value believed."""
    series = ((curve.values, BLUE, 1.3), (curve.forward, GREEN, 0.8), (curve.backward, AMBER, 0.8))
    errors = [[abs(value - curve.value) for value in values] for values, _, _ in series]
    others = [curve.error, abs(curve.claimed - curve.value)]
    seen = [e for e in (*errors[0], *errors[1], *errors[2], *others) if 0 < e < math.inf]
    floor = min(seen, default=1.0) * FLOOR

    def draw(axes: Any) -> None:
        axes.set_xscale("log")
        axes.set_yscale("log")
        for (_, colour, width), off in reversed(list(zip(series, errors, strict=True))):
            shown = [_drawn(e, floor) for e in off]
            axes.plot(curve.steps, shown, color=colour, lw=width, zorder=2)
        for place, (step, far) in enumerate(zip(curve.steps, errors[0], strict=True)):
            axes.plot([step], [_drawn(far, floor)], "o", ms=4.5, color=BLUE, gid=f"{name}-{place}")
        for value, colour, style in ((others[0], SOFT, "--"), (others[1], RED, "-")):
            if 0 < value < math.inf:
                axes.axhline(value, color=colour, lw=1.2, ls=style, zorder=1)
        if curve.chosen > 0:
            axes.axvline(curve.chosen, color=SOFT, lw=1, ls=":", zorder=1)
        axes.minorticks_off()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.set_xlabel("step h")
        axes.set_ylabel("distance from the measured value")

    labels = [_told(curve, place) for place in range(len(curve.steps))]
    title = f"Error against step, {curve.input} to {curve.output}"
    return _pointed(_svg(draw, name, title), name, labels)


def _drawn(error: float, floor: float) -> float:
    return max(error, floor) if error < math.inf else math.nan


def _told(curve: Curve, place: int) -> str:
    parts = [f"step {curve.steps[place]:.2g}"]
    for word, values in (
        ("difference", curve.values),
        ("to the right", curve.forward),
        ("to the left", curve.backward),
    ):
        if place < len(values):
            parts.append(f"{word} {number(values[place], 8)}")
    off = abs(curve.values[place] - curve.value)
    return ", ".join((*parts, f"off by {off:.2g}"))


def slopes(kinks: Sequence[Kink], name: str) -> str:
    """Each kink as the two slopes beside it, and the slope that is claimed."""

    def draw(axes: Any) -> None:
        for place, kink in enumerate(kinks):
            _draw_kink(axes, kink, 2.6 * place, f"{name}-{place}")
        axes.set_xticks([])
        axes.set_yticks([])
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set_xlim(-1.2, 2.6 * (len(kinks) - 1) + 1.2)
        axes.set_ylim(-1.35, 1.25)

    labels = [kink.message for kink in kinks]
    return _pointed(_svg(draw, name, "Slopes at points without a derivative"), name, labels)


def _draw_kink(axes: Any, kink: Kink, middle: float, gid: str) -> None:
    """Slopes to one scale: the steepest that is finite goes from corner to corner."""
    sizes = [abs(slope) for slope in (kink.left, kink.right, kink.claimed) if math.isfinite(slope)]
    scale = max(sizes, default=1.0) or 1.0
    if math.isfinite(kink.claimed):
        rise = kink.claimed / scale
        ends = [middle - 0.8, middle + 0.8]
        axes.plot(
            ends, [-0.8 * rise, 0.8 * rise], color=BLUE if kink.within else RED, lw=1, ls="--"
        )
    for slope, side in ((kink.left, -1), (kink.right, 1)):
        if math.isnan(slope):
            continue
        rise = math.copysign(1, slope) if math.isinf(slope) else slope / scale
        across = 0.0 if math.isinf(slope) else side
        axes.plot([middle, middle + across], [0, side * rise], color=INK, lw=2)
    axes.plot([middle], [0], "o", ms=5, color=INK, gid=gid)
    axes.text(
        middle,
        -1.3,
        str(kink.input or "a random direction"),
        ha="center",
        fontsize=8,
        parse_math=False,
    )


def _svg(draw: Any, name: str, title: str) -> str:
    """What is drawn on a pair of axes, as SVG that can stand inside a page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # Letters that matplotlib's font lacks (the page's has them), numbers beyond its axes.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=(WIDTH, HEIGHT))
        draw(figure.add_axes(AXES))  # a layout engine would draw everything twice
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>", "", text, flags=re.DOTALL)
    text = re.sub(
        r' (?:id="(?:figure|patch|axes|line2d|matplotlib|text|xtick|ytick)[^"]*")', "", text
    )
    for written, named in COLOURS.items():
        text = text.replace(written, named)
    size, label = f"{WIDTH * 72:g} {HEIGHT * 72:g}", html.escape(title)
    box = f'viewBox="0 0 {size}" role="group" aria-label="{label}"'
    text = re.sub(
        r"<svg[^>]*>",
        lambda _: (  # a function: in a text a backslash of a name would mean a group
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'xmlns:xlink="http://www.w3.org/1999/xlink" {box}>'
        ),
        text,
        count=1,
    )
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _pointed(svg: str, name: str, labels: Sequence[str]) -> str:
    """The SVG whose points can be focused and say what they are; the first one by tab."""
    for place, label in enumerate(map(html.escape, labels)):
        tab = 0 if place == 0 else -1
        said = f'role="img" tabindex="{tab}" class="point" aria-label="{label}"'
        svg = svg.replace(f'<g id="{name}-{place}">', f"<g {said}><title>{label}</title>")
    return svg
