"""The README and the page of benchmarks are true, and links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gradproof.cli import CHECK_NAMES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHECKS = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
TOOLS = ("slow", "fast", "check")
RESULTS = ROOT / "benchmarks" / "results"


def record(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def test_the_table_of_checks_is_complete_and_in_order():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", CHECKS, re.MULTILINE)
    assert tuple(name for name, _, _ in rows) == CHECK_NAMES


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
    shares = [100 * sum(each[tool] for each in rows) / planted for tool in TOOLS]
    cells = " | ".join(f"{int(10 * share) / 10:g} %" for share in shares)
    assert re.search(rf"^\| {words}.*, found of {planted} \| {cells} \|$", README, re.MULTILINE)


def test_right_derivatives_that_are_refused_are_the_recorded_ones():
    [right] = [each for each in record("planted")["kinds"] if each["kind"] == "no mistake"]
    cells = " | ".join(str(right[tool]) for tool in TOOLS)
    assert f"| right derivatives, refused of {right['planted']} | {cells} |" in README


def test_the_times_are_the_recorded_ones():
    """If this fails after `benchmarks/speed.py`: write the record's numbers into the README."""
    ratios = record("speed")["small"]["ratios"]
    medians = (ratios[f"{name} / fast"]["median"] for name in ("check", "gradcheck"))
    assert "| - | 1 | {:.2f}; drop-in {:.2f} |".format(*medians) in README


def test_the_page_says_what_was_recorded_of_small_checks():
    for name, found in record("speed")["small"]["ratios"].items():
        numbers = f"{found['median']:.2f} | {found['sum']:.2f}"
        assert f"| {name} | {numbers} | {100 * found['share above 1']:.0f} % |" in BENCHMARKS


def test_the_page_says_what_was_recorded_of_jax():
    for row in record("jax_speed")["rows"]:
        ours, theirs = row["warm"]
        said = f"{1e3 * ours:.3g} | {1e3 * theirs:.3g} | {ours / theirs:.3g} |"
        assert f"| {row['case']} | {row['dtype']} | {said}" in BENCHMARKS


def test_mistakes_in_rules_of_jax_are_the_recorded_ones():
    """If this fails after `benchmarks/jax_functions.py`: write them into README and jax.md."""
    found = record("jax_functions")["planted"]
    ours, theirs = found["float32"]["ours"], found["float32"]["jax"]
    readme = " ".join(README.split())
    assert f"Of {ours[1]} mistakes planted in float32 rules of JAX" in readme
    assert (
        f"`jax.test_util.check_grads` finds {theirs[0]} and `gradproof.check` {ours[0]}." in readme
    )
    page = " ".join((ROOT / "docs" / "jax.md").read_text(encoding="utf-8").split())
    wide = found["float64"]
    assert f"Of {ours[1]} mistakes planted" in page
    assert f"finds all {wide['ours'][0]} in float64 and all {ours[0]} in float32" in page
    assert f"`check_grads` {wide['jax'][0]} and {theirs[0]}." in page


def test_what_a_pass_says_is_what_the_first_page_prints():
    """test_docs_code.py runs that page."""
    [bound] = re.findall(r'"(verified to [\de-]+)"', README)
    assert bound in (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page.name}: {link}"
