"""What a check says: the same in other units of F and of x, and what is recorded of it.

For the units F is larger than 1, to whose roundings it may be owed that a function saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded
from numpy_map import FunctionMap, Linear, Vector, report_of

GOLDEN = Path(__file__).parent / "golden"
SIZES = {"few": 6, "many": 600}
MODES = {"backward only": {}, "transposed": {"transposes": True}, "forward": {"forward": True}}
ASKED = [("few", "backward only"), ("few", "forward"), ("many", "transposed")]


def spread(n: int) -> Vector:
    """A point between 1/2 and 2, of few digits."""
    return 0.5 + np.random.default_rng(n).integers(0, 1024, n) * 1.5 / 1024


def zeros(n: int) -> Vector:
    """A point of which every third entry is 0."""
    return np.where(np.arange(n) % 3 == 0, 0.0, spread(n) - 1.125)


@dataclass(frozen=True)
class Case:
    """A function of a vector, and a claim of its derivative at a point."""

    fn: Callable[[Vector], Vector]
    claimed: Callable[[Vector], Linear]
    point: Callable[[int], Vector] = spread


def bounded(x: Vector) -> Vector:
    return x / (1 + x * x)


def slope(x: Vector) -> Vector:
    return (1 - x * x) / ((1 + x * x) * (1 + x * x))


def mixed(x: Vector) -> Vector:
    return bounded(x) + x * np.roll(x, 1) + np.roll(x, -2)


def slopes(x: Vector) -> Linear:
    own, left = slope(x) + np.roll(x, 1), np.roll(x, -1)
    return Linear(
        lambda u: own * u + x * np.roll(u, 1) + np.roll(u, -2),
        lambda v: own * v + left * np.roll(v, -1) + np.roll(v, 2),
    )


def relu(claimed: float) -> Case:
    """relu of a point with zeros, where this slope is claimed."""
    entries = lambda x: np.where(x == 0, claimed, 1.0 * (x > 0))  # noqa: E731
    return Case(lambda x: np.maximum(x, 0), lambda x: Linear.diagonal(entries(x)), zeros)


def tail(x: Vector) -> Vector:
    return np.where(np.arange(x.shape[0]) >= x.shape[0] - 3, 0.25, 0.0)


CASES = {
    "right": Case(mixed, slopes),
    "an entry": Case(mixed, lambda x: slopes(x).with_entries({(3, 2): 0.1})),
    "two entries": Case(mixed, lambda x: slopes(x).with_entries({(3, 2): 0.1, (1, 5): -0.3})),
    "a row": Case(mixed, lambda x: slopes(x).with_row(2, 0.125 * x)),
    "a column": Case(mixed, lambda x: slopes(x).with_column(4, 0.125 * x)),
    "two columns": Case(
        mixed, lambda x: slopes(x).with_column(4, 0.125 * x).with_column(1, 0.25 * x)
    ),
    "the end of a row": Case(mixed, lambda x: slopes(x).with_row(1, tail(x))),
    "everything": Case(mixed, lambda x: slopes(x).scaled(1.0078125)),
    "rows swapped": Case(mixed, lambda x: slopes(x).with_rows_swapped(1, 4)),
    "a small entry": Case(mixed, lambda x: slopes(x).with_entries({(3, 2): 1e-5})),
    "a smaller one": Case(mixed, lambda x: slopes(x).with_entries({(3, 2): 1e-8})),
    "a convention": relu(0.5),
    "no slope of a kink": relu(-1.0),
    "single precision": Case(
        lambda x: bounded(x.astype(np.float32)).astype(float), lambda x: Linear.diagonal(slope(x))
    ),
    "a constant": Case(lambda x: 0 * x + 3, lambda x: Linear.diagonal(np.where(x > 1.5, 1e-3, 0))),
    "flat here": Case(
        lambda x: np.maximum(x - 3, 0), lambda x: Linear.diagonal(np.where(x > 3, 1.0, 0.0))
    ),
    "a jump": Case(lambda x: bounded(x) + (x > 1), lambda x: Linear.diagonal(slope(x))),
    "a root at its edge": Case(
        lambda x: np.sqrt(np.where(x < 0, np.nan, x)),
        lambda x: Linear.diagonal(np.where(x > 0, 0.5 / np.sqrt(np.abs(x) + (x == 0)), 0.0)),
        lambda n: np.abs(zeros(n)),
    ),
    "large and small": Case(
        lambda x: x * x * 10.0 ** (np.arange(x.shape[0]) % 9 - 4),
        lambda x: Linear.diagonal(
            2 * x * 10.0 ** (np.arange(x.shape[0]) % 9 - 4) * (1 + (x > 1.9))
        ),
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "brief": {"brief": True},
    "searched": {"full_jacobian": 4, "every_entry": 4},
    "tolerant": {"atol": 0.01, "rtol": 0.01},
    "by plain differences": {"classic_step": 1e-6, "atol": 1e-5, "rtol": 1e-3},
    "close by": {"largest_step": 1e-4},
    "few calls": {"budget": 30},
    "another seed": {"seed": 5},
}


@np.errstate(all="ignore")
def said(
    case: Case, size: int, mode: str, units: tuple[float, float] = (1.0, 1.0), **options: Any
) -> Iterator[tuple[str, Any]]:
    """What is found, in units of F and x."""
    x, (output, input_) = case.point(size), units
    unit = output / input_

    def jacobian(there: Vector) -> Linear:
        return case.claimed(there / input_).scaled(unit)

    map_ = FunctionMap(
        lambda moved: output * case.fn(moved / input_),
        x * input_,
        jacobian(x * input_),
        jacobian=jacobian,
        **MODES[mode],
    )
    for check in report_of(map_, "backward", "forward", **options).checks:
        notes = len(check.notes), len(check.kinks), check.oracle
        told = [str(check.verdict), check.resolution, *notes]
        yield check.name, [*told, sorted(check.calls.items())]
        for each in check.findings[:8]:
            numbers = np.array([each.claimed, each.measured, each.error, each.allowed]) / unit
            yield each.kind, [each.output_index, each.input_index, numbers]
        if len(check.findings) > 8:
            yield "in all", len(check.findings)


def without_calls(found: Iterator[tuple[str, Any]]) -> list[str]:
    """How many there are depends on whether F takes whole numbers, asked of some numbers only."""
    return [str(line).partition("('value', ")[0] for line in found]


@pytest.mark.parametrize(("size", "mode"), ASKED)
@pytest.mark.parametrize("case", CASES)
def test_in_other_units_the_same_is_found(case: str, size: str, mode: str) -> None:
    usual = said(CASES[case], SIZES[size], mode, (2.0**7, 1.0))
    other = said(CASES[case], SIZES[size], mode, (2.0**14, 2.0**-5))
    assert without_calls(other) == without_calls(usual)


@pytest.mark.parametrize("case", CASES)
def test_what_is_found_is_recorded(case: str, request: pytest.FixtureRequest) -> None:
    lines = [
        (f"{size}, {mode}: {what}", value)
        for size, mode in ASKED
        for what, value in said(CASES[case], SIZES[size], mode)
    ]
    lines += [
        (f"{name}: {what}", value)
        for name, options in OPTIONS.items()
        for what, value in said(CASES[case], SIZES["few"], "backward only", **options)
    ]
    recorded.compare(request, GOLDEN / f"{case}.txt", lines)
