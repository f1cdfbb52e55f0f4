"""The benchmarks of escapes and of clusters say what they should."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.needs("torch"), pytest.mark.slow]


@pytest.fixture(autouse=True)
def scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])


def test_escapes_tells_wrong_from_right_where_others_do_not(tmp_path, capsys):
    import escapes

    assert escapes.main(["--only", "M10"]) == 0
    assert "caught" in capsys.readouterr().out


def test_slow_mode_is_not_asked_for_millions_of_entries():
    import escapes

    from exhibits.frame import Exhibit, normal

    large = Exhibit(
        name="large",
        source="extra",
        make_inputs=lambda: (normal(2000),),
        wrong=lambda x: 2 * x.detach() - x,
        right=lambda x: x,
    )
    row = escapes.judged(large, ["slow", "fast"], timeout=20)
    assert row.verdicts["slow"] == "not run: 4,000,000 entries"
    assert row.verdicts["fast"] == "caught"


def test_a_record_is_added_to_and_shown():
    import escapes

    known = [
        escapes.Row("a", "M01", True, {"slow": "missed"}, "caught"),
        escapes.Row("b", "C1", False),
    ]
    new = [escapes.Row("a", "M01", True, {"ours": "caught"}), escapes.Row("c", "W2", True)]
    rows = escapes.merged(known, new, ["c", "a"])
    assert [row.name for row in rows] == ["c", "a"]
    assert rows[1].verdicts == {"slow": "missed", "ours": "caught"}
    assert rows[1].sweep == "caught"
    text = escapes.page(rows)
    assert "| Published mistakes: caught | 1 | 0 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "| a | missed |" in text


def test_the_record_of_escapes_names_the_exhibits_of_the_museum():
    """Add those that are missing, in seconds:

    benchmarks/escapes.py --missing --json benchmarks/results/escapes.json --page docs/escapes.md
    """
    import escapes

    import museum

    rows = escapes.recorded(ROOT / "benchmarks" / "results" / "escapes.json")
    assert {row.name for row in rows} == {exhibit.name for exhibit in museum.EXHIBITS}


def test_the_page_of_escapes_shows_the_record():
    import escapes

    rows = escapes.recorded(ROOT / "benchmarks" / "results" / "escapes.json")
    assert escapes.page(rows) in (ROOT / "docs" / "escapes.md").read_text()
