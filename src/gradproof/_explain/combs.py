"""Every k-th column wrong, all by one factor, as it fits residuals that were measured anyway.

As a run of columns does (`fitted`), such a set predicts every weighed residual up to its factor.
There are few of them: the one that explains most is believed where it leaves nothing that the
noise does not explain, where chance would not explain as much, and where no other comes near.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradproof._explain.localise import Residual
from gradproof._explain.runs import Run

_LARGEST_STEP = 16
_WITHIN = 2.0  # thresholds that a residual may be off by
_LEFT = 1e-3  # of the squares of the residuals, that may be left unexplained
_APART = 100.0  # times as much, at least, that every other set leaves
_LEAST = 5  # residuals: with fewer chance might explain as much

Numbers = np.ndarray[Any, np.dtype[np.float64]]


def combed(found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers) -> Run | None:
    """The columns low, low + step, ... that explain all residuals; None where none do.

    Args:
        found: residuals of the rows.
        weights: of the columns, for each.
        terms: of the rows along the probe, (rows, n).
    """
    residuals = np.concatenate([one.value / one.threshold for one in found])
    total = float(residuals @ residuals)
    if len(found) < _LEAST or not 0 < total < np.inf:
        return None
    tried = []
    for step, low, predicted in _predictions(found, weights, terms):
        size = float(predicted @ predicted)
        factor = float(residuals @ predicted) / size if size else 0.0
        off = residuals - factor * predicted
        tried.append((float(off @ off), step, low, factor, float(np.abs(off).max())))
    (left, step, low, factor, worst), other = sorted(tried)[:2]
    if left > _LEFT * total or worst > _WITHIN or other[0] < _APART * left:
        return None
    within = low + step * int(np.abs(terms[:, low::step]).max(axis=0).argmax())
    return Run(low, terms.shape[1], factor, within, step)


def _predictions(
    found: Sequence[Residual], weights: Sequence[Numbers], terms: Numbers
) -> Iterator[tuple[int, int, Numbers]]:
    """Step, first column, and the residuals of a factor of one, in units of their thresholds."""
    parts: dict[tuple[int, int], list[Numbers]] = {}
    for one, weight in zip(found, weights, strict=True):
        product = terms * weight
        for step in range(2, min(_LARGEST_STEP, terms.shape[1] - 1) + 1):
            for low in range(step):
                sums = product[:, low::step].sum(axis=1) / one.threshold
                parts.setdefault((step, low), []).append(sums)
    for (step, low), sums in parts.items():
        yield step, low, np.concatenate(sums)
