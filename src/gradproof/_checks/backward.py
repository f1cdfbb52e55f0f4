"""The backward, forward mode, and derivatives of derivatives against differences.

Rows of the report that are measured: `backward`, `forward`, `second_order` and the other pairs of
modes, `third_order`. Each is one mode of one map; the map of a second derivative is (x, v) ->
J(x)^T v, or (x, u) -> J(x) u.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from gradproof._checks import conclude_check
from gradproof._checks.determinism import recorded_gradient_findings
from gradproof._checks.outcome import evidence_of_block, failed_check
from gradproof._data.checks import TABLE
from gradproof._data.records import CheckResult, Verdict
from gradproof._data.visible import short_list
from gradproof._low_precision.combine import mode_result
from gradproof._maps.contract import Mode, Unsupported
from gradproof._measurements import Measurements

# What is asked of a double backward beside its entries.
_OF_A_BACKWARD = (
    "linearity",
    "memory_layout",
    "grad_metadata",
    "missing_grad_output",
    "determinism",
    "side_effects",
)
# Check of a pair of modes -> the mode that is differentiated, and the one that differentiates it.
_PAIRS: dict[str, tuple[Mode, Mode]] = {
    "forward_over_reverse": ("backward", "forward"),
    "reverse_over_forward": ("forward", "backward"),
    "forward_over_forward": ("forward", "forward"),
}


def check(measurements: Measurements) -> CheckResult:
    """J^T v as claimed by the backward has the entries that differences measure."""
    return _measured_check("backward", measurements, "backward")


def check_forward(measurements: Measurements) -> CheckResult:
    """J u as claimed by forward mode has the entries that differences measure."""
    return _measured_check("forward", measurements, "forward")


def check_second_order(measurements: Measurements) -> CheckResult:
    """The double backward has the entries that differences of the backward measure.

    With `create_graph=True` a backward may also give another gradient than without; that fails too.
    So does a double backward that fails what else is asked of a backward.
    """
    name, derivative = "second_order", measurements.derivative("backward")
    result = _measured_check(name, derivative, "backward")
    if result.verdict is not Verdict.PASSED:
        return result
    if findings := recorded_gradient_findings(name, measurements):
        text = "the gradient that is differentiated is another than the backward's"
        return failed_check(name, text, findings)
    for row in TABLE:
        if row.name in _OF_A_BACKWARD:
            with contextlib.suppress(Unsupported):
                found = conclude_check(row, derivative)
                if found.verdict is Verdict.FAILED:
                    text = f"{row.name} of the double backward: {found.summary}"
                    findings = tuple([replace(each, check=name) for each in found.findings])
                    return replace(found, name=name, summary=text, findings=findings)
    return result


def check_pair(name: str, measurements: Measurements) -> CheckResult:
    """One mode of the other has the entries that differences of that other one measure."""
    differentiated, mode = _PAIRS[name]
    return _measured_check(name, measurements.derivative(differentiated), mode)


def check_third(measurements: Measurements) -> CheckResult:
    """The backward of the double backward has the entries that differences of it measure."""
    third = measurements.derivative("backward").derivative("backward")
    return _measured_check("third_order", third, "backward")


def _measured_check(name: str, measurements: Measurements, mode: Mode) -> CheckResult:
    """The result of one mode, as a check of this name; its evidence has the map's own spaces."""
    result = mode_result(measurements, mode, name)
    notes, summary = result.notes, result.summary
    if result.findings and (names := measurements.map.carried_arrays()):
        notes += (_note_of_carried_arrays(names),)
    if result.verdict is Verdict.INCONCLUSIVE and measurements.randomness:
        summary = measurements.randomness
    return CheckResult(
        name,
        result.verdict,
        summary,
        findings=result.findings,
        resolution=result.bound,
        notes=notes,
        kinks=result.kinks,
        reference=result.reference,
        refused=result.refused,
        statistics=result.statistics,
        evidence=evidence_of_block(measurements, result.block),
    )


def _note_of_carried_arrays(names: tuple[str, ...]) -> str:
    """That the value depends on arrays that calls write into, such as buffers of a module."""
    return (
        f"each call writes into {short_list(names)}, on which the next value depends: "
        "what is computed for them counts; if no gradient is meant to go there, check the function "
        "where it leaves them alone, as a module does after eval()"
    )
