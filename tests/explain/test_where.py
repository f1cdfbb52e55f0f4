"""Which entries of a Jacobian are wrong, in words, and never more of them than are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradproof._data.space import Slot, Space
from gradproof._explain import words as where
from gradproof._explain.case import Map
from gradproof._explain.words import described_entries
from numpy_map import FunctionMap, result_of

N = 12


def map_of(n: int = N, m: int = N, **more) -> Map:
    point = more.pop("point", np.linspace(1.0, 2.0, n))
    value = more.pop("value", np.linspace(1.0, 2.0, m))
    domain, codomain = Space((Slot("x", (n,)),)), Space((Slot("y", (m,)),))
    return Map(domain, codomain, point, value, **more)


def said(wrong: np.ndarray, live: np.ndarray | None = None, **more) -> str:
    live = np.ones_like(wrong) if live is None else live
    return described_entries(wrong, live | wrong, live | wrong, map_of(*wrong.shape[::-1], **more))


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
        (DIAGONAL, None, "on the diagonal of the Jacobian"),
        (np.triu(mask(np.s_[:, :]), 1), None, "above the diagonal of the Jacobian"),
        (DIAGONAL, DIAGONAL, "wherever the derivative is not zero"),
        (DIAGONAL & mask(np.s_[:, :4]), DIAGONAL, "the first 4 of 12 entries of x"),
    ],
)
def test_the_usual_patterns_have_the_usual_words(wrong, live, words):
    assert said(wrong, live) == words


def test_forward_mode_tells_rows_where_either_would_do():
    wrong = DIAGONAL & mask(np.s_[:4, :])
    assert said(wrong, DIAGONAL, transposed=True) == "the first 4 of 12 entries of y"


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_the_input_is_told(sign):
    point = sign * np.where(np.isin(np.arange(N), [1, 2, 5, 8, 9]), -1.0, 1.0)
    wrong = DIAGONAL & (point < 0)[None, :]
    assert said(wrong, DIAGONAL, point=point) == "only where x < 0"


def test_the_size_of_the_input_is_told():
    point = np.array([0.1, 3.0, 0.4, 5.0, 0.2, 0.7, 9.0, 0.3, 4.0, 0.5, 0.6, 0.9])
    wrong = DIAGONAL & (point > 2)[None, :]
    assert said(wrong, DIAGONAL, point=point) == "only where x >= 3 (right up to 0.9)"


def test_a_third_of_the_entries_is_not_everywhere():
    wrong = np.add.outer(np.arange(12), np.arange(12)) % 3 == 0
    assert wrong.sum() == 48
    assert said(wrong) == ""


def test_a_block_that_holds_every_wrong_entry_is_told_as_such():
    wrong = np.zeros((8, 128), dtype=bool)
    wrong[3, 70] = wrong[1, 100] = wrong[6, 127] = wrong[2, 81] = True
    map_ = Map(
        Space((Slot("x", (3,)),)),
        Space((Slot("y", (8, 128)),)),
        np.ones(3),
        np.ones(8 * 128),
    )
    full = np.zeros((8 * 128, 3), dtype=bool)
    full[wrong.reshape(-1)] = [True, False, True]
    full[np.nonzero(wrong.reshape(-1))[0][0]] = [False, True, False]
    care = np.ones_like(full)
    assert described_entries(full, care, care, map_) == "only inside y[1:7, 70:]"


def test_entries_too_small_to_tell_are_left_out_of_account():
    measured = np.full((N, N), 1.0)
    measured[:, 5] = 1e-9
    claimed = 1.01 * measured
    allowed = np.full((N, N), 1e-6)
    wrong = np.abs(claimed - measured) > allowed
    care = where.telling(claimed, measured, allowed, wrong)
    assert (care == wrong).all()


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(bool, (5, 7)),
    arrays.arrays(bool, (5, 7)),
    arrays.arrays(np.int8, 7, elements=st.integers(-2, 2)),
)
def test_what_is_said_to_be_wrong_is_wrong_and_nothing_else_is(wrong, live, point):
    """Whole rows, columns and crossings, read again among the entries that can be told."""
    live = live | wrong
    map_ = map_of(7, 5, point=point.astype(float))
    words = described_entries(wrong, live, live, map_)
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
    elif "only inside" not in words and words and "Jacobian" not in words:
        by_row = (wrong == (live & rows[:, None])).all()
        by_column = (wrong == (live & columns[None, :])).all()
        assert by_column if "x" in words else by_row


def test_a_check_says_where():
    point = np.linspace(0.2, 1.4, N)
    claimed = np.diag(np.where(np.arange(N) >= 9, 0.0, np.cos(point)))
    result = result_of(FunctionMap(np.sin, point, claimed), "backward")
    assert result.where == "the last 3 of 12 entries of x"
