"""What to look at next where no cause is named: from the checks that failed and the place."""

from __future__ import annotations

from collections.abc import Collection

from gradproof._data.records import CheckResult, Report, Verdict

_BY_CHECK = {
    "linearity": "call the backward twice by hand, with v and with 2 v: everything it returns has "
    "to double",
    "layout": "make the array contiguous at the start of the function or of its backward; if that "
    "mends it, an index there ignores strides",
    "determinism": "run it twice by hand with the same numbers and compare, buffer by buffer",
    "hygiene": "look for operations in place: on the inputs, on the cotangent, on what is saved",
    "undefined": "call the backward with None, or zeros, for one output at a time",
    "batched": "compare vmap with a loop for a batch of one: look for shapes and axes taken as "
    "fixed",
    "second_order": "the first derivative is judged by its own check: differentiate the backward's "
    "formula, term by term, with respect to the input and to the cotangent",
    "sparse": "compare the positions of the gradient's entries with those of the input",
}
_SAME_AS = {
    "batched_forward": "batched",
    "forward_over_reverse": "second_order",
    "reverse_over_forward": "second_order",
    "forward_over_forward": "second_order",
    "third_order": "second_order",
    "second_linearity": "linearity",
}
_MODES = "backward", "forward"


def next_step(result: CheckResult, checks: Collection[CheckResult]) -> str:
    """Advice for a check that failed without a cause; "" where there is none to give.

    Args:
        result: the check.
        checks: all of its report.
    """
    if result.verdict is not Verdict.FAILED or result.causes:
        return ""
    if result.findings and all(finding.kind == "raised" for finding in result.findings):
        return "call it by hand, with the same inputs: the traceback names the line"
    if result.name not in _MODES:
        return _BY_CHECK.get(_SAME_AS.get(result.name, result.name), "")
    if result.kinks:
        return "choose a point beside the kink, or claim a slope between the two"
    if result.statistics:
        return (
            "run the same formula in float32, operation by operation: rounding alone leaves less "
            "than this"
        )
    return f"{_of_modes(result, checks)}{_of_place(result)}"


def advised(report: Report) -> dict[str, str]:
    """Advice by check: on the first that failed, where no failed one has a cause."""
    failed = [result for result in report.checks if result.verdict is Verdict.FAILED]
    if not failed or any(result.causes for result in failed):
        return {}
    return {failed[0].name: next_step(failed[0], report.checks)}


def _of_modes(result: CheckResult, checks: Collection[CheckResult]) -> str:
    """What the other mode says."""
    other = _MODES[result.name == _MODES[0]]
    verdicts = {check.name: check.verdict for check in checks}
    if verdicts.get(other) is Verdict.PASSED:
        return f"{other} mode is right here: compare the two formulas, "
    if verdicts.get(other) is Verdict.FAILED:
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
