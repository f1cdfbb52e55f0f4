"""What second derivatives must obey, whatever their values: symmetry, linearity, one value.

Nothing is measured by differences. With a and b tangents, v a cotangent and D^2 F[a, b] the second
derivative of F along both, v . D^2 F[a, b] is one number, however it is computed: reverse over
reverse and forward over reverse give H a with H the Hessian of <v, F>, reverse over forward gives
H a from J a, forward over forward gives D^2 F[a, b] itself. It is symmetric in a and b, and linear
in v.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from gradproof._checks.agreement import identity_finding, vector_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.exceptions import short_line
from gradproof._data.formats import DOUBLE
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import Values
from gradproof._maps.contract import Unsupported
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import round_to_formats

_A, _B = 4.0, -1.0  # weights, whose sum is not 1
_ROUNDINGS = 64.0  # second derivatives are made of first ones, and these of values

_WORDS = {
    "second_order": "reverse over reverse",
    "forward_over_reverse": "forward over reverse",
    "reverse_over_forward": "reverse over forward",
    "forward_over_forward": "forward over forward",
}


def check_symmetry(measurements: Measurements) -> CheckResult:
    """<b, H a> = <a, H b>, H from the double backward."""
    name = "symmetry"
    exact = _measurements_in_double(measurements)
    derivative = _aligned_derivative(exact)
    a, b, inputs = exact.tangent(0), exact.tangent(1), exact.map.domain.size
    of_a, of_b = (derivative.map.vjp(each)[:inputs] for each in (a, b))
    left, right = float(b @ of_a), float(a @ of_b)
    _require_numbers((left, right))
    allowed = _allowance(exact, np.linalg.norm(b * of_a) + np.linalg.norm(a * of_b))
    if abs(left - right) <= allowed:
        return passed_check(name, "the Hessian of the double backward is symmetric")
    message = (
        f"the Hessian H of <v, F> is not symmetric: <b, H a> is {left:.6g}, <a, H b> is {right:.6g}"
    )
    finding = identity_finding(name, (left, right), allowed, message)
    return failed_check(
        name, "the double backward claims a Hessian that is not symmetric", (finding,)
    )


def check_linearity(measurements: Measurements) -> CheckResult:
    """The double backward is linear in both of its cotangents: v, and that of J^T v."""
    name, exact = "second_linearity", _measurements_in_double(measurements)
    findings = (*_findings_in_second_cotangent(exact), *_findings_in_first_cotangent(exact))
    if not findings:
        return passed_check(name, "the double backward is linear in both cotangents")
    return failed_check(name, "the double backward is not linear in its cotangents", findings)


def _findings_in_second_cotangent(exact: Measurements) -> tuple[Finding, ...]:
    """Where the double backward, with v as it is, is not linear in w, the cotangent of J^T v."""
    derivative = exact.derivative("backward")
    w, other = derivative.cotangent(0), derivative.cotangent(1)
    got = derivative.map.vjp(_A * w + _B * other)
    claimed = derivative.gradient(0), derivative.map.vjp(other)
    return _linearity_findings(derivative, exact, got, claimed, "its cotangent")


def _findings_in_first_cotangent(exact: Measurements) -> tuple[Finding, ...]:
    """Where the part of the double backward that is x's, with w as it is, is not linear in v."""
    derivative, inputs = exact.derivative("backward"), exact.map.domain.size
    w = derivative.cotangent(0)

    def part_of_x(gradient: Values) -> Values:
        found = np.zeros(derivative.map.domain.size)
        found[:inputs] = gradient[:inputs]
        return found

    def claim_at_cotangent(v: Values) -> Values:
        at_v = exact.map.derivative(v)
        # Where some gradient is None the derivative of the backward has other coordinates.
        has_w = at_v.codomain.size == w.size
        return part_of_x(at_v.vjp(w) if has_w else np.zeros(inputs))

    v, other = (round_to_formats(exact.map.codomain, exact.cotangent(k)) for k in (0, 1))
    got = claim_at_cotangent(_A * v + _B * other)
    claimed = part_of_x(derivative.gradient(0)), claim_at_cotangent(other)
    return _linearity_findings(derivative, exact, got, claimed, "the cotangent of the backward")


def _linearity_findings(
    derivative: Measurements,
    exact: Measurements,
    got: Values,
    claimed: tuple[Values, Values],
    which: str,
) -> tuple[Finding, ...]:
    """Findings where what is got for 4 v - w is not 4 and -1 times what is claimed of v and w."""
    terms = (_A * claimed[0], _B * claimed[1])
    # In units of each entry: a derivative of the gradient may be zero by cancellation.
    value = np.abs(exact.cotangent(0) * _finite_value(exact)).max(initial=0.0)
    floor = _ROUNDINGS * _ROUNDINGS * exact.unit * value
    return vector_findings(
        "second_linearity",
        derivative,
        got,
        terms[0] + terms[1],
        f"double backward of 4 v - w, in {which}, against 4 and -1 times those of v and w",
        terms=terms,
        kind="linearity",
        tolerance=floor / (derivative.scales * derivative.scales.max(initial=1e-300)),
    )


def check_pairs(measurements: Measurements) -> CheckResult:
    """The number v . D^2 F[a, b] is the same in every pair of modes there is."""
    name, exact = "pairs", _measurements_in_double(measurements)
    numbers: dict[str, float] = {}
    size, reasons = 0.0, list[str]()
    for pair, words in _WORDS.items():
        try:
            numbers[pair], terms = _second_derivative(pair, exact)
        except Unsupported as missing:
            reasons.append(f"{words}: {missing.reason}")
            continue
        size = max(size, terms)
    if len(numbers) < 2:
        raise Unsupported(short_line(f"fewer than two pairs of modes exist; {reasons[0]}"))
    _require_numbers(numbers.values())
    allowed = _allowance(exact, size)
    if max(numbers.values()) - min(numbers.values()) <= allowed:
        named = ", ".join(_WORDS[pair] for pair in numbers)
        return passed_check(
            name, f"one second derivative in {len(numbers)} pairs of modes: {named}"
        )
    finding = _finding_of_odd_pair(name, numbers, allowed)
    return failed_check(name, "pairs of modes claim different second derivatives", (finding,))


def _second_derivative(pair: str, exact: Measurements) -> tuple[float, float]:
    """What a pair of modes makes of v . D^2 F[a, b], and the size of its terms."""
    a, b = round_to_formats(exact.map.domain, exact.tangent(0)), exact.tangent(1)
    inputs = exact.map.domain.size
    if pair in ("second_order", "forward_over_reverse"):
        derivative, moved, held = _aligned_derivative(exact), a, b  # J^T v moves along a
    else:
        derivative, moved = exact.derivative("forward"), b  # J a moves along b
        held = round_to_formats(exact.map.codomain, exact.cotangent(0))
        if derivative.map.codomain.size != exact.map.codomain.size:
            raise Unsupported("an output has no tangent at all")
    if pair.startswith("forward"):
        still = np.zeros(derivative.map.domain.size - inputs)  # what J is multiplied with
        found, other = derivative.map.jvp(np.concatenate([moved, still])), held
    else:
        found, other = derivative.map.vjp(held)[:inputs], moved
    return float(found @ other), float(np.linalg.norm(found * other))


def _aligned_derivative(measurements: Measurements) -> Measurements:
    """Those of (x, v) -> J(x)^T v, where its value has the coordinates of x."""
    derivative = measurements.derivative("backward")
    if derivative.map.codomain.size != measurements.map.domain.size:
        raise Unsupported("an input has no gradient at all")
    return derivative


def _measurements_in_double(measurements: Measurements) -> Measurements:
    """Those of the same function on float64 arrays.

    Raises:
        Unsupported: there is none, or it computes in fewer bits there.
    """
    exact = measurements.double
    if exact.arithmetic_unit >= DOUBLE:
        raise Unsupported("too few bits for an identity of second derivatives")
    return exact


def _require_numbers(found: Iterable[float]) -> None:
    """Unsupported where no pair claims a number: the checks that measure have more to say of that.

    Where some do, those that do not disagree with them.
    """
    if not any(math.isfinite(number) for number in found):
        raise Unsupported("the second derivative is claimed to be no number here")


def _allowance(exact: Measurements, size: float) -> float:
    """Rounding of v . D^2 F[a, b], whose factors are of this size, as tangents are scaled to x."""
    value = float(np.linalg.norm(exact.cotangent(0) * _finite_value(exact)))
    return _ROUNDINGS * (math.sqrt(exact.unit) * float(size) + _ROUNDINGS * exact.unit * value)


def _finite_value(measurements: Measurements) -> Values:
    value = measurements.function.centre
    return np.where(np.isfinite(value), value, 0.0)


def _finding_of_odd_pair(name: str, numbers: Mapping[str, float], allowed: float) -> Finding:
    """Which pair is the odd one out, where there is one."""
    ordered = sorted(numbers.values())
    middle = ordered[len(ordered) // 2] if len(ordered) > 2 else next(iter(numbers.values()))
    odd = max(numbers, key=lambda pair: abs(numbers[pair] - middle))
    each = ", ".join(f"{_WORDS[pair]} {number:.6g}" for pair, number in numbers.items())
    message = f"v . D^2 F[a, b] is not one number: {each}"
    return identity_finding(name, (numbers[odd], middle), allowed, message)
