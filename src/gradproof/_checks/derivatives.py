"""Whether the gradient that is differentiated is the one that the plain backward gives."""

from __future__ import annotations

from gradproof._checks.agreement import vector_findings
from gradproof._data.records import Finding
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements
from gradproof.errors import UsageError

OTHER_GRADIENT = "what is differentiated is another gradient than the backward's"


def other_gradient_findings(
    measurements: Measurements, check: str, derivative: Measurements | None = None
) -> tuple[Finding, ...]:
    """Where a gradient that is made to be differentiated is not the one of the plain backward.

    A backward may have two ways: a kernel, and operations where a graph of it is wanted. Nothing is
    found where the backward cannot be differentiated: that is no fault.

    Args:
        measurements: of the map.
        check: name of the check, for the findings.
        derivative: of the map (x, v) -> J(x)^T v, where it is known: its value is then compared,
            of the same function on float64 arrays where that is what was differentiated.
    """
    try:
        if derivative is None:
            u, v = measurements.tangent(0), measurements.cotangent(0)
            _, got = measurements.map.transposed_vjp(u, v)
        else:
            measurements, got = measurements.double, derivative.map.kept_value()
    except (UsageError, MemoryError):
        raise
    except Exception:  # Unsupported, or what a user's backward raises when it is differentiated
        return ()
    try:
        expected = measurements.gradient(0)
    except Unsupported:  # a second derivative by hand, without a first one
        return ()
    if got.shape != expected.shape:  # an input has no gradient at all
        return ()
    what = "made to be differentiated again, against the backward's"
    return vector_findings(check, measurements, got, expected, what)
