"""docs/how-it-decides.md tells the limits and the ladders that the code has."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from gradproof._measure import statistics
from gradproof._measure.steps import Plan

ROOT = Path(__file__).parents[1]

DECIDES = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")


def test_the_limits_told_are_those_of_the_code():
    told = {
        row.split("|")[0]: row.replace("\\|", "").split("|")[-2]
        for row in re.findall(r"^\| ((?:slope|row|mean|rms|worst).*)$", DECIDES, re.MULTILINE)
    }
    limits = statistics._ALLOWED
    few = limits["slope"][0] / math.sqrt(12)  # that of rounding to nearest
    honest = {name: f"{factor:g} x honest" for name, (factor, _) in limits.items()}
    floor = {name: f"{least:g}" for name, (_, least) in limits.items()}
    assert {name.strip(): limit.strip() for name, limit in told.items()} == {
        "slope": f"{honest['slope']} + ({floor['slope']} + {few:.3g} / √(P N)) eps",
        "row, column, block slope": f"{honest['part']} + {floor['part']} eps",
        "mean": f"{honest['mean']} + {floor['mean']} eps / √(P N)",
        "rms": f"{honest['rms']} + {floor['rms']} eps",
        "worst entry": f"{honest['worst entry']} + {floor['worst entry']} eps "
        "(g + 0.1 rms g) / rms g",
    }
    assert f"{statistics.RUNS} honest runs" in DECIDES


@pytest.mark.parametrize(
    ("row", "unit"), [("float64", 53), ("float32", 24), ("float16", 11), ("bfloat16 and less", 8)]
)
def test_the_ladders_told_are_those_of_the_code(row, unit):
    [cells] = re.findall(rf"^\| {row} \| 2(\S+) \| 2(\S+) \| (\d) \|", DECIDES, re.MULTILINE)
    told = [int(cell.translate(str.maketrans("⁻¹²⁶⁸", "-1268"))) for cell in cells]
    plan = Plan.of(2.0**-unit)
    assert told == [math.log2(plan.top), math.log2(plan.ratio), plan.rungs]


def test_pictures_are_small_and_hold_nothing_but_shapes_and_text():
    pictures = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    assert [name for name in pictures if f"pictures/{name.name}" not in pages] == []
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert len(text) < 60_000
        assert "<script" not in text
        assert "<image" not in text
