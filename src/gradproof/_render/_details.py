"""What a report says below the line of a check: findings, causes, statistics, kinks, notes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gradproof._data.checks import TABLE, Check, row
from gradproof._data.records import CheckResult, Finding, Report, Statistic, Verdict
from gradproof._render._spans import Line, Span, number, numbers, places, wrapped

BRIEFNESS = (0, 1, 2, 3)  # how much is left out, for a failure that would be long otherwise
SHOWN_BRIEFLY = 2  # findings of one check beside the first, which is shown in full
SHOWN_NOTES = 3
SHOWN_KINKS = 8
SHOWN_ARRAYS = 3  # of a table of statistics
LONGEST = 4  # lines of a message


class Told:
    """What was said already: mostly the same mistake is seen by several checks."""

    def __init__(self, briefness: int = 0, advice: dict[str, str] | None = None) -> None:
        self.advice = advice or {}  # by check, where no cause is named
        self._said: set[str] = set()
        self.entry = False  # whether one was shown in full
        self.most_others = SHOWN_BRIEFLY if briefness == 0 else 0
        self.most_again = 1 if briefness == 0 else 0  # entries that a further check sees
        self.most_notes = SHOWN_NOTES if briefness == 0 else 1
        self.first_only = briefness == BRIEFNESS[-1]  # of further failures nothing but the name
        self.longest = 2 if briefness > 1 and not self.first_only else LONGEST

    def news(self, text: str) -> bool:
        """Whether a text is said for the first time."""
        fresh = text not in self._said
        self._said.add(text)
        return fresh


def details(result: CheckResult, told: Told) -> Iterator[Line]:
    """Everything about a check that does not fit its line."""
    yield from _findings(result, told)
    yield from _explanation(result, told)
    if "; not " in result.oracle and told.news(result.oracle):
        yield from wrapped("    oracle: ", result.oracle, "dim")
    yield from _statistics(result)
    yield from _kinks(result, told)
    for note in result.notes[: told.most_notes]:
        if told.news(note):
            yield from wrapped("    note: ", note, "dim")


def is_entry(finding: Finding) -> bool:
    """Whether it is a number of the Jacobian; anything else is told by its message."""
    return finding.kind == "entry" and (finding.input is not None or finding.output is not None)


def _findings(result: CheckResult, told: Told) -> Iterator[Line]:
    """The first in full; of the others, and of what a further check sees again, a line each."""
    brief = told.entry and all(map(is_entry, result.findings))
    shown = told.most_again if brief else 1 + told.most_others
    for place, finding in enumerate(result.findings[:shown]):
        if not is_entry(finding):
            yield from wrapped("    ", finding.message, most=told.longest)
        elif place or told.entry:
            yield from _in_brief(finding)
        else:
            yield from _in_full(finding)
            told.entry = True
    if (more := len(result.findings) - shown) > 0 and not brief:
        yield (Span(f"    ... and {more:,} more in report.findings", "dim"),)


def _in_full(finding: Finding) -> Iterator[Line]:
    yield (Span("    "), Span(places(finding), "place"))
    told = numbers(finding)
    for name in ("claimed", "measured"):
        yield (Span(f"      {name:<10}", "dim"), Span(told[name]))
    allowed = (Span("  allowed ", "dim"), Span(told["allowed"]))
    yield (Span("      gap       ", "dim"), Span(f"{told['gap']:<8}"), *allowed)


def _in_brief(finding: Finding) -> Iterator[Line]:
    claimed, measured = (number(x, finding.digits) for x in (finding.claimed, finding.measured))
    sides = [str(side) for side in (finding.input, finding.output) if side is not None]
    yield from wrapped("    also ", f"{' -> '.join(sides)}: claimed {claimed}, measured {measured}")


def _explanation(result: CheckResult, told: Told) -> Iterator[Line]:
    """Where, the likeliest cause with its evidence, what to try next."""
    shown = {str(side) for one in result.findings[:1] for side in (one.input, one.output)}
    alone = len(result.findings) == 1 and shown >= set(result.where.split(" with respect to "))
    if result.where and not alone and told.news(f"where {result.where}"):
        yield from wrapped("    where   ", result.where, most=2)
    if advice := told.advice.get(result.name):
        yield from wrapped("    try     ", advice, most=told.longest)
    if not result.causes or not told.news(f"cause {result.causes[0].message}"):
        return
    cause, *others = result.causes
    if cause.message != result.summary:
        yield from wrapped("    cause   ", cause.message, "failed", most=told.longest)
    if cause.evidence:
        yield from wrapped("            ", cause.evidence, "dim", most=2)
    if others:
        yield from wrapped("    or      ", "; ".join(other.name for other in others), "dim", most=1)
    if cause.advice:
        yield from wrapped("    try     ", cause.advice, most=told.longest)


def tables(result: CheckResult) -> dict[tuple[str, str], list[Statistic]]:
    """The statistics of each array against each oracle."""
    found: dict[tuple[str, str], list[Statistic]] = {}
    for each in result.statistics:
        found.setdefault((each.oracle, each.array), []).append(each)
    return found


def _statistics(result: CheckResult) -> Iterator[Line]:
    """One line per array: each statistic beside what is allowed, in units of eps.

    Of an array that is off a finding says as much.
    """
    if result.findings:
        return
    found = tables(result)
    for (_, array), rows in list(found.items())[:SHOWN_ARRAYS]:
        cells = ", ".join(f"{row.name} {row.value:.2g} of {row.allowed:.2g}" for row in rows)
        yield from wrapped("    ", f"{array}, in eps: {cells}", "dim")
    if (more := len(found) - SHOWN_ARRAYS) > 0:
        arrays = "array" if more == 1 else "arrays"
        yield (Span(f"    ... and {more:,} more {arrays} in statistics", "dim"),)


def _kinks(result: CheckResult, told: Told) -> Iterator[Line]:
    """Entries without a derivative, but for those that a finding, or another check, tells of."""
    found = {finding.message for finding in result.findings}
    kinks = [kink for kink in result.kinks if kink.message not in found]
    fresh = [kink for kink in kinks if told.news(kink.message)]
    most = 1 if result.findings else SHOWN_KINKS
    for kink in fresh[:most]:
        yield from wrapped("    ", kink.message)
    if (more := len(fresh) - most) > 0:
        yield (Span(f"    ... and {more:,} more without a derivative", "dim"),)


# What to look at next where no cause is named: from the checks that failed and the place.


def advised(report: Report) -> dict[str, str]:
    """Advice by check: on the first that failed, where it has no cause; else on what is open."""
    first = next((each for each in report.checks if each.verdict is Verdict.FAILED), None)
    if first is None:
        return {each.name: _REFERENCE for each in report.checks if _wants_reference(each)}
    if first.causes:
        return {}
    return {first.name: _next_step(first, report.checks)}


_REFERENCE = (
    "pass reference=, a function with the same value in plain operations of any framework: its "
    "derivative in float64 is measured, and the claims are held against that"
)


def _wants_reference(result: CheckResult) -> bool:
    """Whether a mode is open for want of an oracle; the ones there are were not believed."""
    found = row(result.name)
    open_ = result.verdict is Verdict.INCONCLUSIVE and "; not " in result.oracle
    return open_ and found is not None and _is_mode(found) and "reference" not in result.oracle


def _next_step(result: CheckResult, checks: Collection[CheckResult]) -> str:
    """Advice for a check of a report that failed without a cause; "" where there is none."""
    kinds = {one.kind for one in result.findings}
    if kinds == {"primal"}:
        return "compare what the forward of the rule returns with the function itself"
    if kinds == {"raised"}:
        return (
            "call it by hand, with the same inputs: the traceback names the line, or look at the "
            "shapes that it returns"
        )
    found = row(result.name)
    if found is None or found.advice or not _is_mode(found):
        return found.advice if found else ""
    if result.kinks:
        return "choose a point beside the kink, or claim a slope between the two"
    if result.statistics:
        return (
            "run the formula of the oracle in this precision, operation by operation: rounding "
            "alone leaves less than this"
        )
    return f"{_of_modes(result, checks)}{_of_place(result)}"


def _is_mode(check: Check) -> bool:
    """Whether it measures the function's own derivative by one mode."""
    return check.derivative and check.order == 1


def _of_modes(result: CheckResult, checks: Collection[CheckResult]) -> str:
    """What the other mode says."""
    verdicts = {check.name: check.verdict for check in checks}
    for other in filter(_is_mode, TABLE):
        if other.name != result.name and verdicts.get(other.name) is Verdict.PASSED:
            return f"{other.name} mode is right here: compare the two formulas, "
        if other.name != result.name and verdicts.get(other.name) is Verdict.FAILED:
            return "both modes are wrong: look at what they share, such as saved values, "
    return "compare the formula with the function, "


def _of_place(result: CheckResult) -> str:
    where = result.where
    if where.startswith("only where"):
        return "in the branch that these values take"
    if "the last" in where or "the first" in where:
        return "at the ends: a loop, a mask or a block size that does not divide the size"
    if "diagonal" in where:
        return "in what depends on the position: a causal mask, an index of row against column"
    if len(result.findings) == 1:
        return "for this one entry, by hand: print what is read and written for it"
    if where and where != "everywhere":
        return "for these entries: what is read and written for them and for no others"
    return "term by term, on a case of two or three entries"
