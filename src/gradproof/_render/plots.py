"""The picture of the page as SVG, by Matplotlib: a piece of a Jacobian."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gradproof._data.records import Patch

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gradproof",  # the same picture is the same file
    "font.size": 8,
}
NO_METADATA: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))


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
