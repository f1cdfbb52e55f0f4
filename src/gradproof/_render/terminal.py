"""Reports for a terminal: one as plain text, with colours by verdict; many as a table.

Rich leaves the colours out where the output is piped or NO_COLOR is set.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradproof._data.records import Report
from gradproof._data.visible import escape_invisible
from gradproof._render import summary, text

STYLES = {
    "title": "bold",
    "dim": "dim",
    "place": "cyan",
    "passed": "green",
    "failed": "bold red",
    "inconclusive": "yellow",
    "skipped": "dim",
}


def styled_text(report: Report) -> RenderableType:
    """The report for `rich.console.Console.print(..., crop=False)`, in colours by role."""
    lines = (
        [(span.text, STYLES.get(span.role, "")) for span in line] for line in text.lines(report)
    )
    return Group(*(Text.assemble(*line, no_wrap=True, overflow="ignore") for line in lines))


NAMES = 36  # columns that a name gets at least, if it needs them

Row = tuple[str, Report | None, str]  # name, report, and in place of a report why there is none


def table_of_reports(rows: Sequence[Row]) -> RenderableType:
    """A table of named reports, and the line that counts them."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("verdict", no_wrap=True)
    longest = max((len(name) for name, _, _ in rows), default=0)
    grid.add_column("function", overflow="fold", style="bold", min_width=min(longest, NAMES))
    grid.add_column("to", no_wrap=True)
    grid.add_column("calls", justify="right", no_wrap=True)
    grid.add_column("s", justify="right", no_wrap=True)
    grid.add_column("what", overflow="fold")
    for name, report, reason in rows:
        grid.add_row(*_cells(name, report, reason))
    reports = [report for _, report, _ in rows if report is not None]
    line = summary.tally((report.verdict, summary.resolution(report)) for report in reports)
    if broken := len(rows) - len(reports):
        line += f", {broken} could not run"
    return Group(grid, "", line)


def _cells(name: str, report: Report | None, reason: str) -> list[RenderableType]:
    shown_name = Text(escape_invisible(name))  # brackets in it are no markup
    if report is None:
        error = Text("error", STYLES["failed"])
        return [error, shown_name, "", "", "", Text(escape_invisible(reason))]
    return [
        Text(summary.shown_verdict(report.verdict), STYLES[report.verdict]),
        shown_name,
        summary.bound_text(summary.resolution(report)),
        f"{sum(report.calls.values()):,}",
        f"{report.seconds:.1f}",
        Text(escape_invisible(summary.result_text(report))),
    ]
