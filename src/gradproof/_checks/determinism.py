"""The same cotangent gives the same gradient, every time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradproof._checks.agreement import differing_entries
from gradproof._checks.derivatives import OTHER_GRADIENT, other_gradient_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding, digits
from gradproof._data.space import Mask, Values
from gradproof._measurements import Measurements

_NAME, _SAME = "determinism", "two backwards give the same gradient"
_RUNS, _LARGE = 4, 1 << 17  # further backwards, and entries from which there is one only


@dataclass(frozen=True)
class NotRepeated:
    """Evidence: a backward that gave more than one gradient for one cotangent.

    Attributes:
        gradients: (n,) each, in the order of the runs; other cotangents were asked for after the
            first.
    """

    gradients: tuple[Values, ...]


def check(measurements: Measurements) -> CheckResult:
    """Several backwards of one cotangent agree, also one that is made to be differentiated."""
    settings, map_ = measurements.settings, measurements.map
    first, v = measurements.gradient(0), measurements.cotangent(0)
    runs = 1 if map_.domain.size + map_.codomain.size > _LARGE else _RUNS
    later = tuple(map_.vjp(v) for _ in range(runs))
    for second in later:
        wrong = differing_entries(settings, first, second)
        if wrong.any():
            evidence = NotRepeated((first, *later))
            finding = _worst_finding(measurements, first, second, wrong)
            summary = f"{int(wrong.sum()):,} entries of the gradient differ"
            notes = _notes(measurements)
            return failed_check(_NAME, summary, (finding,), notes=notes, evidence=evidence)
    if findings := other_gradient_findings(measurements, _NAME):
        return failed_check(_NAME, OTHER_GRADIENT, findings, notes=_notes(measurements))
    return passed_check(_NAME, _SAME, notes=_notes(measurements))


def _worst_finding(
    measurements: Measurements, first: Values, second: Values, wrong: Mask
) -> Finding:
    gap = np.where(wrong, np.nan_to_num(np.abs(second - first), nan=np.inf), -1.0)
    worst = int(np.argmax(gap))
    place = measurements.map.domain.locate(worst)
    numbers = float(second[worst]), float(first[worst])
    settings = measurements.settings
    largest = float(np.max(np.abs(first), initial=0.0, where=np.isfinite(first)))
    allowed = settings.nondeterminism + settings.relative_nondeterminism * largest
    shown = digits(*numbers)
    message = (
        f"gradient of {place}: another backward of the same cotangent against the first: got "
        f"{numbers[0]:.{shown}g}, expected {numbers[1]:.{shown}g}; the gap is "
        f"{abs(numbers[0] - numbers[1]):.3g}, allowed {allowed:.2g}"
    )
    return Finding(_NAME, message, "nondeterministic", place, None, *numbers, 0.0, allowed)


def _notes(measurements: Measurements) -> tuple[str, ...]:
    function = measurements.function
    if function.repeats:
        return ()
    varies = float(function.jitter.max())
    return (f"the function's value varies by {varies:.1g} between runs",)
