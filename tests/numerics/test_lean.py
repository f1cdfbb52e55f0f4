"""Long vectors in little memory: nothing that decides is lost."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._data import vectors
from gradproof._measure import richardson, steps
from gradproof._measure.ladder import Ladder, Line, LongLadder
from numerics.calculus import KNOWN, Known

PLAN = steps.slope(2.0**-53, None, lean=True)
SMOOTH = [known for known in KNOWN if known.smooth]


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    """As the engine: what overflows in the function under test, or in a short type, is no news."""
    with np.errstate(all="ignore"):
        yield


def ladders(known: Known, size: int = 64) -> tuple[Ladder, LongLadder, np.ndarray]:
    draw = np.random.default_rng(5)
    point = draw.standard_normal(size)
    direction = (
        draw.choice([-1.0, 1.0], size) * np.round(draw.uniform(0.5, 1.5, size) * 1024) / 1024
    )
    both = [
        kind(
            Line(lambda x: known.value(x).copy(), point, known.value(point), along, 2.0**-53), PLAN
        )
        for kind, along in ((Ladder, direction), (LongLadder, vectors.packed(direction)))
    ]
    return both[0], both[1], known.along(point, direction)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_the_truth_lies_within_the_error_bar(known: Known) -> None:
    _, lean, true = ladders(known)
    found = lean.estimate()
    held = (abs(found.value - true) <= found.error + 1e-300) | np.isinf(found.error)
    assert np.mean(held | ~np.isfinite(true)) == 1


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_bars_are_as_narrow_as_those_of_all_digits_or_leave_nothing_to_ask(known: Known) -> None:
    """Plain differences of outputs that are plainly smooth have the table's place."""
    plain, lean, true = ladders(known)
    bars = [np.median(ladder.estimate().error) for ladder in (plain, lean)]
    assert bars[1] <= max(1.5 * bars[0], 1e-6 * np.median(abs(true))) + 1e-300


TABLED = {"plainly smooth": 0, "a kink": 1, "a jump": 1, "single precision inside": 1}


@pytest.mark.parametrize("kind", TABLED)
def test_the_whole_table_is_made_only_of_outputs_that_are_not_plainly_smooth(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = np.linspace(0.5, 1.5, 4096)
    values = {
        "plainly smooth": np.sin,
        "a kink": lambda x: np.sin(x) + abs(x - point[7]),
        "a jump": lambda x: np.sin(x) + (x > point[7]),
        "single precision inside": lambda x: np.sin(x.astype(np.float32)).astype(np.float64),
    }
    made = []
    table = richardson.estimate
    monkeypatch.setattr(
        "gradproof._measure.ladder.estimate", lambda *args: made.append(1) or table(*args)
    )
    tangent = np.where(np.arange(4096) % 2, 0.75, -1.25)
    lean = LongLadder(Line(values[kind], point, values[kind](point), tangent, 2.0**-53), PLAN)
    assert lean.estimate().value.shape == (4096,)
    assert len(made) == TABLED[kind]


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_sums_over_outputs_are_those_of_all_digits(known: Known) -> None:
    plain, lean, true = ladders(known)
    weights = np.random.default_rng(1).standard_normal((2, true.shape[0]))
    one, other = plain.of_functionals(weights), lean.of_functionals(weights)
    span = slice(true.shape[0] // 2, true.shape[0])
    part = lean.of_functionals(weights[:, span], span)
    same = plain.of_functionals(weights[:, span], span)
    for left, right in ((one, other), (part, same)):
        assert np.all(abs(left.value - right.value) <= left.error + right.error)


def test_a_rung_is_told_as_it_was_evaluated() -> None:
    plain, lean, _ = ladders(SMOOTH[0])
    np.testing.assert_allclose(lean.rungs_of(3), plain.rungs_of(3), rtol=1e-12)


def test_an_estimate_consumes_the_evaluations_and_says_the_same(monkeypatch) -> None:
    monkeypatch.setattr("gradproof._measure.ladder._LOOK", 16)
    _, lean, _ = ladders(SMOOTH[0])
    kept = lean.estimate()
    gone = lean.solve(keep=False)
    np.testing.assert_array_equal(gone.value, kept.value)
    np.testing.assert_allclose(gone.error, kept.error, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0.5, -1.4990234375, 4.0], np.float32),
        ([1e5, -3.0], np.float32),
        ([0.1, 2.0], np.float64),
        ([2.0**-200, 1.0], np.float64),
    ],
)
def test_packing_loses_nothing(values, dtype) -> None:
    vector = np.asarray(values)
    short = vectors.packed(vector)
    assert short.dtype == dtype
    np.testing.assert_array_equal(vectors.unpacked(short), vector)


@pytest.mark.parametrize("values", [[1e-60, 1.0], [1e60], [np.pi, 0.0, np.inf, np.nan]])
def test_halving_keeps_24_bits_or_everything(values) -> None:
    vector = np.asarray(values)
    np.testing.assert_allclose(vectors.unpacked(vectors.halved(vector)), vector, rtol=6e-8)
