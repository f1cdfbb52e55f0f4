"""The report as a page: whole, small, safe, and without anything fetched."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import sys
from html.parser import HTMLParser

import pytest

import gradproof
from example_reports import BACKWARD_PASSED, REPORTS, curve, entry, patch, report
from gradproof._data.records import CheckResult, Verdict
from gradproof._render import html, json, plots, text
from gradproof.errors import UsageError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jinja2") is None,
    reason="Jinja2 is not installed; it comes with the extra: pip install 'gradproof[report]'",
)
needs_matplotlib = pytest.mark.skipif(
    not plots.available(),
    reason="matplotlib is not installed; it comes with the extra: pip install 'gradproof[report]'",
)


class Page(HTMLParser):
    """Ids, links, headings and text of a page; a tag that is not closed fails."""

    EMPTY = ("meta", "br", "path", "use", "rect")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids, self.links, self.open, self.headings, self.words = [], [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src", "action") if name in found]
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)


def test_a_page_of_every_report_is_whole(undrawn):
    page = Page(html.render_many(list(REPORTS.items())))
    assert len(set(page.ids)) == len(page.ids)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert page.headings[:2] == [1, 2]
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))


def test_a_page_says_what_the_text_says(undrawn):
    said = " ".join(" ".join(Page(html.render(REPORTS["explained"])).words).split())
    for words in (
        "64 of 16,384 entries wrong",
        "column 3 of x",
        "every entry with respect to x[:, 3] is multiplied by 2",
        "ratio 2.000000 +- 3e-09",
        "look for a term that is added twice",
        "the gradient is added to itself",
        "x[7, 0] lies on the border",
        REPORTS["explained"].repeat,
        "input 0 'x'[1, 2] → output 0[1, 2]",
        "no jvp rule",
    ):
        assert words in said


def test_statistics_are_a_table_in_units_of_eps(undrawn):
    said = " ".join(" ".join(Page(html.render(REPORTS["few_bits_wrong"])).words).split())
    assert "weight 0.0078 1 of 4" in said
    assert "inf of 4 too much" in said
    assert "nan of 4 too much" in said


@needs_matplotlib
def test_curves_and_kinks_are_drawn_and_every_point_says_its_numbers():
    kinked = dataclasses.replace(
        REPORTS["explained"].checks[0], kinks=REPORTS["kinks"].checks[0].kinks
    )
    page = html.render(report(kinked))
    assert page.count("<svg") == 3
    assert page.count('class="point"') == 2 * len(curve().steps) + 3
    assert "step 0.12, difference 1.002" in page
    assert "7 more like these" in page
    Page(page)


@needs_matplotlib
@pytest.mark.parametrize(
    "changes",
    [
        {"values": (math.nan,) * 13, "forward": (math.inf,) * 13, "backward": (-math.inf,) * 13},
        {"values": (1.0,) * 13, "forward": (1.0,) * 13, "backward": (1.0,) * 13, "claimed": 1.0},
        {"claimed": math.nan, "error": math.inf, "chosen": math.nan},
        {"steps": (), "values": (), "forward": (), "backward": ()},
        {"output": "a$b$_{", "input": "<x>&"},
    ],
)
def test_odd_curves_are_drawn(changes):
    assert "<svg" in plots.error_against_step(dataclasses.replace(curve(), **changes), "v")


@needs_matplotlib
@pytest.mark.parametrize("left", [0.0, math.nan, math.inf, -math.inf])
def test_odd_kinks_are_drawn(left):
    kink = dataclasses.replace(REPORTS["kinks"].checks[0].kinks[0], left=left, claimed=left)
    assert "<svg" in plots.slopes([kink, dataclasses.replace(kink, input=None, right=0.0)], "k")


def test_without_matplotlib_the_page_says_what_is_missing(undrawn):
    page = html.render(REPORTS["explained"])
    assert "<svg" not in page
    assert "pip install &#39;gradproof[report]&#39;" in page


def test_without_jinja_a_sentence_says_what_is_missing(monkeypatch):
    html._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"pip install 'gradproof\[report\]'"):
        html.render(REPORTS["passed"])


def test_the_worst_come_first_under_their_names(undrawn):
    names = {"test_a": "passed", "test_b": "inconclusive", "test_c": "one_failure"}
    page = html.render_many([(name, REPORTS[key]) for name, key in names.items()], title="a run")
    assert re.findall(r'<a href="#r\d">(\w+)</a>', page) == ["test_c", "test_b", "test_a"]
    assert "1 failed, 1 inconclusive, 1 passed" in " ".join(page.split())


def test_many_large_reports_stay_below_6_megabytes(undrawn):
    large = CheckResult(
        "backward", Verdict.FAILED, "wrong", (entry(0, 0, 1, 2),), patch=patch(60, 60, 50)
    )
    reports = [report(large)] * 100 + [report(BACKWARD_PASSED)] * 3_000
    page = html.render_many([(f"test_{k}", one) for k, one in enumerate(reports)])
    assert len(page.encode()) < 6_000_000
    assert "reports are listed only" in page
    assert page.count('<tr role="row" class=') >= 3_100


def test_names_are_shown_and_never_run(undrawn):
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'"
    check = dataclasses.replace(
        REPORTS["explained"].checks[0],
        summary=bad,
        where=bad,
        patch=dataclasses.replace(patch(2, 2), outputs=(bad, bad), inputs=(bad, bad)),
    )
    hostile = report(check, target=bad, inputs=(bad,), repeat=bad)
    page = html.render_many([(bad, hostile), (bad, hostile)], title=bad)
    assert page.count("<script") == 3  # two for data, one of ours
    assert "<img" not in page
    assert "<script" not in text.in_notebook(hostile)


def test_a_map_names_once_what_its_places_have_in_common():
    shown = html.map_of(patch(3, 12, 2))
    assert shown["common"] == ("output 0", "x")
    assert shown["inputs"][1] == "[1, 1]"
    assert shown["wide"]
    kinds = [cell.kind for heat in shown["heats"] for row in heat["rows"] for cell in row]
    assert any("wrong" in kind for kind in kinds)
    assert "claimed" in shown["told"][0][0]


def test_cells_that_are_no_numbers_say_so():
    odd = ((math.nan, math.inf), (-math.inf, 0.0))
    shown = html.map_of(dataclasses.replace(patch(2, 2, 0), claimed=odd))
    kinds = [cell.kind for row in shown["heats"][0]["rows"] for cell in row]
    assert [kind.split()[0] for kind in kinds] == ["odd", "odd", "odd", "plus"]
    assert shown["told"][0][0].startswith("x[1, 0] to output 0[0, 0]: claimed nan")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.853, ".85"),
        (-0.5, "-.5"),
        (12.3, "12"),
        (7.61e-11, "8e-11"),
        (-1e-300, "-1e-300"),
    ],
)
def test_a_cell_says_its_number_in_few_characters(value, text):
    shown = html.map_of(dataclasses.replace(patch(1, 1, 0), claimed=((value,),)))
    assert shown["heats"][0]["rows"][0][0].text == text


def test_a_report_is_saved_in_the_form_of_its_name(tmp_path, undrawn):
    saved = REPORTS["explained"]
    assert saved.save(tmp_path / "a.txt").read_text("utf-8") == text.render(saved) + "\n"
    assert json.load(saved.save(str(tmp_path / "a.JSON")).read_text("utf-8")) == saved
    assert saved.save(tmp_path / "a.html").read_text("utf-8") == html.render(saved) + "\n"


@pytest.mark.parametrize("name", ["a.pdf", "a", "missing/a.txt"])
def test_a_path_that_cannot_be_written_is_refused_in_a_sentence(name, tmp_path):
    with pytest.raises(UsageError, match=r"^path: "):
        REPORTS["passed"].save(tmp_path / name)


@pytest.mark.parametrize("name", REPORTS)
def test_a_notebook_shows_the_text_without_any_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    shown = REPORTS[name]._repr_html_()
    plain = "".join(Page(shown).words)
    assert [line.rstrip() for line in plain.splitlines()] == str(REPORTS[name]).splitlines()
    assert len(shown) < 15_000


def test_nothing_heavy_is_imported_before_a_page_is_asked_for():
    assert gradproof._render is not None
    assert not {"jinja2", "matplotlib"} & set(vars(html))


@needs_matplotlib
def test_a_name_may_hold_a_backslash_and_what_is_not_seen_is_escaped():
    told = dataclasses.replace(curve(), input=r"\lambda", output="\\g<1>\x1b[31m\u202e")
    check = CheckResult(
        "backward", Verdict.FAILED, "wrong", (entry(1, 2, 1.1, 1.0),), curves=(told,)
    )
    page = html.render(report(check, target="\u202ef"))
    words = "".join(Page(page).words)
    assert r"\lambda" in words
    assert r"\g<1>\x1b[31m\u202e" in words
    assert not {"\x1b", "\u202e"} & set(page)
