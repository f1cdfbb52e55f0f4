"""The report for a terminal: the plain text, with colours by verdict.

Rich leaves the colours out where the output is piped or NO_COLOR is set.
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from gradproof._data.records import Report
from gradproof._render import text

STYLES = {
    "title": "bold",
    "dim": "dim",
    "place": "cyan",
    "passed": "green",
    "failed": "bold red",
    "inconclusive": "yellow",
    "skipped": "dim",
}


def render_rich(report: Report) -> RenderableType:
    """The report for `rich.console.Console.print(..., soft_wrap=True)`."""
    styled = Text(no_wrap=True, overflow="ignore")
    for number, line in enumerate(text.lines(report)):
        if number:
            styled.append("\n")
        for span in line:
            styled.append(span.text, STYLES.get(span.role))
    return styled
