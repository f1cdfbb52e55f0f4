"""Evaluations of very many outputs, of which few move, say what they say as they are."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._measure.ladder import Beside, Ladder, Line
from gradproof._measure.steps import Plan

SIZE = 1 << 17


def few_move(x):
    """The first and the last of a few numbers move three of very many outputs."""
    found = np.linspace(-1, 1, SIZE)
    found[[0, 77, SIZE - 1]] += [np.sin(x[0]), x[-1] ** 2, abs(x[0])]
    return found


@pytest.mark.parametrize(
    "which", [slice(None), slice(5, 200), slice(0, None, 7), slice(SIZE, None)]
)
def test_some_outputs_are_read_as_from_the_whole(which):
    centre, side = few_move(np.zeros(3)), few_move(np.full(3, np.nan))
    kept = Beside(centre, side, side != centre)
    assert np.array_equal(kept[which], side[which], equal_nan=True)


def test_a_ladder_that_keeps_little_says_the_same():
    point = np.asarray([0.0, 2.0, 3.0])
    direction = np.asarray([0.5, 1.0, 0.25])
    ladder = Ladder(Line(few_move, point, few_move(point), direction, 2.0**-53), Plan())
    assert all(isinstance(side, Beside) for sides in ladder.rungs.values() for side in sides)
    found = ladder.estimate()
    whole = Ladder(ladder.line, Plan())
    whole.rungs = {step: whole.line.sides(step) for step in whole.steps}
    expected = whole.estimate()
    for name, values in vars(expected).items():
        assert np.array_equal(getattr(found, name), values), name
