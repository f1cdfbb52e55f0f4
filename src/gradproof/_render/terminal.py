"""The report for a terminal: the plain text, with colours by verdict.

Rich leaves the colours out where the output is piped or NO_COLOR is set.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from gradproof._data.records import Report
from gradproof._render import text
from gradproof._render._spans import WIDTH, wide

STYLES = {
    "title": "bold",
    "dim": "dim",
    "place": "cyan",
    "passed": "green",
    "failed": "bold red",
    "inconclusive": "yellow",
    "skipped": "dim",
}


@dataclass(frozen=True)
class _OnTerminal:
    """A report that asks how wide the terminal is when it is printed."""

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with wide(console.width if console.is_terminal else WIDTH):
            yield _styled(self.report)


def render_rich(report: Report) -> RenderableType:
    """The report for `rich.console.Console.print(..., soft_wrap=True)`."""
    return _OnTerminal(report)


def _styled(report: Report) -> Text:
    styled = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(text.lines(report)):
        if number:
            styled.append("\n")
        for span in line:
            styled.append(span.text, STYLES.get(span.role))
    return styled
