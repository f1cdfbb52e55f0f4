"""What a report says below the line of a check: findings, causes, statistics, kinks, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gradproof._data.records import CheckResult, Finding, Report
from gradproof._render._spans import Line, Span, number, places, wrapped_lines
from gradproof._render.advice import advice_by_check

SHOWN_KINKS = 8
LONGEST = 4  # lines of a message


@dataclass(frozen=True)
class Amount:
    """How many are shown of one check.

    Attributes:
        beside: findings beside the first, which is shown in full.
        notes: its remarks.
        arrays: those whose statistics are shown, in a line each.
        names: lines for the names of checks that passed, or were skipped.
        arguments: lines for the names of inputs, and of outputs.
        note_lines: lines of a remark; 0 for all.
    """

    beside: int
    notes: int
    arrays: int
    names: int
    arguments: int = 4
    note_lines: int = 0


PASS = Amount(0, 1, 0, 3, arguments=1, note_lines=1)
BRIEF, USUAL, FULL = Amount(0, 1, 0, 1), Amount(2, 3, 3, 8), Amount(6, 100, 20, 8)


class Details:
    """The lines below those of the checks of one report, asked for in the order of the checks.

    Several checks mostly see the same mistake: what one has said is not said again, and only the
    first wrong entry is shown in full.

    Args:
        report: whose checks they are.
        amount: how much is shown.
    """

    def __init__(self, report: Report, amount: Amount) -> None:
        self._advice = advice_by_check(report)
        self.amount = amount
        self._said: set[str] = set()
        self._has_entry = False  # whether one was shown in full

    def lines(self, result: CheckResult) -> Iterator[Line]:
        """Everything about a check that does not fit its line."""
        yield from self._findings(result)
        yield from self._explanation(result)
        if "; not " in result.reference and self._is_new(result.reference):
            yield from wrapped_lines("    held against ", result.reference, "dim")
        if self.amount is FULL or not result.findings:  # which say as much of what is off
            yield from _statistics(result, self.amount.arrays)
        yield from self._kinks(result)
        yield from self.notes(result.notes)

    def notes(self, notes: tuple[str, ...]) -> Iterator[Line]:
        for note in filter(self._is_new, notes[: self.amount.notes]):
            yield from wrapped_lines("    note: ", note, "dim", most=self.amount.note_lines)

    def _is_new(self, text: str) -> bool:
        """Whether a text is said for the first time."""
        fresh = text not in self._said
        self._said.add(text)
        return fresh

    def _findings(self, result: CheckResult) -> Iterator[Line]:
        """The first in full, others in a line each; what a further check sees again, in one."""
        again = self._has_entry and all(map(_is_entry, result.findings))
        shown = min(1, self.amount.beside) if again else 1 + self.amount.beside
        for place, finding in enumerate(result.findings[:shown]):
            if not _is_entry(finding):
                yield from wrapped_lines("    ", finding.message, most=LONGEST)
            elif place or self._has_entry:
                yield from _entry_in_a_line(finding)
            else:
                yield from _entry_in_full(finding)
                self._has_entry = True
        if (more := len(result.findings) - shown) > 0 and not again:
            yield (Span(f"    ... and {more:,} more in report.findings", "dim"),)

    def _explanation(self, result: CheckResult) -> Iterator[Line]:
        """Where, the likeliest cause with its evidence, what to try next."""
        shown = {str(side) for one in result.findings[:1] for side in (one.input, one.output)}
        alone = len(result.findings) == 1 and shown >= set(result.where.split(" with respect to "))
        if result.where and not alone and self._is_new(f"where {result.where}"):
            yield from wrapped_lines("    where   ", result.where, most=2)
        advice = self._advice.get(result.name)
        if advice and self._is_new(f"try {advice}"):
            yield from wrapped_lines("    try     ", advice, most=LONGEST)
        if not result.causes or not self._is_new(f"cause {result.causes[0].message}"):
            return
        cause, *others = result.causes
        if cause.message != result.summary:
            yield from wrapped_lines("    cause   ", cause.message, "failed", most=LONGEST)
        if cause.evidence:
            yield from wrapped_lines("            ", cause.evidence, "dim", most=2)
        if others:
            names = "; ".join(other.name for other in others)
            yield from wrapped_lines("    or      ", names, "dim", most=1)
        if cause.advice:
            yield from wrapped_lines("    try     ", cause.advice, most=LONGEST)

    def _kinks(self, result: CheckResult) -> Iterator[Line]:
        """Entries without a derivative, but for those that a finding, or another check, shows."""
        found = {finding.message for finding in result.findings}
        unfound = [kink.message for kink in result.kinks if kink.message not in found]
        new = list(filter(self._is_new, unfound))
        most = 1 if result.findings else SHOWN_KINKS
        for message in new[:most]:
            yield from wrapped_lines("    ", message)
        if (more := len(new) - most) > 0:
            yield (Span(f"    ... and {more:,} more without a derivative", "dim"),)


def _is_entry(finding: Finding) -> bool:
    """Whether it is a number of the Jacobian; anything else is described by its message."""
    return finding.kind == "entry" and (finding.input is not None or finding.output is not None)


def _entry_in_full(finding: Finding) -> Iterator[Line]:
    yield (Span("    "), Span(places(finding), "place"))
    claimed, measured = (number(x, finding.digits) for x in (finding.claimed, finding.measured))
    error = "" if math.isnan(finding.error) else f" +- {finding.error:.2g}"
    yield (Span("      claimed   ", "dim"), Span(claimed))
    yield (Span("      measured  ", "dim"), Span(f"{measured}{error}"))
    allowed = (Span("  allowed ", "dim"), Span(f"{finding.allowed:.2g}"))
    yield (Span("      gap       ", "dim"), Span(f"{finding.gap:<8.3g}"), *allowed)


def _entry_in_a_line(finding: Finding) -> Iterator[Line]:
    claimed, measured = (number(x, finding.digits) for x in (finding.claimed, finding.measured))
    sides = [str(side) for side in (finding.input, finding.output) if side is not None]
    yield from wrapped_lines(
        "    also ", f"{' -> '.join(sides)}: claimed {claimed}, measured {measured}"
    )


def _statistics(result: CheckResult, most: int) -> Iterator[Line]:
    """One line per array: each statistic beside what is allowed, in units of eps."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in result.statistics:
        mark = "" if each.ok else " (too much)"
        cell = f"{each.name} {each.value:.2g}, allowed {each.allowed:.2g}{mark}"
        found.setdefault((each.reference, each.array), []).append(cell)
    for (_, array), cells in list(found.items())[:most]:
        yield from wrapped_lines("    ", f"{array}, off in units of eps: {'; '.join(cells)}", "dim")
    if (more := len(found) - most) > 0:
        arrays = "array" if more == 1 else "arrays"
        yield (Span(f"    ... and {more:,} more {arrays} in statistics", "dim"),)
