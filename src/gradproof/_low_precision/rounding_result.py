"""What the deviations of all arrays say together: a verdict, findings and statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gradproof._data.records import Finding, Statistic, Verdict
from gradproof._data.results import PointResult
from gradproof._low_precision.rounding_runs import ClaimedBesideExact
from gradproof._low_precision.rounding_tests import ArrayDeviations

_BLIND = 0.5  # part of a derivative: honest rounding that large tells nothing smaller


def rounding_result(
    sides: ClaimedBesideExact,
    arrays: Sequence[ArrayDeviations],
    *,
    reference: str,
    noun: str,
    check: str,
) -> PointResult:
    """Whether claims agree with those of a reference, as far as rounding goes.

    Args:
        sides: what was claimed and is exact.
        arrays: their deviations.
        reference: its name.
        noun: what is claimed, "gradient", "tangent" or "value".
        check: name of the check, for findings.
    """
    slots, eps = sides.space.slots, 2 * sides.grain.unit
    statistics = tuple(
        Statistic(reference, slots[array.slot].name, e.name, e.value / eps, e.allowed / eps, eps)
        for array in arrays
        for e in array.deviations
    )
    # Of arrays that drown in honest rounding nothing is known: others give the resolution.
    known = [array.resolution for array in arrays if math.isfinite(array.resolution)]
    resolution = max(known, default=0.0)
    notes = [
        f"{array.left_out} of {slots[array.slot].size} entries of {slots[array.slot].name} are "
        "beyond the format's numbers"
        for array in arrays
        if array.left_out
    ]
    notes += [sides.note] if sides.note else []
    if sides.why_no_runs:
        notes.append(
            f"operations cannot be rounded one by one ({sides.why_no_runs}): what is allowed is "
            "the rounding of the format"
        )
    found = PointResult(
        Verdict.PASSED,
        f"the claims agree with it to {resolution:.0e}",
        bound=resolution,
        statistics=statistics,
        reference=reference,
    ).with_notes(*notes)
    if wrong := [array for array in arrays if array.is_wrong]:
        count = f"{len(wrong)} array{'s' if wrong[1:] else ''}"
        text = f"{count} off by more than rounding explains, against {reference}"
        findings = tuple(_finding(sides, array, reference, noun, check) for array in wrong)
        return replace(found, verdict=Verdict.FAILED, summary=text, findings=findings)
    if doubtful := [slots[array.slot].name for array in arrays if not array.is_right]:
        text = f"{doubtful[0]} is off by about as much as rounding explains, against {reference}"
        return replace(found, verdict=Verdict.INCONCLUSIVE, summary=text)
    if arrays and all(array.resolution > _BLIND for array in arrays):
        name = slots[arrays[0].slot].name
        text = f"honest rounding is as large as the derivative itself ({name})"
        return replace(found, verdict=Verdict.INCONCLUSIVE, summary=text)
    return found


def _finding(
    sides: ClaimedBesideExact, array: ArrayDeviations, reference: str, noun: str, check: str
) -> Finding:
    """The largest deviation of one array, in words, with the entry that is most off."""
    slot, span = sides.space.slots[array.slot], sides.space.span(array.slot)
    wrong = sorted(
        (each for each in array.deviations if each.is_wrong),
        key=lambda each: -each.value / max(each.allowed, 1e-300),
    )
    got, exact = sides.got[:, span], sides.exact[:, span]
    largest = int(np.argmax(np.nan_to_num(np.abs(got - exact))))
    probe, k = wrong[0].entry or divmod(largest, got.shape[1])
    place = slot.place(int(k), array.slot)
    claimed, expected = float(got[probe, k]), float(exact[probe, k])
    others = ", ".join(each.name for each in wrong[1:3])
    message = (
        f"{noun} of {place if wrong[0].entry else slot.name} against {reference}: {wrong[0].name} "
        f"off by {wrong[0].value:.3g}, rounding explains {wrong[0].allowed:.2g}"
        f"{f'; also {others}' if others else ''}; {place} claimed {claimed:.6g}, exact "
        f"{expected:.6g}"
    )
    return Finding(
        check,
        message,
        "precision",
        input=place if noun == "gradient" else None,
        output=None if noun == "gradient" else place,
        claimed=claimed,
        measured=expected,
        error=0.0,
        allowed=wrong[0].allowed,
    )
