"""What to try next where a check failed, or is open, and no cause is named."""

from __future__ import annotations

import math

from gradproof._data.checks import TABLE, row_of_check
from gradproof._data.records import CheckResult, Report, Verdict, round_up

# Part of the summary of a check that is open -> what to try; the first that fits.
_OF_OPEN = {
    "budget": "",  # the summary says which option to raise
    "no output with a derivative": "return an array of floating numbers that depends on the inputs",
    "choose a point where it does": "",  # likewise
    "nothing was tested": "choose a point where the function varies",
    "no finite value": "choose a point where the function has a finite value",
    "rounding is as large": "choose inputs at which less cancels, or a format of more bits",
    "about as much as rounding": "try another seed and larger inputs, or a format of more bits",
    "could not be resolved": (
        "choose a point where the function is smooth, a few times larger or smaller inputs, or "
        "pass reference=, a function with the same value in plain operations"
    ),
}
_OPEN = (
    "try another seed and another point, or pass reference=, a function with the same value in "
    "plain operations"
)
# Where no reference was believed.
_REFERENCE = (
    "pass reference=, a function with the same value in plain operations of the same framework: "
    "its derivative in float64 is measured, and the claims are held against that"
)
# Kind of all findings of a check -> what to try.
_OF_KIND = {
    "primal": "compare what the forward of the rule returns with the function itself",
    "raised": (
        "call it by hand, with the same inputs: the traceback names the line, or look at the "
        "shapes that it returns"
    ),
    "unsupported": (
        'leave this mode out, by modes=["rev"] in JAX or check_forward_ad=False in PyTorch, or '
        "give the function a rule for it"
    ),
}
_NARROW = 1e-3  # of the largest entry: so small a gap may be meant
_ROOM = 4.0  # times such a gap is tolerated: at other points it may be larger
_MODES = tuple(each.name for each in TABLE if each.derivative and each.order == 1)


def advice_by_check(report: Report) -> dict[str, str]:
    """Advice on the first check that failed, where no cause is named; else on those open."""
    first = next((each for each in report.checks if each.verdict is Verdict.FAILED), None)
    if first is None:
        opened = [each for each in report.checks if each.verdict is Verdict.INCONCLUSIVE]
        return {each.name: _advice_on_open(each) for each in opened}
    has_raised = any(finding.kind == "raised" for finding in first.findings)
    if first.causes or (not has_raised and any(each.causes for each in report.checks)):
        return {}
    return {first.name: _advice(first, report)}


def _advice_on_open(result: CheckResult) -> str:
    """What to try where a check could not decide."""
    # No reference was believed, and the user gave none.
    is_given = any("reference" in each for each in (result.reference, *result.refused))
    if result.refused and not is_given and result.name in _MODES:
        return _REFERENCE
    return next((text for part, text in _OF_OPEN.items() if part in result.summary), _OPEN)


def _advice(result: CheckResult, report: Report) -> str:
    """Advice on a check that failed without a cause; "" where there is none."""
    kinds = {finding.kind for finding in result.findings}
    if len(kinds) == 1 and (advice := _OF_KIND.get(min(kinds))):
        return advice
    found = row_of_check(result.name)
    if found is None or found.advice or found.name not in (*_MODES, "second_point"):
        return found.advice if found else ""
    if result.kinks or "kink" in kinds:
        return "claim a slope between the two; at a point beside the kink this mistake may not show"
    if result.statistics:
        return (
            "run the formula of the reference in this precision, operation by operation: rounding "
            "alone leaves less than this"
        )
    gap = max([finding.gap for finding in result.findings], default=math.nan)
    size = max([abs(finding.measured) for finding in result.findings], default=math.nan)
    if 0 < gap <= _NARROW * size:
        rtol, atol = (f"{round_up(_ROOM * each):.0e}" for each in (gap / size, gap))
        return (
            f"no gap is above {round_up(gap / size):.0e} of the largest entry: if a solver stops "
            f"at a tolerance on purpose, pass rtol={rtol}, atol={atol}; else compare formula and "
            "function, term by term"
        )
    if found.name not in _MODES:
        return ""
    others = {each.verdict: each.name for each in report.checks if each.name in _MODES}
    if Verdict.PASSED in others:
        how = f"{others[Verdict.PASSED]} mode is right here: compare the two formulas"
    elif others[Verdict.FAILED] != result.name:
        how = "both modes are wrong: look at what they share, such as saved values"
    else:
        how = "compare the formula with the function"
    return f"{how}, term by term, on the smallest case that fails"
