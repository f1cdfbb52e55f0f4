"""The backward, forward mode, and derivatives of derivatives against differences."""

from __future__ import annotations

from gradproof._checks.derivatives import (
    other_gradient_findings,
)
from gradproof._compare.claims import Mode
from gradproof._data.evidence import EvidenceElsewhere
from gradproof._data.records import CheckResult, Verdict
from gradproof._low_precision.combine import mode_result
from gradproof._measurements import Measurements

_LISTED = 3  # names in a note


def check(measurements: Measurements) -> CheckResult:
    """J^T v as claimed by the backward has the entries that differences measure."""
    return _mode_check("backward", measurements, "backward")


def check_forward(measurements: Measurements) -> CheckResult:
    """J u as claimed by forward mode has the entries that differences measure."""
    return _mode_check("forward", measurements, "forward")


def check_second_order(measurements: Measurements) -> CheckResult:
    """The double backward has the entries that differences of the backward measure.

    With `create_graph=True` a backward may also give another gradient than without; that fails too.
    """
    name = "second_order"
    derivative = measurements.derivative("backward")
    found = _mode_check(name, derivative, "backward")
    if found.verdict is Verdict.PASSED and (others := other_gradient_findings(measurements, name)):
        text = "the gradient that is differentiated is another than the backward's"
        return CheckResult(name, Verdict.FAILED, text, others)
    return found


def check_pair(name: str, measurements: Measurements) -> CheckResult:
    """One mode of the other has the entries that differences of that other one measure."""
    differentiated, mode = PAIRS[name]
    return _mode_check(name, measurements.derivative(differentiated), mode)


def check_third(measurements: Measurements) -> CheckResult:
    """The backward of the double backward has the entries that differences of it measure."""
    third = measurements.derivative("backward").derivative("backward")
    return _mode_check("third_order", third, "backward")


# Check of a pair of modes -> the mode that is differentiated, and the one that differentiates it.
PAIRS: dict[str, tuple[Mode, Mode]] = {
    "second_order": ("backward", "backward"),
    "forward_over_reverse": ("backward", "forward"),
    "reverse_over_forward": ("forward", "backward"),
    "forward_over_forward": ("forward", "forward"),
}


def _mode_check(name: str, measurements: Measurements, mode: Mode) -> CheckResult:
    """The result of one mode, as a check of this name; its evidence has the map's own spaces."""
    map_, settings = measurements.map, measurements.settings
    shared = measurements.is_double and not settings.asks_reference_only
    shared = shared and bool(map_.domain.size and map_.codomain.size)
    found = mode_result(
        map_,
        settings,
        mode,
        check=name,
        users_reference=measurements.reference,
        function=measurements.function if shared else None,
        gradient=measurements.gradient(0) if shared and mode == "backward" else None,
        slopes=measurements.slopes if shared else None,
    )
    notes = found.notes
    if found.findings and (names := map_.carried_arrays()):
        notes += (_carried_note(names),)
    summary = found.summary
    if found.verdict is Verdict.INCONCLUSIVE and measurements.randomness:
        summary = measurements.randomness
    return CheckResult(
        name,
        found.verdict,
        summary,
        findings=found.findings,
        resolution=found.bound,
        notes=notes,
        kinks=found.kinks,
        oracle=found.reference,
        statistics=found.statistics,
        evidence=None if found.block is None else _evidence_of(measurements, found.block),
    )


def _evidence_of(measurements: Measurements, block: object) -> EvidenceElsewhere:
    map_ = measurements.map
    return EvidenceElsewhere(
        block, map_.domain, map_.codomain, map_.given_point, measurements.function.centre
    )


def _carried_note(names: tuple[str, ...]) -> str:
    """That the value depends on arrays that calls write into, such as buffers of a module."""
    return (
        f"each call writes into {' and '.join(names[:_LISTED])}, on which the next value depends: "
        "what is computed for them counts; if no gradient is meant to go there, check the function "
        "where it leaves them alone, as a module does after eval()"
    )
