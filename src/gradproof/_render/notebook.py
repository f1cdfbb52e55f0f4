"""The report inside a notebook: the text, in colours that suit a light page and a dark one."""

from __future__ import annotations

import html

from gradproof._data.records import Report
from gradproof._render import text
from gradproof._render._spans import Span

# Of medium brightness: a contrast of at least 3 against white and against near-black.
STYLES = {
    "title": "font-weight: 600",
    "dim": "opacity: 0.75",
    "place": "color: #3f84c8",
    "passed": "color: #3d9257",
    "failed": "color: #d2543d; font-weight: 600",
    "inconclusive": "color: #b07a1e",
    "skipped": "opacity: 0.75",
}


# Notebooks give what they show a font and a wrapping of their own, in which columns do not align.
PAGE = "font-family: ui-monospace, monospace; white-space: pre; line-height: 1.4; overflow-x: auto"


def render(report: Report) -> str:
    """A piece of HTML that needs nothing else."""
    shown = "\n".join("".join(map(_span, line)) for line in text.lines(report))
    return f'<pre style="{PAGE}">{shown}</pre>'


def _span(span: Span) -> str:
    words = html.escape(span.text)
    style = STYLES.get(span.role)
    return f'<span style="{style}">{words}</span>' if style else words
