"""The report as one page that needs nothing else: no network, no other file, no script.

What the page shows is gathered here; `report.html.jinja` is its form. Needs the extra `report`:
Jinja2 for the page, Matplotlib for its pictures.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradproof._data.records import ComparedCall, Report, Verdict
from gradproof._data.visible import visible_in
from gradproof._render import plots, suite, summary, text
from gradproof.errors import UsageError

if TYPE_CHECKING:
    import jinja2

WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.SKIPPED)
NEEDED = ("jinja2", "matplotlib")
SECTIONS = 500  # reports in full; further ones are listed only
PICTURED = 40  # reports with pictures, a tenth of a second each


def render(report: Report) -> str:
    """The report as a page. UsageError where the extra `report` is not installed."""
    return render_many([(report.target, report)])


def render_many(
    reports: Sequence[tuple[str, Report]], *, compared: Sequence[ComparedCall] | None = None
) -> str:
    """Several named reports as one page, the worst first, with a table of them all.

    Args:
        reports: name and report of each.
        compared: calls of gradcheck that were answered twice, shown in a table of their own.

    Raises:
        UsageError: the extra `report` is not installed.
    """
    require_template_engine()
    rows = sorted(visible_in(tuple(reports)), key=lambda row: WORST_FIRST.index(row[1].verdict))
    sections = [
        {
            "name": name,
            "report": report,
            "text": text.html_text(report, full=True),
            "pictures": list(_pictures(report, f"r{k}")) if k < PICTURED else [],
        }
        for k, (name, report) in enumerate(rows[:SECTIONS])
    ]
    return _template().render(
        title=_title(rows),
        rows=rows,
        sections=sections,
        compared=None if compared is None else visible_in(tuple(compared)),
    )


def require_template_engine() -> None:
    """UsageError where a page could not be made, because the extra is not installed."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(f"HTML needs {' and '.join(missing)}: pip install 'gradproof[report]'")


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(
        bounded=summary.bound_text,
        counts=suite.counts,
        different=suite.differing_calls,
        result_line=_result_line,
        said=suite.answer_text,
    )
    return environment.get_template("report.html.jinja")


def _title(rows: Sequence[tuple[str, Report]]) -> str:
    """`layer_norm: failed`, or `layer_norm and 2 more: 1 failed, 2 passed`."""
    if not rows:
        return "gradproof: no reports"
    name, first = rows[0]
    if len(rows) == 1:
        return f"{name}: {first.verdict}"
    counts = {word: sum(report.verdict is word for _, report in rows) for word in WORST_FIRST}
    verdicts = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    return f"{name} and {len(rows) - 1:,} more: {verdicts}"


def _result_line(report: Report) -> str:
    """The result of a report in a line of the overview."""
    if report.verdict is not Verdict.PASSED:
        return summary.deciding_text(report)
    passed = ", ".join(r.name for r in report.checks if r.verdict is Verdict.PASSED)
    return "; ".join(filter(None, (passed, summary.unverified_text(report))))


def _pictures(report: Report, name: str) -> Iterator[tuple[str, str]]:
    """SVG and caption of the Jacobian around each failure for which it was measured."""
    for place, result in enumerate(report.checks):
        patch = result.patch
        if patch is not None and patch.outputs and patch.inputs:
            yield (
                plots.jacobian_svg(patch, f"{name}c{place}"),
                f"{result.name}: the Jacobian around the first wrong entry; rows are outputs "
                f"{_range(patch.outputs)}, columns inputs {_range(patch.inputs)}. Refuted entries "
                "have a frame; colours go with the root of the size.",
            )


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
