"""Plain differences of smooth outputs, which have the place of the table where F has very many."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof._measure import richardson, steps
from gradproof._measure.ladder import Ladder, Line
from gradproof._measure.noise import FACTOR
from numerics.calculus import KNOWN, Known

PLAN = steps.slope(2.0**-53, None, lean=True)
SMOOTH = [known for known in KNOWN if known.smooth]


@pytest.fixture(autouse=True)
def _quiet_arithmetic():
    """As the engine: what overflows in the function under test is no news."""
    with np.errstate(all="ignore"):
        yield


def ladder_of(known: Known, size: int = 64) -> tuple[Ladder, np.ndarray]:
    draw = np.random.default_rng(5)
    point = draw.standard_normal(size)
    direction = (
        draw.choice([-1.0, 1.0], size) * np.round(draw.uniform(0.5, 1.5, size) * 1024) / 1024
    )
    line = Line(lambda x: known.value(x).copy(), point, known.value(point), direction, 2.0**-53)
    return Ladder(line, PLAN), known.along(point, direction)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every F has very many outputs."""
    monkeypatch.setattr("gradproof._measure.ladder.KEPT", 0)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_the_truth_lies_within_the_error_bar(known: Known, many) -> None:
    ladder, true = ladder_of(known)
    found = ladder.estimate()
    held = (abs(found.value - true) <= found.error + 1e-300) | np.isinf(found.error)
    assert np.mean(held | ~np.isfinite(true)) == 1


@pytest.mark.parametrize("known", SMOOTH, ids=lambda known: known.name)
def test_bars_are_as_narrow_as_those_of_the_table_or_leave_nothing_to_ask(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    ladder, true = ladder_of(known)
    of_table = np.median(ladder.estimate().error)
    monkeypatch.setattr("gradproof._measure.ladder.KEPT", 0)
    bar = np.median(ladder.estimate().error)
    assert bar <= max(1.5 * of_table, 1e-6 * np.median(abs(true))) + 1e-300


TABLED = {
    "plainly smooth": 0,
    "a kink": 1,
    "a jump": 1,
    "single precision inside": 1,
    "noise": 1,
}


@pytest.mark.parametrize("kind", TABLED)
def test_the_whole_table_is_made_only_of_outputs_that_are_not_plainly_smooth(
    kind: str, many, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = np.linspace(0.5, 1.5, 4096)
    values = {
        "plainly smooth": np.sin,
        "a kink": lambda x: np.sin(x) + abs(x - point[7]),
        "a jump": lambda x: np.sin(x) + (x > point[7]),
        "single precision inside": lambda x: np.sin(x.astype(np.float32)).astype(np.float64),
        "noise": np.sin,
    }
    made = []
    table = richardson.estimate
    monkeypatch.setattr(
        "gradproof._measure.ladder.estimate", lambda *args: made.append(1) or table(*args)
    )
    tangent = np.where(np.arange(4096) % 2, 0.75, -1.25)
    noise = 1e-9 * np.ones(4096) if kind == "noise" else 0.0
    line = Line(values[kind], point, values[kind](point), tangent, 2.0**-53, noise)
    assert Ladder(line, PLAN).estimate().value.shape == (4096,)
    assert len(made) == TABLED[kind]


# In numbers that are worked out by hand.

STEPS = [2.0**-6, 2.0**-14, 2.0**-22, 2.0**-30]
UNIT = 2.0**-53


def table_of(odd, even, centre=1.0):
    parts = (np.array(part, dtype=float).reshape(4, -1) for part in (odd, even))
    odd, even = parts
    return np.broadcast_to(np.array(centre, dtype=float), odd.shape[1:]), odd, even


def test_a_line_is_known_to_its_rounding_at_both_steps() -> None:
    h = np.array(STEPS)
    found = richardson.smooth(STEPS, table_of(3 * h, 0 * h), UNIT)
    size = 1 + 3 * STEPS[0]  # the largest that F is
    noise = FACTOR * UNIT * size
    assert found.value.tolist() == [3.0]
    assert found.step.tolist() == [STEPS[0]]
    assert found.error == pytest.approx([noise / STEPS[1] + 1.1 * noise / STEPS[0]], rel=1e-12)
    assert found.noise == pytest.approx([UNIT * size])
    assert found.kink.tolist() == [0.0]


def test_a_cubic_term_moves_the_coarse_slope_and_the_finer_one_is_taken() -> None:
    h = np.array(STEPS)
    found = richardson.smooth(STEPS, table_of(3 * h + 100 * h**3, 0 * h), UNIT)
    assert found.step.tolist() == [STEPS[1]]
    assert found.value == pytest.approx([3.0 + 100 * STEPS[1] ** 2], rel=1e-15)
    size = 1 + 3 * STEPS[0] + 100 * STEPS[0] ** 3
    noise = FACTOR * UNIT * size
    apart = 100 * (STEPS[1] ** 2 - STEPS[2] ** 2)
    expected = apart + noise / STEPS[2] + 1.1 * noise / STEPS[1]
    assert found.error == pytest.approx([expected], rel=1e-3)


@pytest.mark.parametrize(
    ("odd", "even", "centre", "plain"),
    [
        (lambda h: 3 * h + h**3, lambda h: 5 * h**2, 1.0, True),
        (lambda h: 3 * h, lambda h: 5 * h, 1.0, False),  # a kink in the point
        (lambda h: 3 * h + h**2, lambda h: 0 * h, 1.0, False),  # differentiable once
        (lambda h: 3 * h, lambda h: 0 * h, 0.0, True),
        (lambda h: 0 * h, lambda h: 0 * h, 0.0, False),  # nothing at all
        (lambda h: 3 * h, lambda h: 0 * h + np.inf, 1.0, False),
        (lambda h: 3 * h, lambda h: 1e-3 * np.array([1, -1, 1, -1]), 1.0, False),  # noise
        (lambda h: 3 * h, lambda h: 30 * UNIT * np.array([1, -1, 1, -1]), 1.0, True),
        (lambda h: 3 * h, lambda h: 1e-12 * np.array([1, -1, 1, -1]), 1.0, True),  # no large one
    ],
)
def test_what_falls_with_the_square_of_the_step_is_smooth(odd, even, centre, plain) -> None:
    h = np.array(STEPS)
    found = richardson.smooth(STEPS, table_of(odd(h), even(h), centre), UNIT)
    assert (found is not None) is plain


def rounded(odd, even, centre):
    """The table, as F at both ends of the steps gives it: every number is rounded."""
    sides = [(centre + d + e, centre - d + e) for d, e in zip(odd, even, strict=True)]
    parts = zip(*(richardson.parts(centre, *side) for side in sides), strict=True)
    return centre, *map(np.stack, parts)


def test_of_many_outputs_one_that_is_loud_does_not_blind_the_others() -> None:
    h = np.array(STEPS[:3])
    centre = np.pi * np.linspace(1.0, 2.0, 64)
    odd, loud = np.outer(h, centre / 3), np.zeros((3, 64))
    loud[:, 0] = np.array([1, -1, 1]) * 1e-12
    worst = richardson.smooth(list(h), (centre, odd, loud), UNIT)
    usual = richardson.smooth(list(h), rounded(odd, loud, centre), UNIT, many=True)
    assert worst.noise[1:].min() > 1e-12
    assert usual.noise[1:].max() < 1e-14  # a few units in the last place
    assert usual.noise[0] == pytest.approx(1.5 * 1e-12 * (1 + 2.0**-16), rel=1e-2)


@pytest.mark.parametrize(
    ("change", "plain"),
    [
        (lambda h: (0 * h, 0 * h), True),
        (lambda h: (0 * h, 5 * h), False),  # a kink in the point
        (lambda h: (h**2, 0 * h), False),  # differentiable once
        (lambda h: (0 * h, 0 * h + np.inf), False),
        (lambda h: (0 * h + np.nan, 0 * h), False),
        (lambda h: (0 * h, 1e-5 * np.array([1, -1, 1])), False),  # noise
    ],
)
def test_one_output_that_is_not_plainly_smooth_is_enough(change, plain) -> None:
    h, centre = np.array(STEPS[:3]), np.linspace(1.0, 2.0, 64)
    odd, even = np.outer(h, np.full(64, 3.0)), np.zeros((3, 64))
    more = change(h)
    odd[:, 7] += more[0]
    even[:, 7] += more[1]
    found = richardson.smooth(list(h), rounded(odd, even, centre), UNIT, many=True)
    assert (found is not None) is plain
