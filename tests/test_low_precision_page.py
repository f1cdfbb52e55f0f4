"""What docs/low-precision.md shows is what the code prints, up to how a processor sums."""

from __future__ import annotations

import contextlib
import io
import math
import re
from pathlib import Path

import pytest

from gradproof._numerics import statistics
from gradproof._numerics.differences import Plan

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "low-precision.md", ROOT / "README.md"
SHOWN = r"```text\n(.*?)```"
BLOCK = re.compile(rf"```python\n(.*?)```(?:\n\n{SHOWN})?", re.DOTALL)
NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?%?")


def words(text: str) -> list[str]:
    """The words, with what depends on machine and clock left out.

    A value of a statistic is rounding, which depends on how sums are vectorised; what is allowed
    does not.
    """
    text = re.sub(r"\b\d+\.\d+ s\b", "T s", text)
    return re.sub(r"[\w.+-]+ of (?=[\d.e+]+\b)", "V of ", text).split()


def alike(printed: str, shown: str) -> bool:
    """Whether two words are the same, or numbers of one size."""
    if printed == shown:
        return True
    ends = printed.strip("(),:;"), shown.strip("(),:;")
    if not all(NUMBER.fullmatch(end) for end in ends):
        return False
    a, b = (float(end.replace(",", "").rstrip("%")) for end in ends)
    return a * b > 0 and 0.5 <= a / b <= 2


def run(program: str, names: dict) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "page", "exec"), names)
    return printed.getvalue()


def compare(printed: str, shown: str) -> None:
    pairs = list(zip(words(printed), words(shown), strict=False))
    assert len(words(printed)) == len(words(shown)), printed
    assert not [pair for pair in pairs if not alike(*pair)], printed


QUICK, ALL = "all but the long search", pytest.param("every block", marks=pytest.mark.slow)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("which", [QUICK, ALL])
def test_blocks_print_what_is_shown(which, request):
    names: dict = {"__name__": "page"}
    text = PAGE.read_text(encoding="utf-8")
    for program, shown in BLOCK.findall(text):
        if which == QUICK and "for size in" in program:
            continue
        printed = run(program, names)
        if request.config.getoption("--update-golden"):
            before = f"{program}```\n\n```text\n{shown}```"
            text = text.replace(before, f"{program}```\n\n```text\n{printed}```")
            PAGE.write_text(text, encoding="utf-8")
        else:
            compare(printed, shown)


@pytest.mark.needs("torch")
def test_the_report_in_few_bits_that_the_readme_shows_is_printed(request):
    text = README.read_text(encoding="utf-8")
    section = text.split("<!-- precision -->")[1].split("<!-- /precision -->")[0]
    [(program, _)], [shown] = BLOCK.findall(section), re.findall(SHOWN, section, re.DOTALL)
    printed = run(program, {"__name__": "readme"})
    if request.config.getoption("--update-golden"):
        before, after = (f"```text\n{output}```" for output in (shown, printed))
        README.write_text(text.replace(section, section.replace(before, after)), encoding="utf-8")
    else:
        compare(printed, shown)


DECIDES = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")


def test_the_limits_told_are_those_of_the_code():
    told = {
        row.split("|")[0]: row.replace("\\|", "").split("|")[-2]
        for row in re.findall(r"^\| ((?:slope|row|mean|rms|worst).*)$", DECIDES, re.MULTILINE)
    }
    few = statistics.FACTOR * statistics._NEAREST
    factor = f"{statistics.FACTOR:g} x honest"
    assert {name.strip(): limit.strip() for name, limit in told.items()} == {
        "slope": f"{factor} + ({statistics._SLOPE:g} + {few:.3g} / √(P N)) eps",
        "row, column, block slope": f"{factor} + {statistics._PART:g} eps",
        "mean": f"{factor} + {statistics._MEAN:g} eps / √(P N)",
        "rms": f"{statistics._FACTOR_RMS:g} x honest + {statistics._RMS:g} eps",
        "worst entry": f"{statistics._FACTOR_ENTRY:g} x honest + {statistics._ENTRY:g} eps "
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
    assert [name for name in pictures if f"pictures/{name.name}" not in DECIDES] == []
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert len(text) < 60_000
        assert "<script" not in text
        assert "<image" not in text
