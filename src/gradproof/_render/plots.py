"""The picture of the page as SVG, by Matplotlib: a piece of a Jacobian."""

from __future__ import annotations

import io
import math
import re
import warnings

from gradproof._data.records import Patch

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gradproof",  # the same picture is the same file
    "font.size": 8,
}
NO_METADATA: dict[str, None] = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def jacobian_svg(patch: Patch, name: str) -> str:
    """Claimed, measured and gap of a piece of a Jacobian, side by side.

    Args:
        patch: with at least one row and one column.
        name: begins all ids, so that pictures can stand on one page.

    Returns:
        An element `svg`.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    gap = tuple(
        tuple(abs(c - m) for c, m in zip(*rows, strict=True))
        for rows in zip(patch.claimed, patch.measured, strict=True)
    )
    both = _largest_size(*patch.claimed, *patch.measured)
    tables = (
        ("claimed", patch.claimed, both),
        ("measured", patch.measured, both),
        ("gap", gap, _largest_size(*gap)),
    )
    file = io.StringIO()
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that Matplotlib cannot scale are left blank
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(figsize=(7.5, 2.6), layout="constrained")
        for axes, (title, table, largest) in zip(figure.subplots(1, 3), tables, strict=True):
            # The root shows small entries beside large ones.
            colours = [[_signed_root(value, largest) for value in row] for row in table]
            axes.imshow(colours, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
            axes.set(title=f"{title}, colours up to {largest:.2g}", xticks=[], yticks=[])
            for i, row in enumerate(patch.wrong):
                for j in (j for j, wrong in enumerate(row) if wrong):
                    axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, linewidth=1))
        figure.savefig(file, format="svg", metadata=NO_METADATA)
    text = file.getvalue()
    return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text[text.index("<svg") :])


def _largest_size(*rows: tuple[float, ...]) -> float:
    return max((abs(value) for row in rows for value in row if math.isfinite(value)), default=0.0)


def _signed_root(value: float, largest: float) -> float:
    if not math.isfinite(value):
        return math.nan
    return math.copysign(math.sqrt(abs(value) / largest), value) if largest else 0.0
