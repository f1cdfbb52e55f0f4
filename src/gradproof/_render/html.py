"""The report as one page that needs nothing else: no network, no other file, no script.

`report.html.jinja` is its form. It needs Jinja2, the extra `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradproof._data.records import Report, Verdict
from gradproof._data.visible import escape_invisible
from gradproof._render import summary
from gradproof.errors import UsageError

if TYPE_CHECKING:
    import jinja2

WORST_FIRST = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.SKIPPED)


def render(report: Report) -> str:
    """The report as a page. UsageError where the extra `report` is not installed."""
    return render_many([(report.target, report)])


def render_many(reports: Sequence[tuple[str, Report]]) -> str:
    """Several named reports as one page, the worst first, with a table of them all.

    Raises:
        UsageError: the extra `report` is not installed.
    """
    template = page_template()
    rows = sorted(reports, key=lambda row: WORST_FIRST.index(row[1].verdict))
    return template.render(title=_title(rows), rows=rows, summary=summary)


def page_template() -> jinja2.Template:
    """The template of a page. UsageError where the extra `report` is not installed."""
    try:
        import jinja2
    except ModuleNotFoundError:
        raise UsageError("HTML needs jinja2: pip install jinja2") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: escape_invisible(value) if type(value) is str else value,
    )
    return environment.get_template("report.html.jinja")


def _title(rows: Sequence[tuple[str, Report]]) -> str:
    """`layer_norm: failed`, or `2 derivatives verified to 1e-09, 1 failed`."""
    if len(rows) == 1:
        return f"{rows[0][0]}: {rows[0][1].verdict}"
    return summary.tally((report.verdict, summary.resolution(report)) for _, report in rows)
