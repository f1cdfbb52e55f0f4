"""Every kind of mistake is named, from numbers alone; and nothing is named without one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof._data.space import Slot, Space
from gradproof._explain import evidence
from gradproof._explain.case import Case, told_ratio
from gradproof._explain.diagnose import ADVICE, diagnosed
from numpy_map import FunctionMap, Linear, result_of

BAR = 1e-9
X = np.random.default_rng(5).uniform(0.3, 1.7, 12) * np.where(np.arange(12) % 3 == 0, -1, 1)


def case_of(
    measured: np.ndarray,
    claimed: np.ndarray,
    inputs: tuple[tuple[int, ...], ...],
    output: tuple[int, ...],
    *,
    parts: tuple[str, ...] = ("",),
    point: np.ndarray | None = None,
    value: np.ndarray | None = None,
) -> Case:
    allowed = BAR + 1e-6 * np.abs(measured)
    n, m = measured.shape[1], measured.shape[0]
    names = "xwb"[: len(inputs)]
    return Case(
        claimed=claimed,
        measured=measured,
        allowed=allowed,
        wrong=np.abs(claimed - measured) > allowed,
        domain=Space(tuple(Slot(a, s, parts) for a, s in zip(names, inputs, strict=True))),
        codomain=Space((Slot("y", output, parts),)),
        point=np.random.default_rng(6).normal(size=n) if point is None else point,
        value=np.random.default_rng(7).normal(size=m) if value is None else value,
    )


def dense(m: int = 12, n: int = 12) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, n))


def columns(change: Callable[[np.ndarray], np.ndarray], shape: tuple[int, ...] = (3, 4)) -> Case:
    """A dense Jacobian each of whose rows, shaped as the input, is changed."""
    measured = dense(12, int(np.prod(shape)))
    rows = [change(row.reshape(shape)) for row in measured]
    claimed = np.stack([np.broadcast_to(row, shape).reshape(-1) for row in rows])
    return case_of(measured, claimed, (shape,), (12,))


def rows(change: Callable[[np.ndarray], np.ndarray]) -> Case:
    measured = dense()
    return case_of(measured, change(measured), ((12,),), (12,))


def edited(change: Callable[[np.ndarray], object]) -> Case:
    claimed = dense()
    change(claimed)
    return case_of(dense(), claimed, ((12,),), (12,))


def put(index: object, factor: float) -> Callable[[np.ndarray], object]:
    def change(matrix: np.ndarray) -> None:
        matrix[index] *= factor

    return change


def complex_case(gradient: complex, *, conj: bool = False, cotangent: bool = False) -> Case:
    """z -> A z; gradients are A^H v, changed."""
    generator = np.random.default_rng(1)
    a = generator.normal(size=(4, 3)) + 1j * generator.normal(size=(4, 3))

    def real(change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        made = []
        for i in range(4):
            for unit in (1, 1j):
                v = np.zeros(4, dtype=complex)
                v[i] = np.conj(unit) if cotangent and change is not _same else unit
                g = change(a.conj().T @ v)
                made.append(np.stack([g.real, g.imag], axis=-1).reshape(-1))
        return np.stack(made)

    def changed(g: np.ndarray) -> np.ndarray:
        return gradient * (np.conj(g) if conj else g)

    return case_of(real(_same), real(changed), ((3,),), (4,), parts=("real", "imag"))


def _same(g: np.ndarray) -> np.ndarray:
    return g


def half(keep: slice) -> Case:
    case = complex_case(1.0)
    claimed = np.zeros_like(case.measured)
    claimed[:, keep] = case.measured[:, keep]
    wrong = np.abs(claimed - case.measured) > case.allowed
    return replace(case, claimed=claimed, wrong=wrong)


def of_values(claimed: np.ndarray, measured: np.ndarray, y: np.ndarray) -> Case:
    """An element-wise function."""
    return case_of(np.diag(measured), np.diag(claimed), ((12,),), (12,), point=X, value=y)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax_case() -> Case:
    y = np.exp(X.reshape(3, 4))
    y /= y.sum(1, keepdims=True)
    measured = np.zeros((12, 12))
    for k in range(3):
        measured[4 * k : 4 * k + 4, 4 * k : 4 * k + 4] = np.diag(y[k]) - np.outer(y[k], y[k])
    flat = y.reshape(-1)
    return case_of(measured, np.diag(flat), ((3, 4),), (3, 4), point=X, value=flat)


def stored_case(index: tuple[int, ...], *, last: bool = True) -> Case:
    """x[index], whose backward stores what it should add up."""
    measured = np.eye(5)[list(index)]
    claimed = np.zeros_like(measured)
    for row, column in enumerate(index):
        claimed[:, column] *= not last
        claimed[row, column] = last or not claimed[:, column].any()
    return case_of(measured, claimed, ((5,),), (len(index),))


def centred_case() -> Case:
    measured = np.eye(12) - np.kron(np.eye(3), np.full((4, 4), 0.25))
    return case_of(measured, np.eye(12), ((3, 4),), (3, 4), point=X)


def normalised_case() -> Case:
    """A weighted layer norm without its projection: the gap is a multiple of x - mean(x)."""
    centred = X.reshape(3, 4) - X.reshape(3, 4).mean(1, keepdims=True)
    part = np.random.default_rng(4).normal(size=(12, 3, 1))
    gap = (part * centred).reshape(12, 12)
    return case_of(dense(), dense() + gap, ((3, 4),), (3, 4), point=X)


def broadcast_case() -> Case:
    """x + w, w of shape (4,) broadcast over 3 rows."""
    w = np.tile(np.eye(4), (3, 1))
    claimed = w.copy()
    claimed[4:, :] = 0
    x = np.eye(12)
    return case_of(np.hstack([x, w]), np.hstack([x, claimed]), ((3, 4), (4,)), (3, 4))


def swapped_case() -> Case:
    first, second = dense(12, 6), dense(12, 6)[::-1, :] + 1
    return case_of(np.hstack([first, second]), np.hstack([second, first]), ((6,), (6,)), (12,))


def in_float32() -> Case:
    measured = dense()
    case = case_of(measured, measured.astype(np.float32).astype(float), ((12,),), (12,))
    allowed = np.full_like(measured, 1e-12)
    return replace(case, allowed=allowed, wrong=np.abs(case.claimed - measured) > allowed)


def in_bfloat16() -> Case:
    fraction, power = np.frexp(dense())
    return case_of(dense(), np.ldexp(np.round(fraction * 256) / 256, power), ((12,),), (12,))


def first_into(g: np.ndarray) -> np.ndarray:
    return np.concatenate([g.sum(0, keepdims=True), np.zeros_like(g[1:])])


def shuffled(g: np.ndarray) -> np.ndarray:
    return g.reshape(-1)[np.random.default_rng(3).permutation(g.size)].reshape(g.shape)


def collected(matrix: np.ndarray) -> np.ndarray:
    made = np.zeros_like(matrix)
    made[0] = matrix.sum(0)
    return made


TABLE: dict[str, tuple[str, Callable[[], Case], str]] = {
    "everything twice": ("factor", lambda: rows(lambda m: 2 * m), "multiplied by 2"),
    "half": ("factor", lambda: rows(lambda m: m / 2), "1/2"),
    "a mean": (
        "factor",
        lambda: columns(lambda g: g / 3),
        "a mean where a sum belongs, N = 3 being dimension 0 of x",
    ),
    "a sum": ("factor", lambda: columns(lambda g: 4 * g), "N = 4 being dimension 1 of x"),
    "root": ("factor", lambda: columns(lambda g: g / 12**0.5, (12,)), "1/sqrt(N), N = 12"),
    "ln 2": ("factor", lambda: rows(lambda m: m / np.log(2)), "base 2"),
    "one row": ("factor", lambda: edited(put(3, 1.01)), "1.01"),
    "one entry": ("factor", lambda: edited(put((3, 4), 1.01)), "1.01"),
    "minus": ("sign", lambda: rows(lambda m: -m), "flipped"),
    "minus one column": ("sign", lambda: edited(put(np.s_[:, 3], -1)), "flipped"),
    "nothing": ("zero", lambda: rows(np.zeros_like), "nothing arrives at x"),
    "no tail": ("zero", lambda: edited(put(np.s_[:, 9:], 0)), "claimed to be 0"),
    "abs": ("absolute value", lambda: rows(np.abs), "absolute"),
    "plus": ("offset", lambda: rows(lambda m: m + 0.25), "0.25 is added"),
    "leak": ("neighbour leaks in", lambda: columns(lambda g: g + 0.1 * np.roll(g, 1)), "0.1"),
    "transposed": ("transposed", lambda: columns(lambda g: g.T, (4, 4)), "transposed"),
    "Jacobian": ("transposed", lambda: rows(lambda m: m.T), "the Jacobian of x is transposed"),
    "in memory": (
        "transposed",
        lambda: columns(lambda g: g.T.reshape(3, 4)),
        "in memory",
    ),
    "axes": (
        "permuted axes",
        lambda: columns(lambda g: g.transpose(1, 2, 0).reshape(2, 3, 2), (2, 3, 2)),
        "permuted",
    ),
    "reversed": ("reversed", lambda: columns(lambda g: g.reshape(-1)[::-1].reshape(3, 4)), "rev"),
    "reversed axis": ("reversed", lambda: columns(lambda g: g[::-1]), "along axis 0"),
    "rolled": ("rolled", lambda: columns(lambda g: np.roll(g, 5)), "by 5"),
    "rolled axis": ("rolled", lambda: columns(lambda g: np.roll(g, 1, 1)), "axis 1"),
    "late": (
        "rolled",
        lambda: columns(lambda g: np.concatenate([np.zeros((1, 4)), g[:-1]])),
        "zeros coming in",
    ),
    "shuffled": ("permuted entries", lambda: columns(shuffled), "changed places"),
    "swapped": ("inputs swapped", swapped_case, "each other"),
    "row 0": ("first for all", lambda: columns(lambda g: g[:1]), "index 0"),
    "into 0": ("summed into the first", lambda: columns(first_into), "into index 0"),
    "sum": ("extra sum", lambda: columns(lambda g: g.sum(0, keepdims=True)), "axis 0"),
    "mean": ("extra mean", lambda: columns(lambda g: g.mean(1, keepdims=True)), "axis 1"),
    "broadcast": ("broadcast sum missing", broadcast_case, "first slice"),
    "stored": ("overwritten", lambda: stored_case((0, 3, 3, 1, 3)), "1 entry of x is read more"),
    "stored twice": ("overwritten", lambda: stored_case((0, 3, 3, 0)), "2 entries of x are read"),
    "softmax": ("missing term", softmax_case, "proportional to y along axis 1"),
    "normalisation": ("missing term", normalised_case, "proportional to the centred x"),
    "centring": ("missing term", centred_case, "proportional to 1, as a mean"),
    "family": (
        "another function",
        lambda: of_values(1 - np.tanh(X) ** 2, sigmoid(X) * (1 - sigmoid(X)), sigmoid(X)),
        "that of tanh; measured is that of sigmoid",
    ),
    "argument": (
        "wrong argument",
        lambda: of_values(1 - X**2, 1 - np.tanh(X) ** 2, np.tanh(X)),
        "taken at x",
    ),
    "chain": ("missing factor", lambda: of_values(3 * X, 3 * X**2, X**3), "equal to x is missing"),
    "float32": ("float32 inside", in_float32, "float32"),
    "bfloat16": ("bfloat16 inside", in_bfloat16, "bfloat16"),
    "one for all": ("one cotangent for all", lambda: rows(collected), "y[0]"),
    "cotangent reversed": ("reversed", lambda: rows(lambda m: m[::-1]), "cotangent of y"),
    "conjugate": ("conjugate", lambda: complex_case(1.0, conj=True), "conj"),
    "conjugate cotangent": ("conjugate", lambda: complex_case(1.0, cotangent=True), "cotangent"),
    "phase": ("phase", lambda: complex_case(np.exp(0.3j)), "multiplied by"),
    "real": ("real part only", lambda: half(np.s_[::2]), "real part"),
    "imaginary": ("imaginary part only", lambda: half(np.s_[1::2]), "imaginary part"),
}


@pytest.mark.parametrize("key", TABLE)
def test_a_mistake_is_named(key):
    name, make, words = TABLE[key]
    causes = {cause.name: cause for cause in diagnosed(make())}
    assert name in causes, list(causes)
    assert words in causes[name].message
    assert causes[name].advice
    assert next(iter(causes)) == name


def message_of(case: Case, name: str) -> str:
    return next((cause.message for cause in diagnosed(case) if cause.name == name), "")


def test_a_factor_that_several_things_explain_is_told_with_all_of_them():
    told = message_of(columns(lambda g: 2 * g, (2, 6)), "factor")
    assert "multiplied by 2: counted twice or N, a sum where a mean belongs, N = 2 being" in told
    assert "sqrt(N), N = 4 being" in message_of(columns(lambda g: 2 * g, (4, 3)), "factor")


@pytest.mark.parametrize(("off", "named"), [(3e-7, False), (3e-4, True)])
def test_a_factor_within_its_error_of_one_is_no_cause(off, named):
    """An entry is wrong by itself; the common factor of all is 1 as far as can be told."""
    measured = dense()
    case = case_of(measured, (1 + off) * measured, ((12,),), (12,))
    case = replace(case, wrong=np.ones_like(case.wrong), allowed=np.full(measured.shape, 1e-6))
    told = message_of(case, "factor")
    assert bool(told) == named
    assert "multiplied by 1," not in told + ","


def test_a_coefficient_has_the_uncertainty_of_the_entries_that_it_is_fitted_to():
    """A missing mean, each entry off by nearly what it may be: no draw hides it."""
    case = centred_case()
    rng = np.random.default_rng(0)
    for _ in range(20):
        off = case.allowed * rng.uniform(-1, 1, case.allowed.shape)
        found = diagnosed(replace(case, measured=case.measured + 2 * off))
        assert "missing term" in {cause.name for cause in found}


def test_outputs_that_may_be_detached_are_not_told_as_overwritten():
    """What is stored first is lost; of outputs that are detached it may be what arrives."""
    case = stored_case((0, 3, 3, 1), last=False)
    assert [cause.name for cause in diagnosed(case)][:1] == ["zero"]
    assert "overwritten" not in {cause.name for cause in diagnosed(case)}


def test_a_jacobian_that_fits_nothing_is_given_no_cause():
    assert diagnosed(rows(lambda m: m + np.random.default_rng(9).normal(size=m.shape))) == ()
    assert diagnosed(rows(lambda m: m * np.random.default_rng(9).uniform(size=m.shape))) == ()


def test_a_right_jacobian_is_given_no_cause():
    assert diagnosed(rows(lambda m: m)) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 40))
def test_a_few_random_wrong_entries_have_no_common_cause(seed, number):
    generator = np.random.default_rng(seed)
    claimed = dense()
    claimed.reshape(-1)[generator.permutation(144)[:number]] += generator.normal(size=number)
    causes = diagnosed(case_of(dense(), claimed, ((12,),), (12,)))
    assert {cause.name for cause in causes} <= {"factor"}
    assert not causes or number == 1


def test_only_a_part_of_what_is_wrong_is_explained_and_the_score_says_how_much():
    measured = np.hstack([dense(12, 6), dense(12, 6)])
    claimed = measured.copy()
    claimed[:, :6] *= 3
    claimed[:, 6:] += np.random.default_rng(2).normal(size=(12, 6))
    (cause,) = diagnosed(case_of(measured, claimed, ((6,), (6,)), (12,)))
    assert cause.name == "factor"
    assert cause.score == pytest.approx(0.5)


def test_every_cause_has_its_advice():
    for name in ADVICE:
        assert ADVICE[name]
    assert {name for name, _, _ in TABLE.values()} <= ADVICE.keys()


POINT = np.linspace(0.3, 1.5, 10)


def sine(claimed, **more) -> FunctionMap:
    return FunctionMap(np.sin, POINT, claimed, **more)


def test_a_failed_check_carries_its_cause():
    result = result_of(sine(np.diag(2 * np.cos(POINT))), "backward")
    (cause,) = result.causes
    assert cause.name == "factor"
    assert cause.evidence.startswith("ratio 2")


def test_a_passed_check_has_none():
    assert result_of(sine(np.diag(np.cos(POINT))), "backward").causes == ()


@pytest.mark.parametrize(
    ("ratio", "bar", "number", "tells"),
    [
        (2.0, 1e-9, 1, True),
        (1 + 1e-9, 1e-8, 5, False),
        (1.01, 1e-8, 5, True),
        (7.3, 1e-8, 1, False),
    ],
)
def test_located_entries_are_explained_by_a_ratio_that_is_not_one(ratio, bar, number, tells):
    assert evidence._tells(ratio, bar, number) is tells


def test_only_inside_is_not_said_of_all_of_an_array():
    told = [evidence._inside(words) for words in ("all of x", "x[:, 64:]", "")]
    assert told == ["only inside x", "only inside x[:, 64:]", ""]


def test_an_ignored_cotangent_is_named_by_linearity():
    ignoring = Linear(lambda u: np.cos(POINT) * u, lambda v: np.cos(POINT))
    assert result_of(sine(ignoring), "linearity").causes[0].name == "cotangent ignored"


def test_a_cause_that_is_one_of_several_is_not_told():
    """A factor left out looks like the identity, or like the derivative of a neighbour."""
    slope = 1 - np.tanh(X) ** 2
    assert diagnosed(of_values(np.ones_like(X), slope, np.tanh(X))) == ()
    saved = sigmoid(X)
    assert diagnosed(of_values(saved, saved * (1 - saved), saved)) == ()


@pytest.mark.parametrize(
    ("ratio", "told"), [(2.0, "2"), (0.999997, "0.999997"), (1 - 3e-8, "0.99999997"), (0.5, "0.5")]
)
def test_a_factor_beside_one_is_not_told_as_one(ratio, told):
    assert told_ratio(ratio) == told


def test_the_identity_of_a_function_that_stands_still_is_straight_through():
    found = diagnosed(of_values(np.ones_like(X), np.zeros_like(X), np.round(X)))
    assert found[0].name == "straight through"


def test_a_sum_that_is_left_out_is_a_missing_term_and_no_detached_input():
    share = np.exp(np.arange(6.0)) / np.exp(np.arange(6.0)).sum()
    measured = np.eye(6) - share  # log_softmax
    found = diagnosed(case_of(measured, np.diag(np.diagonal(measured)), ((6,),), (6,)))
    assert [cause.name for cause in found][:2] == ["missing term", "zero"]
    assert "a sum was left out" in found[0].message


@pytest.mark.parametrize(("off", "named"), [(2.0**-25, "float32"), (2.0**-12, "float16")])
def test_numbers_of_few_bits_went_through_the_format_whose_rounding_is_as_large(off, named):
    """Numbers of 11 bits are numbers of 24 bits, too."""
    claimed = dense().astype(np.float16).astype(float)
    measured = claimed * (1 + off * np.where(np.arange(144).reshape(12, 12) % 2, 1, -1))
    case = replace(case_of(measured, claimed, ((12,),), (12,)), allowed=np.full_like(claimed, 1e-9))
    wrong = np.abs(claimed - measured) > 1e-9
    assert diagnosed(replace(case, wrong=wrong))[0].name == f"{named} inside"


def test_a_gradient_that_is_its_cotangent_has_no_more_digits_than_that():
    rounded = Linear(lambda u: u, lambda v: v.astype(np.float32).astype(float))
    result = result_of(FunctionMap(lambda x: 1.0 * x, POINT, rounded), "linearity")
    assert [one.name for one in result.causes] == ["float32 inside"]


def picked(columns_of_rows: list[int], size: int) -> np.ndarray:
    """A Jacobian whose rows have a single 1, in these columns."""
    return np.eye(size)[columns_of_rows]


@pytest.mark.parametrize(
    ("right", "wrong", "size", "named"),
    [
        # A pool of pairs that takes the smaller entry, or always the first: any mistake would do.
        ([1, 2, 5, 6], [0, 3, 4, 7], 8, ""),
        ([1, 2, 5, 6], [0, 2, 4, 6], 8, ""),
        # The largest three, and the smallest.
        ([3, 0, 6], [1, 4, 2], 8, ""),
        # Sorted: each stands where another should.
        ([3, 0, 6, 1, 5, 2, 4], [1, 3, 5, 0, 6, 4, 2], 7, "permuted entries"),
        # Every second entry, one too late: of a thousand arrangements that is one.
        ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11], 12, "rolled"),
    ],
)
def test_a_rearrangement_is_told_where_chance_is_excluded(right, wrong, size, named):
    case = case_of(picked(right, size), picked(wrong, size), ((size,),), (len(right),))
    assert [cause.name for cause in diagnosed(case)][:1] == ([named] if named else [])


def test_a_cotangent_of_two_entries_that_change_places_is_no_reversal():
    right = picked([3, 5], 8)
    assert diagnosed(case_of(right, right[::-1], ((8,),), (2,))) == ()


@pytest.mark.parametrize(("claimed", "named"), [(np.eye(12), True), (np.eye(12) - 1 / 12, False)])
def test_a_term_is_missing_only_where_the_function_depends_on_its_input(claimed, named):
    """A mean over one axis that is taken over two reaches slices that have no part in it."""
    measured = np.kron(np.eye(3), np.eye(4) - 1 / 4)
    found = diagnosed(case_of(measured, claimed, ((3, 4),), (3, 4)))
    assert ("missing term" in {cause.name for cause in found}) == named


@pytest.mark.parametrize(("inputs", "named"), [(1, True), (2, False)])
def test_beside_another_input_the_derivative_of_a_neighbour_may_lack_a_factor(inputs, named):
    slope = sigmoid(X) * (1 - sigmoid(X))
    beside = [np.diag(sigmoid(X))] * (inputs - 1)
    measured = np.hstack([np.diag(slope * np.cos(3 * X)), *beside])
    claimed = np.hstack([np.diag(slope), *beside])
    point = np.concatenate([X] * inputs)
    found = diagnosed(case_of(measured, claimed, ((12,),) * inputs, (12,), point=point))
    assert [cause.name for cause in found] == ["another function"] * named


def test_a_missing_factor_may_be_an_input_that_was_broadcast():
    scale = np.array([0.7, -1.3, 2.1])
    measured = np.hstack([np.kron(np.diag(scale), np.eye(4)), np.kron(np.eye(3), X[:4, None])])
    claimed = np.hstack([np.eye(12), measured[:, 12:]])
    point = np.concatenate([X, scale])
    found = diagnosed(case_of(measured, claimed, ((3, 4), (3,)), (3, 4), point=point))
    assert found[0].message == "a factor equal to w is missing"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda v: v * np.abs(v), "non-linear"),
        (np.abs, "absolute value"),
        (lambda v: v + 0.5, "offset"),
    ],
)
def test_a_backward_that_is_not_linear_is_told_how(change, name):
    odd = Linear(lambda u: np.cos(POINT) * u, lambda v: np.cos(POINT) * change(v))
    assert result_of(sine(odd), "linearity").causes[0].name == name


def test_a_backward_that_adds_up_and_one_that_is_noise_are_told_apart():
    total = np.zeros(10)
    generator = np.random.default_rng(0)

    def adding(v):
        total[...] = total + np.cos(POINT) * v
        return total.copy()

    def noisy(v):
        return np.cos(POINT) * v * generator.uniform(0.5, 1.5, 10)

    left = np.cos(POINT)

    def scaling(v):
        left[...] = left * v
        return left.copy()

    runs = itertools.count()

    def once(v):
        return np.cos(POINT) * v * (1.1 if next(runs) == 0 else 1.0)

    backwards = {adding: "accumulated", noisy: "noise", scaling: "saved overwritten", once: "noise"}
    for backward, name in backwards.items():
        map_ = sine(Linear(lambda u: np.cos(POINT) * u, backward))
        assert result_of(map_, "determinism").causes[0].name == name


@pytest.mark.parametrize(("part", "named"), [(0.1, True), (1e-5, True), (-1.9e-7, False)])
def test_roundings_of_single_precision_are_no_leak(part, named):
    """A part of a neighbour's gradient that some roundings are as large as was told as a cause."""
    causes = diagnosed(columns(lambda g: g + part * np.roll(g, 1)))
    assert ("neighbour leaks in" in {cause.name for cause in causes}) == named


def test_what_a_recogniser_raises_costs_the_cause_and_not_the_verdict(monkeypatch):
    def broken(case):
        raise ZeroDivisionError

    monkeypatch.setattr(evidence, "diagnosed", broken)
    result = result_of(sine(np.diag(2 * np.cos(POINT))), "backward")
    assert result.verdict == "failed"
    assert result.causes == ()
    assert result.where
