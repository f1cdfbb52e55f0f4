"""The README is true, and links lead somewhere; test_docs_code.py runs its code."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from gradproof._data.settings import CHECK_NAMES

ROOT = Path(__file__).parents[1]
FILE = ROOT / "README.md"
README = FILE.read_text(encoding="utf-8")


CHECKS = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
TOOLS = ("slow", "fast", "check")
RESULTS = ROOT / "benchmarks" / "results"


def record(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_table_of_checks_is_complete_and_in_order():
    assert tuple(re.findall(r"^\| `(\w+)` \|", CHECKS, re.MULTILINE)) == CHECK_NAMES


def test_every_check_has_an_example():
    rows = [row for row in CHECKS.splitlines() if row.startswith("| `")]
    assert all(len(row.strip("| ").split(" | ")) == 3 for row in rows)


@pytest.mark.parametrize("table", ["operators", "planted", "scale"])
def test_the_markers_of_the_tables_are_there(table):
    assert BENCHMARKS.count(f"<!-- {table} -->") == BENCHMARKS.count(f"<!-- /{table} -->") == 1


PLANTED = [  # of a row of the README: which of the planted mistakes it counts
    ("planted mistakes of 1 %", lambda each: each["delta"] == 1e-2),
    ("planted mistakes of 0.1 %", lambda each: each["delta"] == 1e-3),
    (
        "wrong single entries",
        lambda each: each["kind"] == "one entry scaled" and each["delta"] in (1e-2, 1e-3),
    ),
    ("cotangents read", lambda each: each["kind"] == "grad_output read as contiguous"),
]


@pytest.mark.parametrize(("words", "counts"), PLANTED, ids=[words for words, _ in PLANTED])
def test_the_shares_of_planted_mistakes_are_the_recorded_ones(words, counts):
    """If this fails after `benchmarks/planted.py`: write the record's numbers into the README."""
    rows = [each for each in record("planted")["kinds"] if counts(each)]
    planted = sum(each["planted"] for each in rows)
    [line] = re.findall(rf"^\|.* of {planted} {words}.*$", README, re.MULTILINE)
    told = re.findall(r"([\d.]+) %", line.split("|", 2)[2])
    shares = [100 * sum(each[tool] for each in rows) / planted for tool in TOOLS]
    assert told == [f"{int(10 * share) / 10:g}" for share in shares]


def test_the_right_ones_are_not_accused():
    [right] = [each for each in record("planted")["kinds"] if each["kind"] == "no mistake"]
    assert f"of {right['planted']} right ones none is accused" in README
    assert right["check"] == 0


def test_the_time_told_is_the_recorded_one():
    """If this fails after `benchmarks/scale.py`: write the record's numbers into the README."""
    rows = [row["seconds"] for row in record("scale")["rows"] if row["n"] == 4096]
    pairs = [zip(row["ours"], row["slow"], strict=True) for row in rows]
    most = max(statistics.median(a / b for a, b in each) for each in pairs)
    assert f"at most {most:.2g}" in README


def test_the_cost_that_is_told_is_the_recorded_one():
    """If this fails after `benchmarks/scale.py`: write the record's numbers into docs/torch.md."""
    rows = record("scale")["rows"]

    def calls(tool, kind):
        every = [row["calls"][tool][kind] for row in rows]
        low, high = min(every), max(every)
        return f"{low} to {high}" if low < high else str(low)

    def times(peer, sizes):
        chosen = [row["seconds"] for row in rows if row["n"] in sizes and peer in row["seconds"]]
        pairs = [zip(each["ours"], each[peer], strict=True) for each in chosen]
        return [statistics.median(a / b for a, b in each) for each in pairs]

    sizes = {row["n"] for row in rows}
    fast, last, slow = times("fast", sizes), times("fast", {10**6}), times("slow", {4096})
    told = " ".join((ROOT / "docs" / "torch.md").read_text(encoding="utf-8").split())
    assert f"{calls('ours', 'calls')} calls and {calls('ours', 'vjps')} VJPs" in told
    assert f"takes {calls('fast', 'calls')} and {calls('fast', 'vjps')}." in told
    assert f"{min(fast):.0f} to {max(fast):.0f} times the time of the fast mode" in told
    assert f"at 10⁶ {min(last):.0f} to {max(last):.0f} times" in told
    assert f"numbers it is up to {max(slow):.1g}" in told


def test_mistakes_in_rules_of_jax_are_the_recorded_ones():
    """If this fails after `benchmarks/jax_functions.py`: write them into README and jax.md."""
    found = record("jax_functions")["planted"]
    ours, theirs = found["float32"]["ours"], found["float32"]["jax"]
    assert f"float32, of {ours[1]} | `check_grads`: {theirs[0]} | {ours[0]} |" in README
    page = (ROOT / "docs" / "jax.md").read_text(encoding="utf-8")
    wide = found["float64"]
    assert f"Of {ours[1]} mistakes planted" in page
    assert f"finds all {wide['ours'][0]} in float64 and all {ours[0]} in float32" in page
    assert f"`check_grads` {wide['jax'][0]} and {theirs[0]}." in page


def test_what_a_pass_says_is_what_the_first_page_prints():
    """test_docs_code.py runs that page."""
    [told] = re.findall(r'"(verified to [\de-]+)"', README)
    assert told in (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"
