"""The report as a page: whole, small, safe, and without anything fetched."""

from __future__ import annotations

import dataclasses
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gradproof
from example_reports import REPORTS, report
from gradproof import CaseResult, SurveyReport
from gradproof.errors import UsageError

pytestmark = pytest.mark.needs("jinja2")


def page_of(**named: gradproof.Report) -> str:
    """The page that `save` writes of these reports."""
    survey = SurveyReport([CaseResult(name, each) for name, each in named.items()])
    with tempfile.TemporaryDirectory() as folder:
        return survey.save(Path(folder, "report.html")).read_text("utf-8")


class Page(HTMLParser):
    """Ids, links, headings and text of a page; a tag that is not closed fails."""

    EMPTY = ("meta", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids, self.links, self.open, self.headings, self.words = [], [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        names = {"href", "xlink:href", "src", "action"} & found.keys()
        self.links += [found[name] for name in names]
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def words_of(page: str) -> str:
    return " ".join(" ".join(Page(page).words).split())


def test_a_page_of_every_report_is_whole_and_fetches_and_runs_nothing():
    text = page_of(**REPORTS)
    page = Page(text)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[:1] for link in page.links} == {"#"}
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert page.headings[:2] == [1, 2]
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert "<script" not in text
    assert not re.search(r"\son\w+=", text)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}


def test_a_page_says_what_the_text_says(tmp_path):
    said = words_of(REPORTS["explained"].save(tmp_path / "a.html").read_text("utf-8"))
    for words in (
        "64 of 16,384 entries wrong",
        "column 3 of x",
        "every entry with respect to x[:, 3] is multiplied by 2",
        "ratio 2.000000 +- 3e-09",
        "look for a term that is added twice",
        "or accumulated twice",
        "x[7, 0]: on the border",
        REPORTS["explained"].repeat,
        "input 0 'x'[1, 2] -> output 0[1, 2]",
        "no jvp rule",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("names", "title"),
    [
        ([], "0 derivatives verified"),
        (["one_failure"], "one_failure: failed"),
        (["passed", "one_failure", "kinks"], "2 derivatives verified to 3e-11, 1 failed"),
    ],
)
def test_the_title_names_the_function_or_counts(names, title):
    page = page_of(**{name: REPORTS[name] for name in names})
    assert f"<title>{title}</title>" in page
    assert f"<h1>{title}</h1>" in page


def test_statistics_beyond_what_is_allowed_are_marked():
    said = words_of(page_of(wrong=REPORTS["few_bits_wrong"]))
    assert "worst entry inf, allowed 4 (too much)" in said
    assert "mean nan, allowed 4 (too much)" in said
    assert "weight, off in units of eps: slope 1, allowed 4; mean 1, allowed 4; rms" in said


def test_a_kink_has_its_sentence():
    kinked = dataclasses.replace(
        REPORTS["explained"].checks[0], kinks=REPORTS["kinks"].checks[0].kinks
    )
    page = page_of(kinked=report(kinked))
    assert "x[0] -&gt; output 0[0]: not differentiable, a kink" in page
    assert "9 more without a derivative" in page


def test_without_the_extra_a_sentence_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match="needs jinja2: pip install jinja2"):
        REPORTS["passed"].save("report.html")


def test_the_worst_come_first_under_their_names():
    names = {"test_a": "passed", "test_b": "inconclusive", "test_c": "one_failure"}
    page = page_of(**{name: REPORTS[key] for name, key in names.items()})
    assert re.findall(r'<a href="#r\d">(\w+)</a>', page) == ["test_c", "test_b", "test_a"]


def test_names_are_shown_and_never_run():
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    check = dataclasses.replace(REPORTS["explained"].checks[0], summary=bad, where=bad)
    hostile = report(check, target=bad, inputs=(bad,), repeat=bad)
    page = page_of(**{bad: hostile})
    assert "<script" not in page
    assert "<img" not in page
    assert bad in "".join(Page(page).words)


@pytest.mark.parametrize("name", ["a.pdf", "a", "missing/a.txt"])
def test_a_path_that_cannot_be_written_is_refused_in_a_sentence(name, tmp_path):
    with pytest.raises(UsageError, match=r"^path: "):
        REPORTS["passed"].save(tmp_path / name)
