"""Many reports for a terminal: a line each, and how many there are of what."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradproof._data.records import Report, Verdict
from gradproof._data.visible import visible_in
from gradproof._render import summary
from gradproof._render.terminal import STYLES

NAMES = 36  # columns that a name gets at least, if it needs them

Row = tuple[str, Report | None, str]  # name, report, and in place of a report why there is none


def render_rich(rows: Sequence[Row]) -> RenderableType:
    """A table of named reports, and the line that counts them.

    Args:
        rows: of each its name, its report or None, and in the latter case one sentence on why.
    """
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("verdict", no_wrap=True)
    longest = max((len(name) for name, _, _ in rows), default=0)
    grid.add_column("function", overflow="fold", style="bold", min_width=min(longest, NAMES))
    grid.add_column("to", no_wrap=True)
    grid.add_column("calls", justify="right", no_wrap=True)
    grid.add_column("s", justify="right", no_wrap=True)
    grid.add_column("what", overflow="fold")
    for name, report, reason in visible_in(tuple(rows)):
        grid.add_row(*_cells(name, report, reason))
    reports = [report for _, report, _ in rows if report is not None]
    line = summary.tally((report.verdict, summary.resolution(report)) for report in reports)
    if broken := len(rows) - len(reports):
        line += f", {broken} could not run"
    return Group(grid, "", line)


def _cells(name: str, report: Report | None, reason: str) -> list[RenderableType]:
    if report is None:
        return [Text("error", STYLES["failed"]), Text(name), "", "", "", Text(reason)]
    word = report.verdict.value
    bar = summary.resolution(report)
    calls = sum(report.calls.get(kind, 0) for kind in ("function", "vjp", "jvp"))
    return [
        Text(word.upper() if word == "failed" else word, STYLES[word]),
        Text(name),  # brackets in it are no markup
        "" if math.isnan(bar) else f"{bar:.0e}",
        f"{calls:,}",
        f"{report.seconds:.1f}",
        Text(_what(report)),
    ]


def _what(report: Report) -> str:
    passed = report.verdict is Verdict.PASSED
    return summary.unverified(report) if passed else summary.deciding(report)
