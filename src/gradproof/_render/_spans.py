"""Pieces of lines that know their role, and how text is cut to the width of a report.

Plain text and the terminal show the same lines; only the terminal looks at the roles.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from gradproof._data.records import Place

WIDTH = 80  # columns of a report, wherever it is shown
MIN_WRAP = 24  # a text column is never narrower, however long the names beside it


class Span(NamedTuple):
    """A piece of a line. `role` is "", "title", "dim", "place" or the value of a verdict."""

    text: str
    role: str = ""


Line = tuple[Span, ...]


def plain_text(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def wrapped_lines(label: str, text: str, role: str = "", most: int = 0) -> Iterator[Line]:
    """The text behind a label, continued below its first letter, in `most` lines if given."""
    width = max(WIDTH - len(label), MIN_WRAP)
    lines = _lines_of_words(text, width)
    if most and len(lines) > most:  # textwrap's max_lines would leave out words longer than a line
        lines[most - 1 :] = [_lines_of_words(lines[most - 1], width - 4)[0] + " ..."]
    for number, line in enumerate(lines):
        yield (Span(label if number == 0 else " " * len(label)), Span(line, role))


def _lines_of_words(text: str, width: int) -> list[str]:
    """The text in lines; words are never broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def place_text(kind: str, at: Place) -> str:
    """`input 0 'x'[1, 2]`; a name that already is `input 0` is not repeated."""
    entry = str(at).removeprefix(at.name)
    if re.fullmatch(rf"{kind} \d+", at.name):
        return f"{at.name}{entry}"
    quote = "" if "'" in at.name else "'"
    return f"{kind} {at.slot} {quote}{at.name}{quote}{entry}"


def number_text(value: float, precision: int) -> str:
    """The number in so many digits; a whole one keeps a decimal, `1.0`."""
    text = f"{value:.{precision}g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text
