"""What a report says below the line of a check: findings, causes, statistics, kinks, notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gradproof._data.records import CheckResult, Finding, digits_of_gap
from gradproof._render._spans import Line, Span, number_text, place_text, wrapped_lines

SHOWN_KINKS = 8
LONGEST = 4  # lines of a message


@dataclass(frozen=True)
class Amount:
    """How much of each check is shown.

    Attributes:
        findings: disagreements; the first is shown in full, the others in a line each.
        notes: its remarks.
        arrays: those whose statistics are shown, in a line each.
        names: lines for the names of checks that passed, or were skipped.
    """

    findings: int
    notes: int
    arrays: int
    names: int


# Of a pass names of arguments, remarks and reasons have a line each, too.
PASS = Amount(1, 1, 0, 3)
BRIEF, USUAL, FULL = Amount(1, 1, 0, 1), Amount(3, 3, 3, 8), Amount(7, 100, 20, 8)


def lines_below(result: CheckResult, advice: str, amount: Amount) -> Iterator[Line]:
    """Everything about a check that does not fit its line.

    Args:
        result: of the check.
        advice: what to try next where no cause has advice; "" where there is none.
        amount: how much is shown.
    """
    yield from _findings(result, amount)
    yield from _explanation(result, advice)
    if result.refused:
        references = "; not ".join((result.reference, *result.refused))
        yield from wrapped_lines("    held against ", references, "dim")
    if amount is FULL or not result.findings:  # which say as much of what is off
        yield from _statistics(result, amount.arrays)
    yield from _kinks(result)
    yield from lines_of_notes(result.notes, amount)


def lines_of_notes(notes: tuple[str, ...], amount: Amount) -> Iterator[Line]:
    """As many different remarks as are shown."""
    for note in tuple(dict.fromkeys(notes))[: amount.notes]:
        yield from wrapped_lines("    note: ", note, "dim", most=int(amount is PASS))


def _findings(result: CheckResult, amount: Amount) -> Iterator[Line]:
    """The first in full, others in a line each."""
    has_entry = False
    for finding in result.findings[: amount.findings]:
        if not is_entry(finding):
            yield from wrapped_lines("    ", finding.message, most=LONGEST)
        elif has_entry:
            yield from _entry_in_a_line(finding)
        else:
            yield from _entry_in_full(finding)
            has_entry = True
    if (more := len(result.findings) - amount.findings) > 0:
        yield (Span(f"    ... and {more:,} more in report.findings", "dim"),)


def _explanation(result: CheckResult, advice: str) -> Iterator[Line]:
    """Where, the likeliest cause with its evidence, what to try next."""
    shown = {str(side) for one in result.findings[:1] for side in (one.input, one.output)}
    alone = len(result.findings) == 1 and shown >= set(result.where.split(" with respect to "))
    if result.where and not alone:
        yield from wrapped_lines("    where   ", result.where, most=2)
    if advice:
        yield from wrapped_lines("    try     ", advice, most=LONGEST)
    if not result.causes:
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


def _kinks(result: CheckResult) -> Iterator[Line]:
    """Entries without a derivative, but for those that a finding shows."""
    found = {finding.message for finding in result.findings}
    messages = [kink.message for kink in result.kinks if kink.message not in found]
    most = 1 if result.findings else SHOWN_KINKS
    for message in messages[:most]:
        yield from wrapped_lines("    ", message)
    if (more := len(messages) - most) > 0:
        yield (Span(f"    ... and {more:,} more without a derivative", "dim"),)


def is_entry(finding: Finding) -> bool:
    """Whether a finding is about a number of the Jacobian; others have a message alone."""
    return finding.kind == "entry" and (finding.input is not None or finding.output is not None)


def _entry_in_full(finding: Finding) -> Iterator[Line]:
    sides = (("input", finding.input), ("output", finding.output))
    names = " -> ".join(place_text(kind, at) for kind, at in sides if at is not None)
    yield (Span("    "), Span(names, "place"))
    claimed, measured = _numbers(finding)
    error = "" if math.isnan(finding.error) else f" +- {finding.error:.2g}"
    yield (Span("      claimed   ", "dim"), Span(claimed))
    yield (Span("      measured  ", "dim"), Span(f"{measured}{error}"))
    allowed = (Span("  allowed ", "dim"), Span(f"{finding.allowed:.2g}"))
    yield (Span("      gap       ", "dim"), Span(f"{f'{finding.gap:.3g}':<8}"), *allowed)


def _numbers(finding: Finding) -> tuple[str, str]:
    """What is claimed and what is measured, in as many digits as show the gap."""
    shown = digits_of_gap(finding.claimed, finding.measured)
    return number_text(finding.claimed, shown), number_text(finding.measured, shown)


def _entry_in_a_line(finding: Finding) -> Iterator[Line]:
    claimed, measured = _numbers(finding)
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
