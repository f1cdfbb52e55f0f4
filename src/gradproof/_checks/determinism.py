"""The same cotangent gives the same gradient, every time."""

from __future__ import annotations

import numpy as np

from gradproof._checks.agreement import repeat_findings, tolerated_repeat_gap, vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import KEPT
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements

_NAME = "determinism"
_RUNS = 4  # further backwards; one where vectors are long


def check(measurements: Measurements) -> CheckResult:
    """Several backwards of one cotangent agree, also one that is made to be differentiated."""
    map_, first = measurements.map, measurements.gradient
    notes = (measurements.randomness,) if measurements.randomness else ()
    runs = 1 if map_.domain.size + map_.codomain.size > KEPT else _RUNS
    later = [map_.vjp(measurements.cotangent) for _ in range(runs)]
    for second in later:
        if findings := repeat_findings(_NAME, measurements, second):
            text = "another backward of the same cotangent gives another gradient"
            return failed_check(_NAME, text, findings, notes=notes)
    if findings := recorded_gradient_findings(_NAME, measurements):
        text = "what is differentiated is another gradient than the backward's"
        return failed_check(_NAME, text, findings, notes=notes)
    gap = max(float(np.fmax.reduce(np.abs(second - first), initial=0.0)) for second in later)
    summary = "two backwards give the same gradient"
    if gap > 0:
        allowed = tolerated_repeat_gap(measurements.settings, first)
        summary = f"backwards differ by up to {gap:.1g}; allowed {allowed:.1g}"
    return passed_check(_NAME, summary, notes=notes)


def recorded_gradient_findings(check: str, measurements: Measurements) -> tuple[Finding, ...]:
    """Where a gradient that is made to be differentiated is not the one of the plain backward.

    A backward may have two ways: a kernel, and operations where a graph of it is wanted. Nothing is
    found where the backward cannot be differentiated: that is no fault.
    """
    try:
        with users_errors():
            expected = measurements.gradient
            _, got = measurements.transposed_products
    except (Unsupported, UsersError):
        return ()
    what = "made to be differentiated again, against the backward's"
    return vector_findings(check, measurements.backward, got, expected, what)
