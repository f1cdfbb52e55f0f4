"""Many cases and one record of them: what it says, whatever spread them."""

from __future__ import annotations

import json as plain

import numpy as np
import pytest

import gradproof
from gradproof import Case, Verdict
from gradproof._render import json as codec
from gradproof._survey import RunProgress, pieces
from gradproof.errors import UsageError


def sine(x):
    return np.sin(x)


def right(x, v):
    return v * np.cos(x)


def wrong(x, v):
    return 1.1 * v * np.cos(x)


RIGHT = Case(sine, "float64[3]", {"vjp": right})
WRONG = Case(sine, "float64[3]", {"vjp": wrong})


@pytest.fixture
def folder(here):
    """An empty working directory; what is imported in it is forgotten."""
    return here


def test_a_survey_holds_a_report_of_every_case_under_a_name_of_its_own():
    found = gradproof.survey([RIGHT, WRONG], seed=3)
    assert {name: str(report.verdict) for name, report in found.reports.items()} == {
        "sine": "passed",
        "sine[1]": "failed",
    }
    assert found.errors == {}
    assert {report.seed for report in found.reports.values()} == {3}
    assert "gradproof.check" in found.reports["sine"].repeat
    assert not found
    assert gradproof.survey([RIGHT])


def test_its_text_tells_what_did_not_pass_and_then_all():
    text = str(gradproof.survey([RIGHT, WRONG, Case(sine, "float64[3]", {"vjpp": 1})], seed=3))
    assert text.startswith("gradproof  sine  FAILED")
    assert "case: unknown 'vjpp'" in text
    assert text.endswith("1 failed, 1 could not run")


def test_it_is_saved_as_run_would(folder):
    found = gradproof.survey([RIGHT, WRONG], seed=3)
    assert found.save("all.json").read_text() == codec.dump_many(list(found.reports.items())) + "\n"
    assert dict(codec.load_many((folder / "all.json").read_text())) == found.reports
    with pytest.raises(UsageError, match=r"path: expected a name that ends in \.html or \.json"):
        found.save("all.txt")


def test_files_and_records_are_surveyed_together(folder):
    (folder / "ops.py").write_text(
        "from gradproof import case\n"
        'case(inputs="float64[3]", vjp=lambda x, v: 2 * v)(lambda x: 2 * x)\n'
    )
    found = gradproof.survey(["ops.py", RIGHT], seed=3)
    assert list(found.reports) == ["sine", "ops.py::<lambda>"]
    assert found.reports["ops.py::<lambda>"].repeat.startswith("gradproof run 'ops.py::<lambda>'")
    assert found


def test_a_file_that_has_changed_is_imported_anew(folder):
    for factor in ("2", "3"):
        (folder / "ops.py").write_text(
            "from gradproof import case\n"
            f'case(inputs="float64[3]", vjp=lambda x, v: {factor} * v)(lambda x: 2 * x)\n'
        )
        pieces.os.utime("ops.py", (int(factor), int(factor)))
        found = gradproof.survey(["ops.py"])
        assert bool(found) is (factor == "2")


def test_limits_reach_every_case():
    [report] = gradproof.survey([RIGHT], budget=2).reports.values()
    assert report["backward"].summary == "the budget of 2 calls is spent; raise budget="
    assert report.verdict is Verdict.INCONCLUSIVE


def test_an_interrupt_keeps_what_is_known(monkeypatch):
    ended = []

    def ends(self: RunProgress, name: str) -> None:
        ended.append(name)
        if len(ended) == 3:  # the import of no file is none
            raise KeyboardInterrupt

    monkeypatch.setattr(RunProgress, "ends", ends)
    found = gradproof.survey([RIGHT] * 5)
    assert found.interrupted
    assert list(found.reports) == ["sine", "sine[1]"]
    assert found.unfinished == ("sine[2]", "sine[3]", "sine[4]")
    assert str(found).endswith("interrupted: 3 not finished")
    assert not found


@pytest.mark.parametrize(
    ("cases", "options", "says"),
    [
        ([], {}, "no cases"),
        (["missing.py"], {}, "there is no 'missing.py'"),
        ([RIGHT], {"jobs": 0}, "jobs: expected at least 1, got 0"),
        ([RIGHT], {"seed": -1}, "seed: expected 0 <= seed"),
    ],
)
def test_wrong_usage_is_told(cases, options, says):
    with pytest.raises(UsageError, match=says):
        gradproof.survey(cases, **options)


def test_a_case_is_a_function_and_knows_whose():
    assert RIGHT.module == __name__
    assert Case(sine, "float64[3]", module="other").module == "other"
    with pytest.raises(UsageError, match="case: expected a function, got int"):
        Case(3, "float64[3]")


@pytest.mark.slow
def test_what_cannot_be_sent_is_the_error_of_its_case(folder):
    (folder / "ops.py").write_text(
        "from gradproof import case\n"
        'case(inputs="float64[3]", vjp=lambda x, v: 2 * v)(lambda x: 2 * x)\n'
    )
    found = gradproof.survey([Case(lambda x: x, "float64[3]"), "ops.py"], jobs=2)
    assert list(found.reports) == ["ops.py::<lambda>"]
    [(name, error)] = found.errors.items()
    assert name == "<lambda>"
    assert error.startswith("it cannot be sent to a process: ")


def test_a_survey_as_json_is_read_by_programs(folder):
    gradproof.survey([RIGHT]).save("all.json")
    assert plain.loads((folder / "all.json").read_text())["reports"][0]["name"] == "sine"
