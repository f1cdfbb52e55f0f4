"""Every kind of mistake is named from numbers alone, and nothing that only resembles it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof import Cause
from jacobians import Claim

X = np.random.default_rng(5).uniform(0.3, 1.7, 12) * np.where(np.arange(12) % 3 == 0, -1, 1)


def causes_of(claim: Claim, **options: object) -> tuple[Cause, ...]:
    return claim.judge(**options).causes


def dense(m: int = 12, n: int = 12) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, n))


def columns(change: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...] = (3, 4)) -> Claim:
    """A dense Jacobian each of whose rows, shaped as the input, is changed."""
    measured = dense(12, int(np.prod(shape)))
    rows = [change(row.reshape(shape)) for row in measured]
    claimed = np.stack([np.broadcast_to(row, shape).reshape(-1) for row in rows])
    return Claim(measured, claimed, (shape,), (12,))


def rows(change: Callable[[np.ndarray], np.ndarray]) -> Claim:
    measured = dense()
    return Claim(measured, change(measured), ((12,),), (12,))


def edited(change: Callable[[np.ndarray], object]) -> Claim:
    claimed = dense()
    change(claimed)
    return Claim(dense(), claimed, ((12,),), (12,))


def put(index: object, factor: float) -> Callable[[np.ndarray], object]:
    def change(matrix: np.ndarray) -> None:
        matrix[index] *= factor

    return change


def of_values(claimed: np.ndarray, measured: np.ndarray, y: np.ndarray) -> Claim:
    """An element-wise function."""
    return Claim(np.diag(measured), np.diag(claimed), ((12,),), (12,), point=X, value=y)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def symmetric_case() -> Claim:
    """A function of a symmetric matrix that reads its lower triangle; the claim is symmetric."""
    measured = np.stack([np.tril(row.reshape(4, 4)) for row in dense(3, 16)])
    claimed = (measured + measured.transpose(0, 2, 1)) / 2
    x = np.random.default_rng(8).normal(size=(4, 4))
    flat = measured.reshape(3, 16), claimed.reshape(3, 16)
    return Claim(*flat, ((4, 4),), (3,), point=(x + x.T).reshape(-1))


def softmax_case() -> Claim:
    y = np.exp(X.reshape(3, 4))
    y /= y.sum(1, keepdims=True)
    measured = np.zeros((12, 12))
    for k in range(3):
        measured[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] = np.diag(y[k]) - np.outer(y[k], y[k])
    flat = y.reshape(-1)
    return Claim(measured, np.diag(flat), ((3, 4),), (3, 4), point=X, value=flat)


def stored_case(index: tuple[int, ...], *, last: bool = True) -> Claim:
    """x[index], whose backward stores what it should add up."""
    measured = np.eye(5)[list(index)]
    claimed = np.zeros_like(measured)
    for row, column in enumerate(index):
        claimed[:, column] *= not last
        claimed[row, column] = last or not claimed[:, column].any()
    return Claim(measured, claimed, ((5,),), (len(index),))


def centred_case() -> Claim:
    measured = np.eye(12) - np.kron(np.eye(3), np.full((4, 4), 0.25))
    return Claim(measured, np.eye(12), ((3, 4),), (3, 4), point=X)


def normalised_case() -> Claim:
    """A weighted layer norm without its projection: the gap is a multiple of x - mean(x)."""
    centred = X.reshape(3, 4) - X.reshape(3, 4).mean(1, keepdims=True)
    part = np.random.default_rng(4).normal(size=(12, 3, 1))
    gap = (part * centred).reshape(12, 12)
    return Claim(dense(), dense() + gap, ((3, 4),), (3, 4), point=X)


def broadcast_case() -> Claim:
    """x + w, w of shape (4,) broadcast over 3 rows."""
    w = np.tile(np.eye(4), (3, 1))
    claimed = w.copy()
    claimed[4:, :] = 0
    x = np.eye(12)
    return Claim(np.hstack([x, w]), np.hstack([x, claimed]), ((3, 4), (4,)), (3, 4))


def swapped_case() -> Claim:
    first, second = dense(12, 6), dense(12, 6)[::-1, :] + 1
    return Claim(np.hstack([first, second]), np.hstack([second, first]), ((6,), (6,)), (12,))


def masked_case() -> Claim:
    """relu(W x) whose backward forgets the mask, with respect to x: none of two columns counts."""
    measured = dense()
    measured[:, [3, 7]] = 0
    return Claim(measured, dense(), ((12,),), (12,))


def half_used_case() -> Claim:
    """where(mask, x * w, x), one w for all: claimed as if every output used w."""
    used = np.arange(12) % 3 > 0
    measured = np.hstack([np.diag(np.where(used, 0.7, 1.0)), (X * used)[:, None]])
    claimed = np.hstack([measured[:, :12], X[:, None]])
    return Claim(measured, claimed, ((12,), ()), (12,), point=np.append(X, 0.7))


def in_bfloat16() -> Claim:
    fraction, power = np.frexp(dense())
    return Claim(dense(), np.ldexp(np.round(fraction * 256) / 256, power), ((12,),), (12,))


def shuffled(g: np.ndarray) -> np.ndarray:
    return g.reshape(-1)[np.random.default_rng(3).permutation(g.size)].reshape(g.shape)


TABLE: dict[str, tuple[str, Callable[[], Claim], str]] = {
    "everything twice": ("factor", lambda: rows(lambda m: 2 * m), "multiplied by 2"),
    "half": ("factor", lambda: rows(lambda m: m / 2), "1/2"),
    "a mean": (
        "factor",
        lambda: columns(lambda g: g / 3),
        "a mean where a sum belongs, N = 3 being dimension 0 of x",
    ),
    "a sum": ("factor", lambda: columns(lambda g: 4 * g), "N = 4 being dimension 1 of x"),
    "root": ("factor", lambda: columns(lambda g: g / 12**0.5, (12,)), "1/sqrt(N), N = 12"),
    "one row": ("factor", lambda: edited(put(3, 1.01)), "1.01"),
    "minus": ("sign", lambda: rows(lambda m: -m), "flipped"),
    "minus one column": ("sign", lambda: edited(put(np.s_[:, 3], -1)), "flipped"),
    "nothing": ("zero", lambda: rows(np.zeros_like), "nothing arrives at x"),
    "no tail": ("zero", lambda: edited(put(np.s_[:, 9:], 0)), "claimed to be 0"),
    "abs": ("sign", lambda: rows(np.abs), "flipped"),
    "plus": ("missing term", lambda: rows(lambda m: m + 0.25), "0.25 is added"),
    "transposed": ("transposed", lambda: columns(lambda g: g.T, (4, 4)), "transposed"),
    "Jacobian": ("transposed", lambda: rows(lambda m: m.T), "the Jacobian of x is transposed"),
    "in memory": (
        "transposed",
        lambda: columns(lambda g: g.T.reshape(3, 4)),
        "in memory",
    ),
    "axes": (
        "transposed",
        lambda: columns(lambda g: g.transpose(1, 2, 0).reshape(2, 3, 2), (2, 3, 2)),
        "axes in the order (1, 2, 0)",
    ),
    "reversed": ("misplaced", lambda: columns(lambda g: g[::-1]), "other entries of x"),
    "rolled": ("misplaced", lambda: columns(lambda g: np.roll(g, 5)), "other entries of x"),
    "shuffled": ("misplaced", lambda: columns(shuffled), "other entries of x"),
    "swapped": ("misplaced", swapped_case, "each other"),
    "broadcast": ("missing reduction", broadcast_case, "first slice"),
    "stored": ("overwritten", lambda: stored_case((0, 3, 3, 1, 3)), "1 entry of x is read more"),
    "stored twice": ("overwritten", lambda: stored_case((0, 3, 3, 0)), "2 entries of x are read"),
    "softmax": ("missing term", softmax_case, "proportional to output 0 along axis 1"),
    "normalisation": ("missing term", normalised_case, "proportional to the centred x"),
    "centring": ("missing term", centred_case, "proportional to 1, as a mean"),
    "chain": ("factor", lambda: of_values(3 * X, 3 * X**2, X**3), "equal to x is missing"),
    "bfloat16": ("lower precision", in_bfloat16, "bfloat16"),
    "no mask": ("missing mask", masked_case, "entries of x that have no effect"),
    "no mask of outputs": ("missing mask", half_used_case, "outputs on which w has no effect"),
    "round": (
        "missing mask",
        lambda: of_values(np.ones_like(X), np.zeros_like(X), np.round(X)),
        "entries of x that have no effect",
    ),
    "sigmoid without 1 - y": (
        "factor",
        lambda: of_values(sigmoid(X), sigmoid(X) * (1 - sigmoid(X)), sigmoid(X)),
        "a factor equal to (1 - sigmoid(x)) is missing",
    ),
    "elementwise term": (
        "missing term",
        lambda: of_values(3 * X**2, 3 * X**2 - 2, X**3 - 2 * X),
        "2 is added to the wrong entries",
    ),
    "symmetric": ("symmetric input", symmetric_case, "x is symmetric"),
}


@pytest.mark.parametrize("key", TABLE)
def test_a_mistake_is_named(key):
    name, make, words = TABLE[key]
    causes = {cause.name: cause for cause in causes_of(make())}
    assert name in causes, list(causes)
    assert words in causes[name].message
    assert causes[name].advice
    assert next(iter(causes)) == name


def message_of(case: Claim, name: str) -> str:
    return next((cause.message for cause in causes_of(case) if cause.name == name), "")


def test_a_cause_beside_the_first_is_another_cause():
    assert len({cause.name for cause in causes_of(softmax_case())}) == 1


def test_a_factor_that_several_things_explain_names_all_of_them():
    message = message_of(columns(lambda g: 2 * g, (2, 6)), "factor")
    assert "multiplied by 2: counted twice or N, a sum where a mean belongs, N = 2 being" in message
    assert "sqrt(N), N = 4 being" in message_of(columns(lambda g: 2 * g, (4, 3)), "factor")


def test_outputs_that_may_be_detached_are_not_reported_as_overwritten():
    """What is stored first is lost; of outputs that are detached it may be what arrives."""
    case = stored_case((0, 3, 3, 1), last=False)
    assert [cause.name for cause in causes_of(case)][:1] == ["zero"]
    assert "overwritten" not in {cause.name for cause in causes_of(case)}


def test_a_jacobian_that_fits_nothing_is_given_no_cause():
    assert causes_of(rows(lambda m: m + np.random.default_rng(9).normal(size=m.shape))) == ()
    assert causes_of(rows(lambda m: m * np.random.default_rng(9).uniform(size=m.shape))) == ()


def test_a_right_jacobian_is_given_no_cause():
    assert causes_of(rows(lambda m: m)) == ()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40))
def test_a_few_random_wrong_entries_have_no_common_cause(seed, number):
    generator = np.random.default_rng(seed)
    claimed = dense()
    claimed.reshape(-1)[generator.permutation(144)[:number]] += generator.normal(size=number)
    causes = causes_of(Claim(dense(), claimed, ((12,),), (12,)))
    assert causes == ()


def test_only_a_part_of_what_is_wrong_is_explained_and_the_score_says_how_much():
    measured = np.hstack([dense(12, 6), dense(12, 6)])
    claimed = measured.copy()
    claimed[:, :6] *= 3
    claimed[:, 6:] += np.random.default_rng(2).normal(size=(12, 6))
    (cause,) = causes_of(Claim(measured, claimed, ((6,), (6,)), (12,)))
    assert cause.name == "factor"
    assert cause.score == pytest.approx(0.5)


def test_a_sum_that_is_left_out_is_a_missing_term_and_no_detached_input():
    share = np.exp(np.arange(6.0)) / np.exp(np.arange(6.0)).sum()
    measured = np.eye(6) - share  # log_softmax
    found = causes_of(Claim(measured, np.diag(np.diagonal(measured)), ((6,),), (6,)))
    assert [cause.name for cause in found][:2] == ["missing term", "zero"]
    assert "a sum was left out" in found[0].message


def picked(columns_of_rows: list[int], size: int) -> np.ndarray:
    """A Jacobian whose rows have a single 1, in these columns."""
    return np.eye(size)[columns_of_rows]


@pytest.mark.parametrize(
    ("right", "wrong", "size", "named"),
    [
        # A pool of pairs that takes the smaller entry; always the first, two are right by chance.
        ([1, 2, 5, 6], [0, 3, 4, 7], 8, "misplaced"),
        ([1, 2, 5, 6], [0, 2, 4, 6], 8, ""),
        # The largest three, and the smallest: too few numbers.
        ([3, 0, 6], [1, 4, 2], 8, ""),
        # Sorted: the order, and its inverse.
        ([3, 0, 6, 1, 5, 2, 4], [1, 3, 5, 0, 6, 4, 2], 7, "transposed"),
        # Every second entry, one too late.
        ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], 12, "misplaced"),
    ],
)
def test_a_rearrangement_is_named_where_numbers_stand_where_others_should(
    right, wrong, size, named
):
    case = Claim(picked(right, size), picked(wrong, size), ((size,),), (len(right),))
    assert [cause.name for cause in causes_of(case)][:1] == ([named] if named else [])


def test_a_cotangent_of_two_entries_that_change_places_is_no_reversal():
    right = picked([3, 5], 8)
    assert causes_of(Claim(right, right[::-1], ((8,),), (2,))) == ()


@pytest.mark.parametrize(("claimed", "named"), [(np.eye(12), True), (np.eye(12) - 1 / 12, False)])
def test_a_term_is_missing_only_where_the_function_depends_on_its_input(claimed, named):
    """A mean over one axis that is taken over two reaches slices that have no part in it."""
    measured = np.kron(np.eye(3), np.eye(4) - 1 / 4)
    found = causes_of(Claim(measured, claimed, ((3, 4),), (3, 4)))
    assert ("missing term" in {cause.name for cause in found}) == named


# Functions that resemble a mistake and are something else, and evidence that is too little.


@pytest.mark.parametrize("factor", [1.00028, 1.1, 0.0003, 3.0])
def test_one_entry_alone_shows_no_fitted_number(factor):
    one = np.array([[1.7]])
    assert causes_of(Claim(one, factor * one, ((1,),), (1,))) == ()


@pytest.mark.parametrize(("factor", "name"), [(-1.0, "sign"), (0.0, "zero")])
def test_one_entry_alone_shows_what_is_not_fitted(factor, name):
    one = np.array([[1.7]])
    assert [c.name for c in causes_of(Claim(one, factor * one, ((1,),), (1,)))] == [name]


def names_of(case: Claim) -> set[str]:
    return {cause.name for cause in causes_of(case)}


def test_what_leaks_into_neighbours_is_no_missing_mask():
    leak = np.diag(X) + 0.1 * np.roll(np.diag(X), 1, axis=1)
    assert names_of(Claim(np.diag(X), leak, ((12,),), (12,), point=X)) == set()


def test_an_entry_that_has_an_effect_elsewhere_is_no_missing_mask():
    """Of an ignored cotangent every row has the numbers of all others."""
    claimed = np.tile(X, (12, 1))
    assert "missing mask" not in names_of(Claim(np.diag(X), claimed, ((12,),), (12,)))


@pytest.mark.parametrize("change", [np.negative, lambda m: m + 1e-3, lambda m: m * 1.001])
def test_other_numbers_at_other_entries_are_not_misplaced(change):
    measured = dense()
    claimed = change(measured)[:, ::-1]
    assert "misplaced" not in names_of(Claim(measured, claimed, ((12,),), (12,)))


def test_a_factor_of_its_own_for_every_single_number_is_no_cause():
    """As many factors as numbers: each fits by being fitted."""
    factors = np.random.default_rng(4).uniform(0.5, 2.0, 12)
    assert names_of(of_values(factors * X**3, X**3, X)) == set()
    two = np.kron(np.eye(6), np.random.default_rng(3).normal(size=(2, 1)))  # two for each entry
    assert names_of(Claim(two, two * np.repeat(factors[:6], 2)[:, None], ((6,),), (12,))) == set()


def test_an_expression_needs_more_entries_than_a_number_in_front():
    few = Claim(np.diag(3 * X[:4] ** 2), np.diag(3 * X[:4]), ((4,),), (4,), point=X[:4])
    assert names_of(few) == set()


def test_an_expression_that_is_nearly_right_is_no_cause():
    off = 1 + 1e-4 * np.cos(np.arange(12.0))
    assert names_of(of_values(3 * X * off, 3 * X**2, X**3)) == set()


def test_a_term_where_the_function_does_not_depend_on_its_input_is_none():
    claimed = np.diag(X) + 0.25 * np.roll(np.eye(12), 1, axis=1)
    assert names_of(Claim(np.diag(X), claimed, ((12,),), (12,), point=X)) == set()


def test_two_thirds_is_not_said_to_come_from_a_dimension_of_three():
    found = causes_of(columns(lambda g: 2 * g / 3))[0]
    assert found.message == "multiplied by 0.66667"


def test_zeros_are_no_sum_of_rows_that_add_up_to_zero():
    share = np.exp(X) / np.exp(X).sum()
    measured = np.diag(share) - np.outer(share, share)
    found = causes_of(Claim(measured, np.zeros((12, 12)), ((12,),), (12,), point=X))
    assert [cause.name for cause in found] == ["zero"]


def test_an_input_that_is_not_symmetric_is_not_called_so():
    case = symmetric_case()
    other = replace(case, point=np.random.default_rng(8).normal(size=16))
    assert "symmetric input" not in {cause.name for cause in causes_of(other)}


def test_a_claim_that_is_wrong_along_symmetric_directions_is_no_symmetric_input():
    case = symmetric_case()
    other = replace(case, claimed=1.5 * case.claimed)
    assert "symmetric input" not in {cause.name for cause in causes_of(other)}


@pytest.mark.parametrize(("factor", "named"), [(2.0, True), (1 / 3, True), (1.37, False)])
def test_three_entries_show_a_factor_that_has_a_reason(factor, named):
    measured = dense(1, 3)
    found = causes_of(Claim(measured, factor * measured, ((3,),), (1,)))
    assert [cause.name for cause in found] == ["factor"] * named


def test_of_few_measured_columns_the_report_says_how_to_see_a_cause():
    """Of 600 inputs no Jacobian is measured."""
    measured = dense(12, 600)
    off = np.random.default_rng(3).normal(size=(12, 600))
    result = Claim(measured, measured + off, ((600,),), (12,)).judge()
    assert result.causes == ()
    assert "check fewer inputs" in " ".join(result.notes)
