"""In single precision, without a path in double, a pattern of wrong entries is found too.

One entry, a row, a column and a common factor are told exactly, in 120 calls; anything else is
refuted by an entry that is proven, and what is told of its place is not too little.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradproof._data.records import CheckResult
from numpy_map import FunctionMap, Linear, report_of
from test_cost_located import (
    COLUMNS,
    FEW,
    MODES,
    TAIL,
    VJPS,
    Change,
    N,
    X,
    columns,
    dense,
    diagonal,
    entries,
    full,
    rows,
)

CALLS = 120


class Single(FunctionMap):
    """The same function, and the same derivative, in single precision."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.resolution = 2.0**-24

    def value(self, x: np.ndarray) -> np.ndarray:
        self.calls["value"] += 1
        return _single(self.fn(_single(x)))

    def vjp(self, v: np.ndarray) -> np.ndarray:
        return _single(super().vjp(v))

    def jvp(self, u: np.ndarray) -> np.ndarray:
        return _single(super().jvp(u))

    def transposed_vjp(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along, back = super().transposed_vjp(u, v)
        return _single(along), _single(back)


def _single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32).astype(np.float64)


ONE, OF_ONE_ROW = {(33_333, 66_666): 0.01}, {(7, 3): 0.1, (7, 50_000): 0.2, (7, 99_995): -0.1}
# Entries, or what is told of where they are and what they are called, in single precision.
IN_SINGLE: dict[str, tuple[Change, dict[tuple[int, int], float], str, str]] = {
    "one": (entries(ONE), ONE, "", ""),
    "few": (entries(FEW), FEW, "", ""),
    "a row of zeros": (rows(777, 0.0), {}, "y[777]", "zero"),
    "a row scaled": (rows(777, 1.01), {}, "y[777]", "factor"),
    "a tail of zeros": (rows(np.s_[-64:], 0.0), {}, TAIL, "zero"),
    "a tail scaled": (rows(np.s_[-64:], 1.01), {}, TAIL, "factor"),
    "a block of zeros": (rows(np.s_[25_000:37_500], 0.0), {}, "y[25000:37500]", "zero"),
    "a block scaled": (rows(np.s_[25_000:37_500], 1.01), {}, "y[25000:37500]", "factor"),
    "all": (lambda a: a.scaled(1.01), {}, "all of y", "factor"),
    "all zeros": (lambda a: a.scaled(0.0), {}, "all of y", "zero"),
}


@pytest.mark.parametrize("mode", MODES)
def test_of_several_entries_of_one_row_one_is_proven(mode: str) -> None:
    map_ = FunctionMap(*_at(diagonal(), X, entries(OF_ONE_ROW)), **MODES[mode][1])
    (finding,) = _counted(map_, MODES[mode][0], {}).findings
    assert (finding.output_index[0], finding.input_index[0]) in OF_ONE_ROW


@pytest.mark.parametrize("mode", ["transposed", "forward"])
@pytest.mark.parametrize(
    "made", [diagonal, *(pytest.param(made, marks=pytest.mark.slow) for made in (dense, full))]
)
@pytest.mark.parametrize("pattern", IN_SINGLE)
def test_in_single_precision_a_pattern_is_found_told_and_named(
    pattern: str, made: Callable[[], tuple[Callable[..., Any], Linear]], mode: str
) -> None:
    change, errors, where, name = IN_SINGLE[pattern]
    map_ = Single(*_at(made(), _single(X), change), **MODES[mode][1])
    result = _counted(map_, MODES[mode][0], errors)
    assert result.where.split(" with respect")[0] == where or not where
    assert not name or result.causes[0].name == name


def drawn(number: int) -> dict[tuple[int, int], float]:
    """Five entries anywhere, off by 1 to 10 %, of inputs that are not nearly zero."""
    rng = np.random.default_rng(1000 + number)
    columns = rng.choice(np.flatnonzero(np.abs(X) > 0.1), 5, replace=False)
    errors = rng.choice([0.01, 0.02, -0.03, 0.05, 0.1], 5)
    places = zip(rng.integers(0, N, 5), columns, errors, strict=True)
    return {(int(i), int(j)): float(error) for i, j, error in places}


SOME = [(1, "forward", full), (2, "transposed", diagonal), (3, "forward", dense)]


def _draws() -> list[Any]:
    """Twenty of each; three of them all the time."""
    every = [(k, TOLD[k % 2], made) for k in range(20) for made in MADE]
    return [
        pytest.param(*one, marks=() if one in SOME else (pytest.mark.slow,), id=_named(*one))
        for one in every
    ]


def _named(number: int, mode: str, made: Callable[..., Any]) -> str:
    return f"{number}-{mode}-{made.__name__}"


TOLD, MADE = ("transposed", "forward"), (diagonal, dense, full)


@pytest.mark.parametrize(("number", "mode", "made"), _draws())
def test_in_single_precision_any_five_entries_are_found_exactly(
    number: int, mode: str, made: Callable[[], tuple[Callable[..., Any], Linear]]
) -> None:
    errors = drawn(number)
    map_ = Single(*_at(made(), _single(X), entries(errors)), **MODES[mode][1])
    _counted(map_, MODES[mode][0], errors)


def _at(
    made: tuple[Callable[..., Any], Linear], point: np.ndarray, change: Change
) -> tuple[Callable[..., Any], np.ndarray, Linear]:
    return made[0], point, change(made[1])


def _counted(map_: FunctionMap, check: str, errors: dict[tuple[int, int], float]) -> CheckResult:
    """The failure, found in few calls, and exactly these entries if there are any."""
    result = report_of(map_, check)[check]
    assert result.verdict == "failed"
    assert map_.calls["value"] <= CALLS
    assert map_.calls["vjp"] + map_.calls["jvp"] <= VJPS
    if errors:
        located = {(f.output_index[0], f.input_index[0]) for f in result.findings}
        assert located == set(errors)
    return result


# Of two kinds of full rows.
IN_SINGLE_COLUMNS: dict[str, tuple[Change, str, str]] = {
    **COLUMNS,
    "a column scaled": (columns(4242, 1.01), "x[4242]", "factor"),
    "a head halved": (columns(np.s_[:64], 0.5), "the first 64 of 100,000 entries of x", "factor"),
    "a long tail scaled": (
        columns(np.s_[-3000:], 0.97),
        "the last 3,000 of 100,000 entries of x",
        "factor",
    ),
    "every third scaled": (columns(np.s_[::3], 1.01), "x[::3]", "factor"),
    "five columns scaled": (
        columns(np.s_[:5], 1.1),
        "the first 5 of 100,000 entries of x",
        "factor",
    ),
}
# Told exactly; of the others it is enough that what is told holds all that is wrong.
EXACTLY = ("a column of zeros", "a column scaled")
QUICK = {
    "a column scaled": "full-transposed",
    "a tail scaled": "dense-forward",
    "a head halved": "full-forward",
    "every third scaled": "dense-transposed",
}


def _singly(pattern: str, made: Callable[..., Any], mode: str) -> Any:
    name = f"{made.__name__}-{mode}"
    marks = () if QUICK.get(pattern) == name else (pytest.mark.slow,)
    return pytest.param(pattern, made, mode, marks=marks, id=f"{pattern}-{name}")


@pytest.mark.parametrize(
    ("pattern", "made", "mode"),
    [_singly(*one) for one in itertools.product(IN_SINGLE_COLUMNS, (full, dense), TOLD)],
)
def test_in_single_precision_columns_of_full_rows_are_told(
    pattern: str, made: Callable[[], tuple[Callable[..., Any], Linear]], mode: str
) -> None:
    change, words, name = IN_SINGLE_COLUMNS[pattern]
    map_ = Single(*_at(made(), _single(X), change), **MODES[mode][1])
    result = _counted(map_, MODES[mode][0], {})
    told = result.where.split(" (")[0].split("with respect to ")[-1]
    assert told == words or pattern not in EXACTLY
    assert result.causes[0].name == name
    wrong = _touched(change)
    assert {finding.input_index[0] for finding in result.findings} <= set(wrong.tolist())
    assert set(wrong.tolist()) <= _told(told)


def _touched(change: Change) -> np.ndarray:
    """The columns that a mistake is in."""
    return np.flatnonzero(change(Linear.diagonal(np.ones(N))).backward(np.ones(N)) != 1)


def _told(words: str) -> set[int]:
    """The columns that words hold: all where they tell none."""
    words = words.removeprefix("only inside ")
    if match := re.fullmatch("the (first|last) ([0-9,]+) of 100,000 entries of x", words):
        number = int(match[2].replace(",", ""))
        return set(range(number) if match[1] == "first" else range(N - number, N))
    if match := re.fullmatch(r"x\[([0-9]*):([0-9]*)(?::([0-9]+))?\]", words):
        low, high, step = (int(one) if one else None for one in match.groups())
        return set(range(N)[low:high:step])
    if match := re.fullmatch(r"x\[([0-9]+)\]", words):
        return {int(match[1])}
    assert words in ("", "all of y"), words
    return set(range(N))


# Columns that are wrong, beside one that is right.
ALMOST_A_RUN = {
    "dense": (dense, [0, 1, *range(3, 3_000)], 1.01),
    "full": (full, [*range(10), *range(11, 30)], 0.5),
}


@pytest.mark.parametrize("name", ["full", pytest.param("dense", marks=pytest.mark.slow)], ids=str)
def test_in_single_precision_what_is_almost_a_run_is_not_told_as_one(name: str) -> None:
    """It is refuted all the same, by a column that is wrong, and what is told is not too little."""
    made, wrong, factor = ALMOST_A_RUN[name]
    map_ = Single(*_at(made(), _single(X), columns(wrong, factor)), transposes=True)
    result = report_of(map_, "backward")["backward"]
    assert result.verdict == "failed"
    assert {finding.input_index[0] for finding in result.findings} <= set(wrong)
    assert set(wrong) <= _told(result.where.split(" (")[0].split("with respect to ")[-1])


def test_a_row_of_zeros_does_not_hide_in_the_rounding_of_a_projection() -> None:
    """The sum over 10^5 outputs is known to less than one of them only as its signs are drawn."""
    right = Linear.diagonal(1.5 + 0.25 * np.cos(X))
    map_ = Single(lambda x: 1.5 * x + 0.25 * np.sin(x), _single(X), rows(0, 0.0)(right))
    result = _counted(map_, "backward", {})
    assert result.where == "y[0] with respect to x[0]"


# Of projections alone: what is told, and what it is called.
BY_PROJECTIONS: dict[str, tuple[Change, str, str]] = {
    "a row scaled": (rows(777, 1.01), "y[777]", "factor"),
    "a tail of zeros": (rows(np.s_[-64:], 0.0), f"only inside {TAIL}", "zero"),
    "a tail scaled": (rows(np.s_[-64:], 1.01), f"only inside {TAIL}", "factor"),
    "a block scaled": (rows(np.s_[25_000:37_500], 1.01), "only inside y[25000:37500]", "factor"),
    "a column of zeros": (columns(4242, 0.0), "x[4242] (in the 7 outputs looked at)", "zero"),
    "a block of columns": (
        columns(np.s_[25_000:37_500], 1.01),
        "x[25000:37500] (in the 7 outputs looked at)",
        "factor",
    ),
}


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(one, marks=() if one == "a row scaled" else (pytest.mark.slow,))
        for one in BY_PROJECTIONS
    ],
)
def test_in_single_precision_projections_alone_tell_it_too(pattern: str) -> None:
    change, where, name = BY_PROJECTIONS[pattern]
    result = _counted(Single(*_at(dense(), _single(X), change)), "backward", {})
    assert result.where == where
    assert result.causes[0].name == name


BARELY: dict[str, tuple[Change, str]] = {
    "a row scaled": (rows(777, 1.01), "y[777] with respect to x[777]"),
    "a tail scaled": (rows(np.s_[-64:], 1.01), f"only inside {TAIL}"),
}


@pytest.mark.parametrize("pattern", BARELY)
def test_in_single_precision_hundredths_of_a_diagonal_are_found_by_projections(
    pattern: str,
) -> None:
    """A sum over part of the outputs only hints at them; what is measured there refutes."""
    change, where = BARELY[pattern]
    result = _counted(Single(*_at(diagonal(), _single(X), change)), "backward", {})
    assert result.where == where
    assert result.causes[0].name == "factor"


@pytest.mark.parametrize(
    "made", [full, pytest.param(dense, marks=pytest.mark.slow)], ids=lambda made: made.__name__
)
def test_in_single_precision_right_rows_are_verified_by_projections_alone(made: Any) -> None:
    """Of 10^5 full rows some are small along any tangent, by chance: not along all."""
    map_ = Single(*_at(made(), _single(X), lambda right: right))
    result = report_of(map_, "backward")["backward"]
    assert result.verdict == "passed"
    assert result.resolution <= 0.03
    assert all(int(number) <= 5 for number in re.findall("of ([0-9]+) outputs", str(result.notes)))
    assert map_.calls["value"] <= 40


@pytest.mark.parametrize("claim", [-1.0, 0.0])
def test_an_output_that_one_tangent_cannot_show_is_asked_for_along_another(claim: float) -> None:
    """It is left out of the sums along the first, at a kink 1e-4 away, and seen by itself."""
    point = _single(X[:3_000])
    point[1] = point[0]
    slope = 1.5 + 0.25 * np.cos(point)

    def bent(x: np.ndarray) -> np.ndarray:
        y = 1.5 * x + 0.25 * np.sin(x)
        y[0] = abs(x[0] - x[1] - 1e-4)
        return np.asarray(y)

    def pulled(v: np.ndarray) -> np.ndarray:
        gradient = slope * v
        gradient[0] = claim * v[0]
        gradient[1] -= claim * v[0]
        return gradient

    map_ = Single(bent, point, Linear(lambda u: u, pulled))  # only the backward is claimed
    result = report_of(map_, "backward", seed=7)["backward"]
    assert (result.verdict == "passed") == (claim == -1.0)


@pytest.mark.parametrize("seed", range(3))
def test_in_single_precision_wrong_outputs_are_never_told_as_fewer(seed: int) -> None:
    """The gaps of many outputs may cancel in one projection; nothing is concluded from one."""
    n, point = 3_000, _single(X[:3_000])
    claimed = Linear.diagonal(1.01 * (1 - np.tanh(point) ** 2))
    result = report_of(Single(np.tanh, point, claimed), "backward", seed=seed)["backward"]
    assert result.verdict == "failed"
    ends = result.where.removeprefix("only inside ")
    assert ends in ("", "all of y") or int(ends.split()[2].replace(",", "")) > 0.99 * n


@pytest.mark.parametrize("size", [1_000, 5_000])
def test_in_single_precision_a_right_map_is_verified_to_a_small_part_of_a_row(size: int) -> None:
    point = _single(X[:size])
    right = Linear.diagonal(1.5 + 0.25 * np.cos(point))
    map_ = Single(lambda x: 1.5 * x + 0.25 * np.sin(x), point, right)
    result = report_of(map_, "backward")["backward"]
    assert result.verdict == "passed"
    assert result.resolution <= 0.02
    assert map_.calls["value"] <= 26
    assert map_.calls["vjp"] <= 12


def test_in_single_precision_many_outputs_are_looked_at_in_parts() -> None:
    right = Linear.diagonal(1.5 + 0.25 * np.cos(X))
    map_ = Single(lambda x: 1.5 * x + 0.25 * np.sin(x), _single(X), right)
    result = report_of(map_, "backward")["backward"]
    assert result.verdict == "passed"
    assert result.resolution <= 0.08
