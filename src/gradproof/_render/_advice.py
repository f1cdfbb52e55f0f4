"""What to look at next where no cause is named: from the checks that failed and the place."""

from __future__ import annotations

from collections.abc import Collection

from gradproof._data.checks import TABLE, Check, row
from gradproof._data.records import CheckResult, Report, Verdict


def advised(report: Report) -> dict[str, str]:
    """Advice by check: on the first that failed, where it has no cause."""
    first = next((each for each in report.checks if each.verdict is Verdict.FAILED), None)
    if first is None or first.causes:
        return {}
    return {first.name: _next_step(first, report.checks)}


def _next_step(result: CheckResult, checks: Collection[CheckResult]) -> str:
    """Advice for a check of a report that failed without a cause; "" where there is none."""
    if result.findings and all(one.kind == "raised" for one in result.findings):
        return "call it by hand, with the same inputs: the traceback names the line"
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
    """What the place suggests."""
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
