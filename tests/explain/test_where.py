"""Which entries of a Jacobian are wrong, in words, and never more of them than are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradproof._data.space import Slot, Space
from gradproof._explain.case import WrongJacobian
from gradproof._explain.place import place_of

N = 12


def said(wrong: np.ndarray, live: np.ndarray | None = None, **more) -> str:
    """Words for the wrong entries of a Jacobian of ones, zero where it is not live."""
    live = (np.ones_like(wrong) if live is None else live) | wrong
    measured = live.astype(float)
    m, n = wrong.shape
    facts = {
        "domain": Space((Slot("x", (n,)),)),
        "codomain": Space((Slot("y", (m,)),)),
        "point": np.linspace(1.0, 2.0, n),
        "value": np.linspace(1.0, 2.0, m),
        **more,
    }
    case = WrongJacobian(
        claimed=np.where(wrong, 1.5 * measured, measured),
        measured=measured,
        allowed=np.full((m, n), 1e-6),
        wrong=wrong,
        rows=np.arange(m),
        columns=np.arange(n),
        whole=True,
        **facts,
    )
    return place_of(case)


def mask(*index, n: int = N, m: int = N) -> np.ndarray:
    made = np.zeros((m, n), dtype=bool)
    for one in index:
        made[one] = True
    return made


DIAGONAL = np.eye(N, dtype=bool)


@pytest.mark.parametrize(
    ("wrong", "live", "words"),
    [
        (mask(np.s_[:, :]), None, "everywhere"),
        (mask((3, 4)), None, "y[3] with respect to x[4]"),
        (mask(np.s_[3, :]), None, "y[3]"),
        (mask(np.s_[:, 3]), None, "x[3]"),
        (mask(np.s_[:, 9:]), None, "the last 3 of 12 entries of x"),
        (mask(np.s_[9:, :]), None, "the last 3 of 12 entries of y"),
        (
            mask(np.s_[9:, ::2]),
            None,
            "the last 3 of 12 entries of y with respect to x[::2]",
        ),
        (DIAGONAL, None, ""),
        (DIAGONAL, DIAGONAL, "wherever the derivative is not zero"),
        (DIAGONAL & mask(np.s_[:, :4]), DIAGONAL, "the first 4 of 12 entries of x"),
    ],
)
def test_the_usual_patterns_have_the_usual_words(wrong, live, words):
    assert said(wrong, live) == words


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_the_input_is_told(sign):
    point = sign * np.where(np.isin(np.arange(N), [1, 2, 5, 8, 9]), -1.0, 1.0)
    wrong = DIAGONAL & (point < 0)[None, :]
    assert said(wrong, DIAGONAL, point=point) == "only where x < 0"


def test_the_size_of_the_input_is_told():
    point = np.array([0.1, 3.0, 0.4, 5.0, 0.2, 0.7, 9.0, 0.3, 4.0, 0.5, 0.6, 0.9])
    wrong = DIAGONAL & (point > 2)[None, :]
    assert said(wrong, DIAGONAL, point=point) == "only where x >= 3 (right up to 0.9)"


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(bool, (5, 7)),
    arrays.arrays(bool, (5, 7)),
    arrays.arrays(np.int8, 7, elements=st.integers(-2, 2)),
)
def test_what_is_said_to_be_wrong_is_wrong_and_nothing_else_is(wrong, live, point):
    """Whole rows, columns and crossings, read again among the entries that can be told."""
    live = live | wrong
    words = said(wrong, live, point=point.astype(float)) if wrong.any() else ""
    rows, columns = wrong.any(axis=1), wrong.any(axis=0)
    if words == "everywhere":
        assert wrong.all()
    elif words.startswith("wherever"):
        assert (wrong == live).all()
    elif words.startswith("only where x"):
        rule = words.removeprefix("only where x ").split(" (")[0].replace("is not", "!=")
        rule = rule.replace("= 0", "== 0") if rule == "= 0" else rule
        here = eval(f"point {rule}", {"point": point})
        assert (wrong == (live & here[None, :])).all()
    elif words.startswith("only where y"):
        assert (wrong == (live & rows[:, None])).all()
    elif " with respect to " in words:
        assert (wrong == (live & rows[:, None] & columns[None, :])).all()
    elif "only inside" not in words and words:
        by_row = (wrong == (live & rows[:, None])).all()
        by_column = (wrong == (live & columns[None, :])).all()
        assert by_column if "x" in words else by_row
