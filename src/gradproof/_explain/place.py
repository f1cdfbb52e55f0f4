"""Which entries of a Jacobian are wrong, as people say it.

A description is exact among the entries that can be told: an entry is left out of account where
an error as large, for its size, as the others have would not be seen. Where none of the usual ones
fits there is none.
"""

from __future__ import annotations

import math

import numpy as np

from gradproof._data.results import JacobianEvidence
from gradproof._data.space import Mask, Space, Values
from gradproof._explain.coordinates import words_of_coordinates

_CHANCE = 200  # a rule is believed if so few of so many are chosen by chance less than once in


def place_of(case: JacobianEvidence) -> str:
    """Words for the wrong entries of a Jacobian; "" where nothing fits."""
    wrong = case.wrong
    if not wrong.any():
        return ""
    if not case.whole:
        return _place_among_some(case)
    if wrong.all():
        return "everywhere"
    telling = _telling_entries(case)
    if (wrong == telling).all():
        is_live = np.abs(case.measured) > case.allowed
        if (is_live == wrong).all():
            return "wherever the derivative is not zero"
        if is_live[wrong].any():
            return "wherever the derivative is large enough to tell"
    lines = _place_in_lines(case, telling)
    # Entries that are only enumerated say less than a rule that explains them.
    is_list = " and " in lines and "]" in lines
    rule = _place_by_value(case, telling) if is_list or not lines else ""
    return rule or lines


def _place_among_some(case: JacobianEvidence) -> str:
    """Words for the wrong inputs among those measured, where some of them are right."""
    columns = case.wrong_columns
    if columns.all() or case.columns.size == case.domain.size:
        return ""
    chosen = np.zeros(case.domain.size, dtype=bool)
    chosen[case.columns[columns]] = True
    text = words_of_coordinates(chosen, case.domain)
    return f"{text} (of the {case.columns.size} inputs measured)" if text else ""


def _telling_entries(case: JacobianEvidence) -> Mask:
    """Entries that are wrong, or where an error of the usual relative size would be seen."""
    size = np.maximum(np.abs(case.claimed), np.abs(case.measured))
    with np.errstate(all="ignore"):
        parts = (np.abs(case.claimed - case.measured) / size)[case.wrong]
        parts = parts[np.isfinite(parts)]
        usual = float(np.median(parts)) / 2 if parts.size else 1.0
        return np.asarray(case.wrong | (usual * size > case.allowed))


def _place_in_lines(case: JacobianEvidence, telling: Mask) -> str:
    """Whole rows, whole columns, or every crossing of some rows with some columns."""
    wrong, rows, columns = case.wrong, case.wrong_rows, case.wrong_columns
    outputs = words_of_coordinates(rows, case.codomain)
    inputs = words_of_coordinates(columns, case.domain)
    is_by_row = bool((wrong == (telling & rows[:, None])).all())
    is_by_column = bool((wrong == (telling & columns[None, :])).all())
    for is_exact, text in ((is_by_column, inputs), (is_by_row, outputs)):
        if is_exact and text:
            return text
    is_crossing = bool((wrong == (telling & rows[:, None] & columns[None, :])).all())
    return f"{outputs} with respect to {inputs}" if is_crossing and inputs and outputs else ""


def _place_by_value(case: JacobianEvidence, telling: Mask) -> str:
    """The sign or the size of the inputs, or of the outputs, decides."""
    columns = (case.wrong_columns, 0, case.point, case.domain)
    rows = (case.wrong_rows, 1, case.value, case.codomain)
    for chosen, axis, values, space in (columns, rows):
        among = np.asarray(telling.any(axis=axis))
        if (case.wrong == (telling & np.expand_dims(chosen, axis))).all():
            name = _only_array(among, space)
            rule = _rule_of_values(chosen[among], values[among]) if name else ""
            if rule:
                return f"only where {name} {rule}"
    return ""


def _only_array(among: Mask, space: Space) -> str:
    """Name of the one real array that holds all of the coordinates; "" where there are several."""
    at = np.nonzero(among)[0]
    first, last = (space.slot_at(int(k)) for k in (at.min(), at.max()))
    slot = space.slots[first]
    return slot.name if first == last and len(slot.parts) == 1 else ""


def _rule_of_values(chosen: Mask, values: Values) -> str:
    """What the values have in common where they are chosen, and nowhere else."""
    if not np.isfinite(values).all() or math.comb(chosen.size, int(chosen.sum())) < _CHANCE:
        return ""
    for text, mask in (
        ("< 0", values < 0),
        ("> 0", values > 0),
        ("= 0", values == 0),
        ("<= 0", values <= 0),
        (">= 0", values >= 0),
        ("is not 0", values != 0),
    ):
        if (mask == chosen).all():
            return text
    inside, outside = values[chosen], values[~chosen]
    if inside.min() > outside.max():
        return f">= {inside.min():.4g} (right up to {outside.max():.4g})"
    if inside.max() < outside.min():
        return f"<= {inside.max():.4g} (right from {outside.min():.4g})"
    return ""
