"""docs/how-it-decides.md tells the numbers that the code has."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from gradproof import Settings
from gradproof._compare import claims, comparison, nonsmooth, tolerances
from gradproof._low_precision import rounding_runs, rounding_tests
from gradproof._numdiff import slopes, steps

ROOT = Path(__file__).parents[1]
DECIDES = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")
TEXT = " ".join(DECIDES.split())


def _number(cell: str) -> float:
    base, _, exponent = cell.strip().partition("^")
    return float(base) ** float(exponent or 1)


def _table(cell: str) -> steps.StepTable:
    largest, ratio, count = cell.split(", ")
    return steps.StepTable(_number(largest), _number(ratio), int(count))


@pytest.mark.parametrize(("row", "bits"), [("float64", 53), ("float32", 24), ("16 bits", 8)])
def test_the_step_tables_are_those_of_the_code(row: str, bits: int) -> None:
    [(usual, fine)] = re.findall(rf"^\| {row} \| (.*) \| (.*) \|$", DECIDES, re.MULTILINE)
    assert (_table(usual), _table(fine)) == steps.step_tables(2.0**-bits)


def test_the_table_of_very_many_entries_is_that_of_the_code() -> None:
    row = r"^\| float64, above ([\d,]+) entries \| (.*) \| (.*) \|$"
    [(entries_, usual, fine)] = re.findall(row, DECIDES, re.MULTILINE)
    assert int(entries_.replace(",", "")) == steps.LARGE
    assert (_table(usual), _table(fine)) == steps.step_tables(2.0**-53, size=steps.LARGE + 1)


@pytest.mark.parametrize(
    "told",
    [
        f"is below {tolerances.RESOLUTION:.0e} of the scale "
        f"({tolerances.SHARP_RESOLUTION:.0e} along a direction in double precision)",
        f"or {tolerances.SMALL:.0e} of the typical size",
        f"plus {slopes._SIGMAS} standard deviations of the noise",
        f"more than {slopes.ROUGH_ULPS:g} units in the last place",
        f"2^{math.log2(claims._MODES_AGREE):g} roundings",
        f"error s of a claim is 2^{math.log2(tolerances._ROUNDINGS):g} units in the last place",
        f"at up to {nonsmooth._POINTS} random points 2^{math.log2(steps.NEARBY):g} of a scale away",
        f"if it differs by {comparison.OTHER_SLOPE:.0e}",
        f"two points 2^{math.log2(steps.NEIGHBOUR):g} of a scale away",
        f"Up to {Settings().full_jacobian} inputs",
        f"Above {Settings().full_jacobian} inputs",
        f"<= {rounding_tests._SUMS:g} rms(the same sum over honest runs) + floor",
        f"off by {rounding_tests._ENTRIES:g} times its honest error",
        f"Up to {rounding_tests.OPEN_UP_TO:g} times what is allowed is inconclusive",
    ],
)
def test_the_numbers_are_those_of_the_code(told: str) -> None:
    assert re.sub(r"e-0(\d)", r"e-\1", told) in TEXT


def test_the_honest_runs_are_as_many_as_told() -> None:
    assert rounding_runs.RUNS == 8
    assert "eight runs of the reference" in TEXT


def test_pictures_are_small_and_hold_nothing_but_shapes_and_text() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert [name for name in pictures if f"pictures/{name.name}" not in pages] == []
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert len(text) < 60_000
        assert "<script" not in text
        assert "<image" not in text
