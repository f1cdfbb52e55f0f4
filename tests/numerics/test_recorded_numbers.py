"""What is measured: in other units all its numbers follow, and they are those that are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded
from gradproof._data.settings import Settings
from gradproof._data.space import Grain, Slot, Space
from gradproof._measure import directional, jacobian, noise
from numpy_map import FunctionMap

GOLDEN = Path(__file__).parent / "golden"
# Digits of the numbers that F has, and the formats that it says it has.
FORMATS = {
    "double": (53, Grain()),
    "single": (24, Grain(2.0**-24, 2.0**-149, 3.4e38)),
    "half": (11, Grain(2.0**-11, 2.0**-24, 65504.0)),
}
POINT = np.array([0.75, -1.25, 2.125, 0.0625, -0.5])


def bounded(x: np.ndarray) -> np.ndarray:
    return x / (1 + x * x)


def growing(x: np.ndarray) -> np.ndarray:
    y = 1 + x / 4
    return y * y * y * y


def mixed(x: np.ndarray) -> np.ndarray:
    return 0.5 * x + 0.375 * np.roll(x, 1) - 0.625 * np.roll(x, 2)


def of_bits(values: np.ndarray, bits: int) -> np.ndarray:
    """The values, rounded to so many binary digits."""
    digits, power = np.frexp(values)
    return np.ldexp(np.round(digits * 2.0**bits), power - bits)


KINDS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "smooth": lambda x: bounded(3 * mixed(x)) + 2 * x,
    "polynomial": lambda x: x * x * x - 5 * x * x + x,
    "kinks in the point": lambda x: np.abs(x - POINT) + growing(mixed(x)),
    "kinks beside it": lambda x: np.abs(x - POINT - 1e-4) + growing(mixed(x)),
    "a jump": lambda x: bounded(x) + (x > POINT),
    "roots in the point": lambda x: np.sqrt(np.abs(x - POINT)) + x,
    "an edge in the point": lambda x: np.sqrt(np.where(x < POINT, np.nan, np.abs(x))),
    "differentiable once": lambda x: np.abs(x - POINT) * (x - POINT) + bounded(x),
    "single precision inside": lambda x: of_bits(bounded(mixed(x)), 24) + x,
    "a part in few bits": lambda x: bounded(x) + of_bits(0.125 * x * x, 11),
    "rounded to a grid": lambda x: bounded(x) + np.round(2.0**20 * x) / 2.0**40,
    "standing still": lambda x: np.where(np.arange(5) % 2 == 0, 3.0, bounded(x)),
    "large beside small": lambda x: bounded(x) * np.array([1e-6, 1e-3, 1.0, 1e3, 1e6]),
    "lost in a sum": lambda x: 1e12 + bounded(mixed(x)),
    "fast": lambda x: bounded(1e5 * (x - POINT - 1e-5)),
    "near a pole": lambda x: 1 / (x - POINT - 1e-3),
}


def noisy() -> Callable[[np.ndarray], np.ndarray]:
    """A smooth one, off by other random numbers in every call; the same ones in the same calls."""
    draws = np.random.default_rng(3)
    return lambda x: bounded(x) + 1e-9 * draws.uniform(-1, 1, 5)


def map_of(kind: str, output: float, input_: float, format_: str) -> FunctionMap:
    """The function in these units, of arrays of a format."""
    fn = noisy() if kind == "noisy" else KINDS[kind]
    bits, grain = FORMATS[format_]
    map_ = FunctionMap(
        lambda x: output * of_bits(fn(x / input_), bits), POINT * input_, np.zeros((5, 5))
    )
    map_.resolution = grain.unit
    map_.domain, map_.codomain = (Space((Slot(name, (5,), grain=grain),)) for name in "xy")
    return map_


def numbers(
    kind: str, output: float, input_: float, format_: str
) -> dict[tuple[str, str], tuple[Any, float]]:
    """What is measured, by name: the numbers, and the unit that they have."""
    settings, found = Settings(seed=0), {}

    def note(name: str, estimate: Any, per: float) -> None:
        for field in ("value", "error", "kink"):
            found[name, field] = getattr(estimate, field), output / per
        found[name, "noise"] = estimate.noise, output
        found[name, "step"] = estimate.step, per

    map_ = map_of(kind, output, input_, format_)
    rows = np.array([[1.0, -1.0, 0, 0, 0], [0, 0, 0.5, 0, 0.25]])
    for number in (0, 1):
        along = directional.along(map_, settings, number)
        note(f"along {number}", along.estimate, 1.0)
        found[f"along {number}", "varies"] = along.varies, 1.0
        note(f"sums {number}", along.ladder.of_functionals(rows), 1.0)
    found["map", "resolution"] = directional.resolution(map_), 1.0
    for j in (0, 3):
        note(f"column {j}", jacobian.climbed(map_, settings, j).estimate, input_)
        sides = jacobian.sides(map_, settings, j)
        found[f"sides {j}", "kind"] = sides.kind, 1.0
        for field in ("left", "right", "error"):
            found[f"sides {j}", field] = getattr(sides, field), output / input_
    note("columns", jacobian.columns(map_, settings, claimed=np.eye(5)), input_)
    function, move = map_.value, 0.5 * input_ * np.ones(5)
    found["line", "noise"] = noise.along(function, map_.point, move), output
    found["long line", "noise"] = noise.of_jumps(function, map_.point, move), output
    found["map", "calls"] = Counter(map_.calls)["value"], 1.0
    return found


@pytest.mark.parametrize("format_", ["double", "single"])
@pytest.mark.parametrize("kind", [*KINDS, "noisy"])
@np.errstate(all="ignore")
def test_in_other_units_all_numbers_follow(kind: str, format_: str) -> None:
    """But for the calls: whether F takes whole numbers is asked of some numbers only."""
    usual = numbers(kind, 2.0**4, 1.0, format_)
    for name, (found, unit) in numbers(kind, 2.0**14, 2.0**5, format_).items():
        before, its = usual[name]
        same = np.array_equal(np.divide(found, unit), np.divide(before, its), equal_nan=True)
        assert same or name == ("map", "calls"), name


@pytest.mark.parametrize("kind", [*KINDS, "noisy"])
@np.errstate(all="ignore")
def test_the_numbers_are_those_recorded(kind: str, request: pytest.FixtureRequest) -> None:
    lines = [
        (" ".join((format_, *name)), value)
        for format_ in FORMATS
        for name, (value, _) in numbers(kind, 1.0, 1.0, format_).items()
    ]
    recorded.compare(request, GOLDEN / f"{kind}.txt", lines)
