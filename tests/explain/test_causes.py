"""Every kind of mistake is named from numbers alone, and nothing that only resembles it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradproof
from claims import Claim

X = np.random.default_rng(5).uniform(0.3, 1.7, 12) * np.where(np.arange(12) % 3 == 0, -1, 1)


def names_of(claim: Claim) -> list[str]:
    return [cause.name for cause in claim.judge().causes]


def dense(m: int = 12, n: int = 12) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, n))


def columns(change: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...] = (3, 4)) -> Claim:
    """A dense Jacobian each of whose rows, shaped as the input, is changed."""
    measured = dense(12, int(np.prod(shape)))
    rows = [change(row.reshape(shape)) for row in measured]
    claimed = np.stack([np.broadcast_to(row, shape).reshape(-1) for row in rows])
    return Claim(measured, claimed, (shape,))


def rows(change: Callable[[np.ndarray], np.ndarray]) -> Claim:
    measured = dense()
    return Claim(measured, change(measured))


def scaled(index: object, factor: float) -> Claim:
    """A dense Jacobian in which these entries are multiplied by a factor."""
    claimed = dense()
    claimed[index] *= factor
    return Claim(dense(), claimed)


def of_values(claimed: np.ndarray, measured: np.ndarray, y: np.ndarray) -> Claim:
    """An element-wise function."""
    return Claim(np.diag(measured), np.diag(claimed), point=X, value=y)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def symmetric_case() -> Claim:
    """A function of a symmetric matrix that reads its lower triangle; the claim is symmetric."""
    measured = np.stack([np.tril(row.reshape(4, 4)) for row in dense(3, 16)])
    claimed = (measured + measured.transpose(0, 2, 1)) / 2
    x = np.random.default_rng(8).normal(size=(4, 4))
    flat = measured.reshape(3, 16), claimed.reshape(3, 16)
    return Claim(*flat, ((4, 4),), point=(x + x.T).reshape(-1))


def softmax_case() -> Claim:
    rows = np.kron(np.eye(3), np.ones((4, 4)))
    y = np.exp(X) / (rows @ np.exp(X))
    measured = np.diag(y) - rows * np.outer(y, y)
    return Claim(measured, np.diag(y), ((3, 4),), (3, 4), point=X, value=y)


def stored_case(index: tuple[int, ...], *, last: bool = True) -> Claim:
    """x[index], whose backward stores what it should add up."""
    measured = np.eye(5)[list(index)]
    claimed = np.zeros_like(measured)
    for row, column in enumerate(index):
        claimed[:, column] *= not last
        claimed[row, column] = last or not claimed[:, column].any()
    return Claim(measured, claimed)


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
    return Claim(np.hstack([first, second]), np.hstack([second, first]), ((6,), (6,)))


def masked_case() -> Claim:
    """relu(W x) whose backward forgets the mask, with respect to x: none of two columns counts."""
    measured = dense()
    measured[:, [3, 7]] = 0
    return Claim(measured, dense())


def half_used_case() -> Claim:
    """where(mask, x * w, x), one w for all: claimed as if every output used w."""
    used = np.arange(12) % 3 > 0
    measured = np.hstack([np.diag(np.where(used, 0.7, 1.0)), (X * used)[:, None]])
    claimed = np.hstack([measured[:, :12], X[:, None]])
    return Claim(measured, claimed, ((12,), ()), point=np.append(X, 0.7))


def in_bfloat16() -> Claim:
    fraction, power = np.frexp(dense())
    return Claim(dense(), np.ldexp(np.round(fraction * 256) / 256, power))


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
    "one row": ("factor", lambda: scaled(3, 1.01), "1.01"),
    "minus": ("sign", lambda: rows(lambda m: -m), "flipped"),
    "minus one column": ("sign", lambda: scaled(np.s_[:, 3], -1), "flipped"),
    "nothing": ("zero", lambda: rows(np.zeros_like), "nothing arrives at x"),
    "no tail": ("zero", lambda: scaled(np.s_[:, 9:], 0), "claimed to be 0"),
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
    "shuffled": (
        "misplaced",
        lambda: columns(lambda g: np.random.default_rng(3).permuted(g)),
        "other entries of x",
    ),
    "swapped": ("misplaced", swapped_case, "each other"),
    "broadcast": ("missing reduction", broadcast_case, "first slice"),
    "stored": ("overwritten", lambda: stored_case((0, 3, 3, 1, 3)), "1 entry of x is read more"),
    "stored twice": ("overwritten", lambda: stored_case((0, 3, 3, 0)), "2 entries of x are read"),
    # What is stored first is lost; of outputs that are detached it may be what arrives.
    "stored first": ("zero", lambda: stored_case((0, 3, 3, 1), last=False), "claimed to be 0"),
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
    "symmetric": ("symmetric input", symmetric_case, "x is symmetric"),
}


@pytest.mark.parametrize("key", TABLE)
def test_a_mistake_is_named(key):
    name, make, words = TABLE[key]
    causes = make().judge().causes
    names = [cause.name for cause in causes]
    assert names[:1] == [name]
    assert len(set(names)) == len(names)
    assert words in causes[0].message
    assert causes[0].advice


def test_a_factor_that_several_things_explain_names_all_of_them():
    message = columns(lambda g: 2 * g, (2, 6)).judge().causes[0].message
    assert "multiplied by 2: counted twice or N, a sum where a mean belongs, N = 2 being" in message
    message = columns(lambda g: 2 * g, (4, 3)).judge().causes[0].message
    assert "sqrt(N), N = 4 being" in message


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40))
def test_a_few_random_wrong_entries_have_no_common_cause(seed, number):
    generator = np.random.default_rng(seed)
    claimed = dense()
    claimed.reshape(-1)[generator.permutation(144)[:number]] += generator.normal(size=number)
    assert names_of(Claim(dense(), claimed)) == []


def test_only_a_part_of_what_is_wrong_is_explained_and_the_score_says_how_much():
    measured = np.hstack([dense(12, 6), dense(12, 6)])
    claimed = measured.copy()
    claimed[:, :6] *= 3
    claimed[:, 6:] += np.random.default_rng(2).normal(size=(12, 6))
    (cause,) = Claim(measured, claimed, ((6,), (6,))).judge().causes
    assert cause.name == "factor"
    assert cause.score == pytest.approx(0.5)


def test_a_sum_that_is_left_out_is_a_missing_term_and_no_detached_input():
    measured = np.eye(6) - np.exp(np.arange(6.0)) / np.exp(np.arange(6.0)).sum()  # log_softmax
    found = Claim(measured, np.diag(np.diagonal(measured))).judge().causes
    assert [cause.name for cause in found][:2] == ["missing term", "zero"]
    assert "a sum was left out" in found[0].message


def picked(columns_of_rows: list[int], size: int) -> np.ndarray:
    """A Jacobian whose rows have a single 1, in these columns."""
    return np.eye(size)[columns_of_rows]


@pytest.mark.parametrize(
    ("right", "wrong", "size", "named"),
    [
        # A pool of pairs that takes the smaller entry; always the first, two are right by chance.
        ([1, 2, 5, 6], [0, 3, 4, 7], 8, ["misplaced"]),
        ([1, 2, 5, 6], [0, 2, 4, 6], 8, []),
        # The largest three, and the smallest: too few numbers.
        ([3, 0, 6], [1, 4, 2], 8, []),
        # Two that change places are no reversal.
        ([3, 5], [5, 3], 8, []),
        # Sorted: the order, and its inverse.
        ([3, 0, 6, 1, 5, 2, 4], [1, 3, 5, 0, 6, 4, 2], 7, ["transposed"]),
        # Every second entry, one too late.
        ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], 12, ["misplaced"]),
    ],
)
def test_a_rearrangement_is_named_where_numbers_stand_where_others_should(
    right, wrong, size, named
):
    assert names_of(Claim(picked(right, size), picked(wrong, size)))[:1] == named


# Functions that resemble a mistake and are something else, and evidence that is too little.

DIAGONAL, NEXT = np.diag(X), np.roll(np.eye(12), 1, axis=1)
DRAWN = np.random.default_rng(9).uniform(0.5, 2.0, (12, 12))
PAIRS = np.kron(np.eye(6), dense(2, 1))  # two outputs for each of six inputs
ONE, THREE = np.array([[1.7]]), dense(1, 3)

WITHOUT_A_CAUSE: dict[str, Callable[[], Claim]] = {
    "right": lambda: rows(lambda m: m),
    "random terms": lambda: rows(lambda m: m + DRAWN),
    "random factors": lambda: rows(lambda m: m * DRAWN),
    "leaking into neighbours": lambda: Claim(DIAGONAL, DIAGONAL + 0.1 * X[:, None] * NEXT, point=X),
    # As many factors as numbers: each fits by being fitted.
    "a factor for each number": lambda: of_values(DRAWN[0] * X**3, X**3, X),
    "a factor for each pair": lambda: Claim(PAIRS, PAIRS * np.repeat(DRAWN[0], 2)[:12, None]),
    "an expression of few entries": lambda: Claim(
        np.diag(3 * X[:4] ** 2), np.diag(3 * X[:4]), point=X[:4]
    ),
    "an expression that is nearly right": lambda: of_values(
        3 * X * (1 + 1e-4 * np.cos(np.arange(12.0))), 3 * X**2, X**3
    ),
    "a term of an input without effect": lambda: Claim(DIAGONAL, DIAGONAL + NEXT / 4, point=X),
}


@pytest.mark.parametrize("key", WITHOUT_A_CAUSE)
def test_a_jacobian_that_fits_nothing_is_given_no_cause(key):
    assert names_of(WITHOUT_A_CAUSE[key]()) == []


@pytest.mark.parametrize(
    ("name", "make"),
    [
        # Of an ignored cotangent every row has the numbers of all others.
        ("missing mask", lambda: Claim(DIAGONAL, np.tile(X, (12, 1)))),
        ("misplaced", lambda: rows(lambda m: -m[:, ::-1])),
        ("misplaced", lambda: rows(lambda m: m[:, ::-1] + 1e-3)),
        ("misplaced", lambda: rows(lambda m: m[:, ::-1] * 1.001)),
        # A mean over one axis that is taken over two reaches slices that have no part in it.
        ("missing term", lambda: replace(centred_case(), claimed=np.eye(12) - 1 / 12)),
        # The input is not symmetric, or the claim is wrong along symmetric directions too.
        ("symmetric input", lambda: replace(symmetric_case(), point=dense(1, 16)[0])),
        (
            "symmetric input",
            lambda: replace(symmetric_case(), claimed=1.5 * symmetric_case().claimed),
        ),
        ("overwritten", lambda: stored_case((0, 3, 3, 1), last=False)),
    ],
)
def test_what_only_resembles_a_mistake_is_not_called_so(name, make):
    assert name not in names_of(make())


@pytest.mark.parametrize(
    ("measured", "factor", "names"),
    [
        # One entry shows no number that is fitted to it.
        *((ONE, factor, []) for factor in (1.00028, 1.1, 0.0003, 3.0)),
        (ONE, -1.0, ["sign"]),
        (ONE, 0.0, ["zero"]),
        (THREE, 2.0, ["factor"]),
        (THREE, 1 / 3, ["factor"]),
        (THREE, 1.37, []),
        # Zeros are no sum of rows that add up to zero.
        (np.diag(np.exp(X)) - np.outer(np.exp(X), np.exp(X)) / np.exp(X).sum(), 0.0, ["zero"]),
    ],
)
def test_a_factor_is_named_where_it_has_a_reason(measured, factor, names):
    assert names_of(Claim(measured, factor * measured)) == names


def test_two_thirds_is_not_said_to_come_from_a_dimension_of_three():
    assert columns(lambda g: 2 * g / 3).judge().causes[0].message == "multiplied by 0.666667"


def test_of_few_measured_columns_the_report_says_how_to_see_a_cause():
    """Of 600 inputs no Jacobian is measured."""
    measured = dense(12, 600)
    off = np.random.default_rng(3).normal(size=(12, 600))
    result = Claim(measured, measured + off).judge()
    assert result.causes == ()
    assert "check fewer inputs" in " ".join(result.notes)


def test_a_cause_names_its_inputs_where_others_are_wrong_in_another_way():
    a, b, c = np.random.default_rng(0).normal(size=(3, 6))

    def backward(a, b, c, v):
        return v * b * c, -v * a * c, 2 * v * a * b

    product = gradproof.by_hand(lambda a, b, c: a * b * c, vjp=backward)
    causes = gradproof.check(product, (a, b, c), seed=0)["backward"].causes
    messages = {cause.name: cause.message for cause in causes}
    assert messages["sign"].startswith("of b: ")
    assert messages["factor"].startswith("of c: ")
