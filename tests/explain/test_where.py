"""Which entries of a Jacobian are wrong, in words, and never more of them than are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import gradproof
from claims import Claim
from exhibits.frame import normal, ruled

N = 12


def where(wrong: np.ndarray, live: np.ndarray | None = None, point=None) -> str:
    """Words for the wrong entries of a Jacobian of ones, zero where it is not live."""
    measured = ((np.ones_like(wrong) if live is None else live) | wrong).astype(float)
    rows, columns = wrong.shape
    claimed = np.where(wrong, 1.5 * measured, measured)
    point = np.linspace(1.0, 2.0, columns) if point is None else point
    return Claim(measured, claimed, point=point, value=np.linspace(1.0, 2.0, rows)).judge().where


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
        (mask((3, 4)), None, "output 0[3] with respect to x[4]"),
        (mask(np.s_[3, :]), None, "output 0[3]"),
        (mask(np.s_[:, 3]), None, "x[3]"),
        (mask(np.s_[:, 9:]), None, "the last 3 of 12 entries of x"),
        (mask(np.s_[9:, :]), None, "the last 3 of 12 entries of output 0"),
        (
            mask(np.s_[9:, ::2]),
            None,
            "the last 3 of 12 entries of output 0 with respect to x[::2]",
        ),
        (DIAGONAL, None, ""),
        (DIAGONAL, DIAGONAL, "wherever the derivative is not zero"),
        (DIAGONAL & mask(np.s_[:, :4]), DIAGONAL, "the first 4 of 12 entries of x"),
    ],
)
def test_the_usual_patterns_have_the_usual_words(wrong, live, words):
    assert where(wrong, live) == words


@pytest.mark.parametrize(
    ("shape", "picked", "words"),
    [
        ((67, 4), np.s_[64:], "the last 3 of 67 rows of x"),
        ((4, 16), np.s_[:, 8:], "x[:, 8:]"),
        ((4, 16), np.s_[:, 5], "x[:, 5]"),
        ((4, 5, 6), np.s_[:, :, 0], "x[:, :, 0]"),
        ((12,), np.s_[1::3], "x[1::3]"),
        ((8, 8), np.s_[2:4, 3:7], "x[2:4, 3:7]"),
        ((5, 6), np.s_[4, 5], "x[4, 5]"),
        ((9,), [1, 8], "x[1] and x[8]"),
        ((4, 4), np.triu_indices(4, 1), ""),
    ],
)
def test_a_part_of_an_input_has_the_usual_words(shape, picked, words):
    factors = np.ones(shape)
    factors[picked] = 1.5
    measured = np.ones((2, factors.size))
    claim = Claim(measured, measured * factors.reshape(-1), (shape,))
    assert claim.judge().where == words


@pytest.mark.parametrize("sign", [1, -1])
def test_the_sign_of_the_input_is_named(sign):
    point = sign * np.where(np.isin(np.arange(N), [1, 2, 5, 8, 9]), -1.0, 1.0)
    wrong = DIAGONAL & (point < 0)[None, :]
    assert where(wrong, DIAGONAL, point=point) == "only where x < 0"


def test_the_size_of_the_input_is_named():
    point = np.array([0.1, 3.0, 0.4, 5.0, 0.2, 0.7, 9.0, 0.3, 4.0, 0.5, 0.6, 0.9])
    wrong = DIAGONAL & (point > 2)[None, :]
    assert where(wrong, DIAGONAL, point=point) == "only where x >= 3 (right up to 0.9)"


@settings(max_examples=40, deadline=None)
@given(
    arrays.arrays(bool, (4, 5)),
    arrays.arrays(bool, (4, 5)),
    arrays.arrays(np.int8, 5, elements=st.integers(-2, 2)),
)
def test_what_is_said_to_be_wrong_is_wrong_and_nothing_else_is(wrong, live, point):
    """Whole rows, columns and crossings, read again among the entries that can be told apart."""
    live = live | wrong
    words = where(wrong, live, point=point.astype(float)) if wrong.any() else ""
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
    elif words.startswith("only where output 0"):
        assert (wrong == (live & rows[:, None])).all()
    elif " with respect to " in words:
        assert (wrong == (live & rows[:, None] & columns[None, :])).all()
    elif "only inside" not in words and words:
        by_row = (wrong == (live & rows[:, None])).all()
        by_column = (wrong == (live & columns[None, :])).all()
        assert by_column if "x" in words else by_row


@pytest.mark.parametrize("seed", range(3))
def test_the_last_entry_of_a_large_wrong_parameter_is_not_called_right(seed: int) -> None:
    """Of the wrong rows 64 are kept: the lowest left out those of the last column."""
    x, w = normal(11, 64, seed=seed), normal(64, seed=50 + seed)
    wrong = ruled(torch.mul, lambda g, x, w: (g * w, 1.01 * (g * x).sum(0)))
    found = gradproof.check(wrong, (x, w), seed=seed)["backward"]
    assert "704 wrong entries" in found.summary
    assert found.where == ""
