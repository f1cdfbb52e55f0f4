"""Pictures for the page as SVG, by Matplotlib: a piece of a Jacobian, and error against step."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradproof._data.records import Curve, Patch

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gradproof",  # the same picture is the same file
    "font.size": 8,
}
NO_METADATA: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
FLOOR = 1e-3  # of the smallest error that is not zero: where zeros are drawn


def jacobian_svg(patch: Patch, name: str) -> str:
    """Claimed, measured and gap of a piece of a Jacobian, side by side; `name` begins all ids."""
    gap = tuple(
        tuple(abs(c - m) for c, m in zip(*rows, strict=True))
        for rows in zip(patch.claimed, patch.measured, strict=True)
    )
    both = _largest(*patch.claimed, *patch.measured)
    tables = (
        ("claimed", patch.claimed, both),
        ("measured", patch.measured, both),
        ("gap", gap, _largest(*gap)),
    )
    with _figure(name, (7.5, 2.6)) as (figure, finish):
        for axes, (title, table, largest) in zip(figure.subplots(1, 3), tables, strict=True):
            # The root shows small entries beside large ones.
            colours = [[_signed_root(value, largest) for value in row] for row in table]
            axes.imshow(colours, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
            axes.set(title=f"{title}, colours up to {largest:.2g}", xticks=[], yticks=[])
            for i, row in enumerate(patch.wrong):
                for j in (j for j, wrong in enumerate(row) if wrong):
                    axes.add_patch(_frame(i, j))
        return finish()


def _largest(*rows: tuple[float, ...]) -> float:
    return max((abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0)


def _signed_root(value: float, largest: float) -> float:
    if not math.isfinite(value):
        return math.nan
    return math.copysign(math.sqrt(abs(value) / largest), value) if largest else 0.0


def _frame(row: int, column: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, linewidth=1)


def steps_svg(curve: Curve, name: str) -> str:
    """The V of a measurement: the error of each difference against its step."""
    series = {"central": curve.values, "to the right": curve.forward, "to the left": curve.backward}
    errors = {
        label: [abs(value - curve.value) for value in values] for label, values in series.items()
    }
    lines = {"claimed": abs(curve.claimed - curve.value), "error bar": curve.error}
    seen = [error for values in (*errors.values(), lines.values()) for error in values]
    floor = FLOOR * min((error for error in seen if 0 < error < math.inf), default=1.0)
    with _figure(name, (5, 3)) as (figure, finish):
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel="step", ylabel="error")
        steps = [_on_axis(step) for step in curve.steps]
        for label, values in errors.items():
            axes.plot(steps, [_on_axis(max(error, floor)) for error in values], ".-", label=label)
        for (label, value), style in zip(lines.items(), ("-", "--"), strict=True):
            if 0 < value < math.inf:
                axes.axhline(_on_axis(value), color="C3", linestyle=style, label=label)
        if 0 < curve.chosen < math.inf:
            axes.axvline(_on_axis(curve.chosen), color="gray", linestyle=":", label="chosen step")
        axes.legend()
        return finish()


def _on_axis(value: float) -> float:
    """A value that Matplotlib can place on a logarithmic axis, or NaN."""
    return min(max(value, 1e-100), 1e100) if 0 < value < math.inf else math.nan


@contextmanager
def _figure(name: str, size: tuple[float, float]) -> Iterator[tuple[Any, Callable[[], str]]]:
    """A figure, and a function that returns it as SVG that can stand inside a page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    def finish() -> str:
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=NO_METADATA)
        text = file.getvalue()
        # Ids begin anew in each figure, and must differ on a page.
        return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text[text.index("<svg") :])

    with mpl.rc_context(), warnings.catch_warnings():
        # Letters that Matplotlib's font lacks (the page's has them), numbers beyond its axes.
        warnings.simplefilter("ignore")
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=size, layout="constrained")
        yield figure, finish
