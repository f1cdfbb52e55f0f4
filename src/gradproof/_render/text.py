"""The report as plain text, at most 80 columns wide unless a name is longer.

The lines are made of spans that know their role, so that the terminal shows the same content in
colour without a second layout.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from gradproof._records import CheckResult, Finding, Place, Report, Statistic, Verdict

WIDTH = 80
SHOWN = 3  # findings of one check
SHOWN_AGAIN = 1  # wrong entries of a further check: mostly the same mistake seen once more
SHOWN_NOTES = 3
SHOWN_KINKS = 8
SHOWN_ARRAYS = 3  # of a table of statistics
MIN_WRAP = 24  # a text column is never narrower, however long the names beside it


class Span(NamedTuple):
    """A piece of a line. `role` is "", "title", "dim", "place" or the value of a verdict."""

    text: str
    role: str = ""


Line = tuple[Span, ...]


def render(report: Report) -> str:
    """The report as text, without a line break at its end."""
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines(report))


def lines(report: Report) -> Iterator[Line]:
    """The lines of the report, as spans."""
    yield from _header(report)
    if report.checks:
        yield ()
    name_width = max((len(result.name) for result in report.checks), default=0)
    verdict_width = max((len(result.verdict) for result in report.checks), default=0)
    entries_shown = False
    told: set[str] = set()
    for result in report.checks:
        yield from _check_line(result, name_width, verdict_width)
        repeats = entries_shown and all(map(_is_entry, result.findings))
        limit = SHOWN_AGAIN if repeats else SHOWN
        entries_shown = entries_shown or any(map(_is_entry, result.findings))
        for finding in result.findings[:limit]:
            yield from _finding(finding)
        if (more := len(result.findings) - limit) > 0:
            yield (Span(f"    ... and {more:,} more in report.findings", "dim"),)
        if "; not " in result.oracle and result.oracle not in told:
            told.add(result.oracle)
            yield from _wrapped("    oracle: ", result.oracle, "dim")
        yield from _statistics(result)
        yield from _kinks(result, told)
        for note in result.notes[:SHOWN_NOTES]:
            yield from _wrapped("    note: ", note, "dim")


def _header(report: Report) -> Iterator[Line]:
    target = " ".join(report.target.split())
    verdict = _verdict(report.verdict)
    cost = _cost(report)
    left = f"gradproof  {target}  {verdict.text}"
    start = (Span("gradproof", "dim"), Span(f"  {target}", "title"), Span("  "), verdict)
    gap = max(2, min(6, WIDTH - len(left) - len(cost)))
    if len(left) + gap + len(cost) <= WIDTH:
        yield (*start, Span(" " * gap), Span(cost, "dim"))
    else:
        yield start
        yield from _wrapped("  cost     ", cost, "dim")
    if report.inputs:
        yield from _wrapped("  inputs   ", ", ".join(report.inputs))
    if report.outputs:
        yield from _wrapped("  outputs  ", ", ".join(report.outputs))


def _cost(report: Report) -> str:
    nouns = (("function", "call"), ("vjp", "VJP"), ("jvp", "JVP"))
    counts = [
        f"{report.calls[kind]:,} {noun}{'' if report.calls[kind] == 1 else 's'}"
        for kind, noun in nouns
        if report.calls.get(kind)
    ]
    return ", ".join([f"seed {report.seed}", *counts, f"{report.seconds:.2f} s"])


def _verdict(verdict: Verdict, width: int = 0) -> Span:
    word = verdict.value.upper() if verdict is Verdict.FAILED else verdict.value
    return Span(word.ljust(width), verdict.value)


def _check_line(result: CheckResult, name_width: int, verdict_width: int) -> Iterator[Line]:
    name = f"  {result.name.ljust(name_width)}  "
    verdict = _verdict(result.verdict, verdict_width)
    indent = len(name) + len(verdict.text) + 2
    first, *rest = _wrap(result.summary, WIDTH - indent) or [""]
    yield (Span(name), verdict, Span(f"  {first}"))
    for line in rest:
        yield (Span(" " * indent + line),)


def _is_entry(finding: Finding) -> bool:
    """Whether it is a number of the Jacobian; anything else is told by its message."""
    return finding.kind == "entry" and (finding.input is not None or finding.output is not None)


def _finding(finding: Finding) -> Iterator[Line]:
    if not _is_entry(finding):
        yield from _wrapped("    ", finding.message)
        return
    places = (("input", finding.input), ("output", finding.output))
    where = " -> ".join(_place(kind, place) for kind, place in places if place is not None)
    yield (Span("    "), Span(where, "place"))
    digits = _digits(finding)
    error = "" if math.isnan(finding.error) else f" +- {finding.error:.2g}"
    yield (Span(f"      claimed   {_number(finding.claimed, digits)}"),)
    yield (Span(f"      measured  {_number(finding.measured, digits)}{error}"),)
    yield (Span(f"      gap       {finding.gap:<8.3g}  allowed {finding.allowed:.2g}"),)


def _statistics(result: CheckResult) -> Iterator[Line]:
    """One line per array: each statistic beside what is allowed, in units of eps."""
    tables: dict[tuple[str, str], list[Statistic]] = {}
    for row in result.statistics:
        tables.setdefault((row.oracle, row.array), []).append(row)
    wrong = [key for key, rows in tables.items() if not all(row.ok for row in rows)]
    shown = wrong if wrong else list(tables)
    for key in shown[:SHOWN_ARRAYS]:
        cells = [
            f"{row.name} {row.value:.2g} of {row.allowed:.2g}{'' if row.ok else ' (!)'}"
            for row in tables[key]
        ]
        yield from _wrapped("    ", f"{key[1]}, in eps: {', '.join(cells)}", "dim")
    if (more := len(shown) - SHOWN_ARRAYS) > 0:
        yield (Span(f"    ... and {more:,} more arrays in statistics", "dim"),)


def _kinks(result: CheckResult, told: set[str]) -> Iterator[Line]:
    """Entries without a derivative, but for those that a finding, or another check, tells of."""
    found = {finding.message for finding in result.findings}
    kinks = [kink for kink in result.kinks if kink.message not in found]
    fresh = [kink for kink in kinks if kink.message not in told]
    told.update(kink.message for kink in fresh)
    for kink in fresh[:SHOWN_KINKS]:
        yield from _wrapped("    ", kink.message)
    if (more := len(fresh) - SHOWN_KINKS) > 0:
        yield (Span(f"    ... and {more:,} more without a derivative", "dim"),)


def _place(kind: str, place: Place) -> str:
    """`input 0 'x'[1, 2]`; a name that already is `input 0` is not repeated."""
    entry = str(place).removeprefix(place.name)
    if re.fullmatch(rf"{kind} \d+", place.name):
        return f"{place.name}{entry}"
    quote = "" if "'" in place.name else "'"
    return f"{kind} {place.slot} {quote}{place.name}{quote}{entry}"


def _digits(finding: Finding) -> int:
    """Significant digits that show the gap: 6, or more where claimed and measured agree in 6."""
    size = max(abs(finding.claimed), abs(finding.measured))
    if not (0 < finding.gap < math.inf and 0 < size < math.inf):
        return 6
    return min(17, max(6, math.ceil(math.log10(size / finding.gap)) + 2))


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{text}.0" if text.lstrip("-").isdigit() else text


def _wrapped(label: str, text: str, role: str = "") -> Iterator[Line]:
    """The text behind a label, continued below its first letter."""
    for number, line in enumerate(_wrap(text, WIDTH - len(label))):
        yield (Span(label if number == 0 else " " * len(label)), Span(line, role))


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, MIN_WRAP), break_long_words=False, break_on_hyphens=False)
