"""Reports in one line each, and many of them in one line."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gradproof._data.records import NOT_ASKED, Report, Verdict, round_up
from gradproof._data.visible import escape_invisible

_MUCH_COARSER = 100.0  # times the usual error bar
ORDERS = {"second_order": "second", "third_order": "third"}  # checks that a user asks for, by order


def headline(report: Report) -> str:
    """What decided the verdict: `pick: backward: 1 of 24 entries wrong`."""
    return " ".join(escape_invisible(f"{report.target}: {deciding_text(report)}").split())


def deciding_text(report: Report) -> str:
    """What decided the verdict, without the function's name: `backward: 1 of 24 entries wrong`."""
    for result in report.checks:
        if result.verdict is report.verdict:
            return f"{result.name}: {result.summary}"
    return "nothing was checked"


def unverified_text(report: Report) -> str:
    """What of a report that passed was asked for and not tested; "" where nothing was."""
    found = [
        ORDERS[result.name]
        for result in report.checks
        if result.name in ORDERS
        and result.verdict is Verdict.SKIPPED
        and not result.summary.startswith(NOT_ASKED)
    ]
    if not found or report.verdict is not Verdict.PASSED:
        return ""
    return f"{' and '.join(found)} order not verified"


def result_text(report: Report) -> str:
    """What to say of a report beside its verdict: what decided it, or what a pass left out."""
    is_passed = report.verdict is Verdict.PASSED
    return unverified_text(report) if is_passed else deciding_text(report)


def resolution(report: Report) -> float:
    """The largest relative error bar of its checks; NaN where none measured anything."""
    measured = [r.resolution for r in report.checks if not math.isnan(r.resolution)]
    return max(measured, default=math.nan)


def shown_verdict(verdict: Verdict) -> str:
    """The word of a verdict, in capitals where it is the one to look at."""
    return verdict.upper() if verdict is Verdict.FAILED else verdict.value


def bound_text(bar: float) -> str:
    """`2e-09`, rounded up; "" where nothing was measured, or nothing of single entries is known."""
    return f"{round_up(bar):.0e}" if 0 < bar < 1 else ""


def tally(verdicts: Iterable[tuple[Verdict, float]]) -> str:
    """Reports, each with its resolution: `12 derivatives verified to 1e-09, 1 failed`.

    Where one is much coarser than most, both are told: `to 1e-09, the coarsest to 2e-02`.
    """
    rows = list(verdicts)
    passed = [bar for verdict, bar in rows if verdict is Verdict.PASSED]
    coarse = sum(bar >= 1 for bar in passed)
    noun = "derivative" if len(passed) == 1 else "derivatives"
    fine = sorted(bar for bar in passed if bar < 1) or [math.nan]
    usual, worst = bound_text(fine[len(fine) // 2]), bound_text(fine[-1])
    if fine[-1] > _MUCH_COARSER * fine[len(fine) // 2]:
        worst = f"{usual}, the coarsest to {worst}"
    parts = [f"{len(passed)} {noun} verified{worst and f' to {worst}'}"]
    parts[0] += f" ({coarse:,} along random directions only)" if coarse else ""
    for word in (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.SKIPPED):
        if count := sum(verdict is word for verdict, _ in rows):
            parts.append(f"{count} {word}")
    return ", ".join(parts)
