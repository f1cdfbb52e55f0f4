"""The report as plain text, 80 columns wide unless a name or the line for a shell is longer.

A pass takes at most 8 lines; `details` has the finding of every check. Of a failure the first check
that failed, and the first that names a cause, are shown with their findings, every other one that
failed or is open in a line or two, then those that passed or were skipped, and the line that
repeats it. Where that takes more than 25 lines the first check is shown, and the others are named.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradproof._data.records import CheckResult, Report, Verdict
from gradproof._data.visible import escape_invisible
from gradproof._render import summary
from gradproof._render._details import (
    BRIEF,
    FULL,
    PASS,
    USUAL,
    Amount,
    is_entry,
    lines_below,
    lines_of_notes,
)
from gradproof._render._spans import WIDTH, Line, Span, plain_text, wrapped_lines
from gradproof._render.advice import advice_by_check

LINES_OF_FAILURE = 25  # what does not fit is in the records, and on the page
DECIDED = (Verdict.FAILED, Verdict.INCONCLUSIVE)


def render(report: Report) -> str:
    """The report as text, without a line break at its end."""
    return "\n".join(map(plain_text, lines(report)))


def details(report: Report) -> str:
    """The report as text with all that its checks found, however long that is."""
    return "\n".join(map(plain_text, lines(report, full=True)))


def lines(report: Report, *, full: bool = False) -> list[Line]:
    """The lines of the report, as spans without invisible characters.

    They are all there is in full, else the details of the checks that say most.
    """
    # What failed comes before what is open. What passed has a line only where all did, and in full.
    is_passed = report.verdict is Verdict.PASSED
    verdicts = (Verdict.PASSED,) * full if is_passed else DECIDED
    shown = [each for word in verdicts for each in report.checks if each.verdict is word]
    amount = FULL if full else PASS if is_passed else USUAL
    found = list(_lines(report, shown, amount))
    if amount is USUAL and len(found) > LINES_OF_FAILURE:
        found = list(_lines(report, shown[:1], BRIEF))
    return [tuple(Span(escape_invisible(span.text), span.role) for span in line) for line in found]


def _lines(report: Report, shown: list[CheckResult], amount: Amount) -> Iterator[Line]:
    """The report with a line for each check shown, and details below some of them, or below all."""
    yield from _title(report)
    most = 1 if amount is PASS else 4
    yield from wrapped_lines("  inputs   ", ", ".join(report.inputs), most=most)
    yield from wrapped_lines("  outputs  ", ", ".join(report.outputs), most=most)
    if shown:
        yield ()
    advice = advice_by_check(report)
    in_full = shown[:1] + [each for each in shown if each.causes][:1]
    names = max((len(each.name) for each in shown), default=0)
    verdicts = max((len(each.verdict.value) for each in shown), default=0)
    for result in shown:
        name, verdict = f"  {result.name:<{names}}  ", _verdict(result.verdict, verdicts)
        is_in_full = amount is FULL or result in in_full
        label = f"{name}{verdict.text}  "
        (_, first), *rest = wrapped_lines(label, result.summary.strip() or "-", "", not is_in_full)
        yield (Span(name), verdict, Span("  "), first)
        yield from rest
        if is_in_full:
            yield from lines_below(result, advice.get(result.name, ""), amount)
        elif result.findings and not is_entry(result.findings[0]):
            yield from wrapped_lines("    ", result.findings[0].message, most=2)
    others = list(_lines_of_other_checks(report, shown, amount))
    if shown and others:
        yield ()
    yield from others


def _title(report: Report) -> list[Line]:
    """Name, verdict and cost; where they are too long for a line the cost has one of its own."""
    target, calls = " ".join(report.target.split()), sum(report.calls.values())
    cost = f"seed {report.seed}, {calls:,} call{'s' * (calls != 1)}, {report.seconds:.2f} s"
    verdict, bound = _verdict(report.verdict), summary.bound_text(summary.resolution(report))
    bound = f", verified to {bound}" if bound and report.verdict is Verdict.PASSED else ""
    missing = f", {open_}" if (open_ := summary.unverified_text(report)) else ""
    left = f"gradproof  {target}  {verdict.text}{bound}{missing}"
    title = (
        Span("gradproof", "dim"), Span(f"  {target}", "title"), Span("  "), verdict, Span(bound),
        Span(missing, "inconclusive"),
    )  # fmt: skip
    gap = max(2, min(6, WIDTH - len(left) - len(cost)))
    if len(left) + gap + len(cost) > WIDTH:
        return [title, *wrapped_lines("  cost     ", cost, "dim")]
    return [(*title, Span(" " * gap), Span(cost, "dim"))]


def _verdict(verdict: Verdict, width: int = 0) -> Span:
    return Span(summary.shown_verdict(verdict).ljust(width), verdict.value)


def _lines_of_other_checks(
    report: Report, shown: list[CheckResult], amount: Amount
) -> Iterator[Line]:
    """The checks that have no line of their own, and how to repeat the run."""
    rest = [each for each in report.checks if not any(each is one for one in shown)]
    for verdict, label in zip(DECIDED, ("  FAILED   ", "  open     "), strict=True):
        decided = ", ".join(each.name for each in rest if each.verdict is verdict)
        yield from wrapped_lines(label, decided, verdict.value)
    passed = [each for each in rest if each.verdict is Verdict.PASSED]
    names = ", ".join(each.name for each in passed)
    yield from wrapped_lines("  passed   ", names, most=amount.names)
    notes = tuple(note for each in passed for note in each.notes)
    yield from lines_of_notes(notes, amount)
    label, reasons = "  skipped  ", _names_by_reason(report)
    if report.verdict is Verdict.FAILED and amount is not FULL:
        names = ", ".join(each.name for each in rest if each.verdict is Verdict.SKIPPED)
        yield from wrapped_lines(label, names, "dim", amount.names)
    else:
        rows = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        room = 1 if notes else 2
        if amount is PASS and len(rows) > room:
            others = [name for names in list(reasons.values())[room - 1 :] for name in names]
            rows[room - 1 :] = [f"see report.details(): {', '.join(others)}"]
        for row in rows:
            yield from wrapped_lines(label, row, "dim", most=int(amount is PASS))
            label = " " * len(label)
    if report.repeat and report.verdict is not Verdict.PASSED:
        yield (Span("  repeat   ", "dim"), Span(report.repeat, "title"))  # in one piece, to copy


def _names_by_reason(report: Report) -> dict[str, list[str]]:
    """The checks that were skipped, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for each in report.checks:
        if each.verdict is Verdict.SKIPPED:
            reasons.setdefault(each.summary, []).append(each.name)
    return reasons
