"""Two vectors that must be the same: two claims of J^T v, or of J u, or two values of F.

They may differ by rounding, and by what the user tolerates; two backwards of one cotangent only by
the latter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.records import Finding, digits_of_gap
from gradproof._data.settings import RunSettings
from gradproof._data.space import Mask, Space, Values, are_equal, finite_values
from gradproof._measurements import ClaimedProducts, Measurements

_MOST_FINDINGS = 3  # of one comparison
_OF_LARGEST = 1e-10  # of the largest entry of the array, that a sum in another order may be off by
ULPS_OF_VALUE = 64.0  # of F, that a derivative in which everything cancels may be off by
_FEW_ULPS = 4.0  # the same in 16 bits, where 64 would be a part of F that matters


def vector_findings(
    check: str,
    products: ClaimedProducts,
    got: Values,
    expected: Values,
    what: str,
    *,
    terms: Iterable[Values] = (),
    kind: str = "",
    rounding: Callable[[], Values] | None = None,
    is_tolerant: bool = True,
) -> tuple[Finding, ...]:
    """Findings for the entries in which a product is not what it should be, largest gap first.

    Allowed are half the digits of the terms that are added up, a few units in the last place of F
    per unit of the input, what the user tolerates and, measured only where there is a gap, what
    rounding does to the claim. Entries of `expected` that are not finite are not judged.

    Args:
        check: name of the check.
        products: of the mode and the map whose products are compared.
        got: the product under test, (n,), or (m,) of forward mode.
        expected: what it should be.
        what: how `got` was made, for the message.
        terms: vectors whose sizes together bound the rounding of `got`; `expected` where empty.
        kind: of the findings; the name of the check where it is "".
        rounding: measures what rounding does besides to `got`, where it is not `expected`.
        is_tolerant: whether what the user tolerates is allowed.
    """
    if are_equal(got, expected):
        return ()
    size = np.zeros_like(expected)
    for term in terms or (expected,):
        size += finite_values(np.abs(term))
    allowed = _allowed_gap(products, size)
    if is_tolerant:
        settings = products.measurements.settings
        allowed += settings.atol + settings.slack * size
    wrong = _disagreements(products.space, got, expected, size, allowed)
    if wrong.any():  # what the cheapest measurement of rounding explains needs no other one
        explained = allowed + products.rounding_by_factors
        wrong &= _disagreements(products.space, got, expected, size, explained)
    for further_rounding in (lambda: products.rounding, rounding):
        if further_rounding is not None and wrong.any():
            allowed += further_rounding()
            wrong &= _disagreements(products.space, got, expected, size, allowed)
    noun, space = products.product_name, products.space
    return _gap_findings(check, kind or check, noun, what, space, wrong, got, expected, allowed)


def value_findings(
    check: str, measurements: Measurements, got: Values, what: str, kind: str
) -> tuple[Finding, ...]:
    """Findings for the outputs in which a value is not F at the point, largest gap first.

    Allowed are half its digits, what the user tolerates and what the value varies by from run to
    run. Outputs that are not finite at the point are not judged.
    """
    function, space = measurements.function, measurements.map.codomain
    expected = function.centre
    if are_equal(got, expected) or np.array_equal(got, expected, equal_nan=True):
        return ()
    if got.shape != expected.shape:
        return (Finding(check, f"other outputs: {what}", kind),)
    size = np.nan_to_num(np.abs(expected), posinf=0.0) + measurements.largest_value
    unit = measurements.arithmetic_unit
    allowed = math.sqrt(unit) * size + measurements.settings.atol + 8 * function.jitter
    wrong = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
    if wrong.any():  # what is left of terms that cancel is rounding, as differences show
        slopes = measurements.slopes
        allowed += 16 * np.nan_to_num(slopes.noise)
        if not (slopes.size > slopes.bar).any():  # F is nothing else, of terms as large as inputs
            largest = float(np.abs(measurements.map.point).max(initial=0.0))
            allowed += ULPS_OF_VALUE * unit * largest
        wrong &= ~(np.abs(got - expected) <= allowed)
    return _gap_findings(check, kind, "value", what, space, wrong, got, expected, allowed)


def _gap_findings(
    check: str,
    kind: str,
    noun: str,
    what: str,
    space: Space,
    wrong: Mask,
    got: Values,
    expected: Values,
    allowed: Values,
) -> tuple[Finding, ...]:
    """Findings that entries of one vector are not those of another, largest gap first.

    The vectors are a "gradient", a "tangent" or a "value", as `noun` says, and `what` says how
    `got` was made. The gap of an entry that is `wrong` is larger than is `allowed` of it.
    """
    entries = wrong.nonzero()[0]
    if not entries.size:
        return ()
    gap = np.nan_to_num(np.abs(got - expected)[entries], nan=np.inf, posinf=np.inf)
    findings = []
    for j in map(int, entries[np.argsort(-gap, kind="stable")[:_MOST_FINDINGS]]):
        claimed, measured, bound = float(got[j]), float(expected[j]), float(allowed[j])
        shown, place = digits_of_gap(claimed, measured), space.locate(j)
        message = (
            f"{noun} of {place}: {what}: got {claimed:.{shown}g}, expected {measured:.{shown}g}; "
            f"the gap is {abs(claimed - measured):.3g}, allowed {bound:.2g}"
        )
        findings.append(
            Finding(
                check,
                message,
                kind,
                input=place if noun == "gradient" else None,
                output=None if noun == "gradient" else place,
                claimed=claimed,
                measured=measured,
                error=0.0,
                allowed=bound,
            )
        )
    return tuple(findings)


def _allowed_gap(products: ClaimedProducts, size: Values) -> Values:
    """What two claims of a vector may differ by, by rounding.

    `size` is that of the terms that are added up in each entry.
    """
    measurements = products.measurements
    unit = measurements.arithmetic_unit
    allowed = math.sqrt(unit) * size
    ulps = (ULPS_OF_VALUE if unit < SINGLE else _FEW_ULPS) * unit * measurements.largest_value
    if products.is_forward:  # entries of J u are rounded by each other
        allowed += math.sqrt(unit) * float(np.sqrt(np.mean(size**2))) if size.size else 0.0
        allowed += ulps
    else:
        for position, slot in enumerate(products.space.slots):
            if slot.size:
                span = products.space.span(position)
                allowed[span] += _OF_LARGEST * float(size[span].max())
        if unit < DOUBLE:  # in few bits the rounding of the claim is measured
            allowed += ulps / measurements.scales
    return np.asarray(allowed)


def _disagreements(
    space: Space, got: Values, expected: Values, size: Values, allowed: Values
) -> Mask:
    """Mask of the entries that differ by more than is allowed.

    Beyond the largest number of its format an entry has no right value, nor where a part of what is
    added up may be beyond it.
    """
    wrong = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
    if wrong.any():
        for position, slot in enumerate(space.slots):
            span, largest = space.span(position), slot.grain.largest
            wrong[span] &= np.abs(expected[span]) <= largest / 2
            wrong[span] &= ~np.isinf(got[span]) | (8 * size[span] <= largest)
    return np.asarray(wrong)


def repeat_findings(check: str, measurements: Measurements, again: Values) -> tuple[Finding, ...]:
    """Findings for the entries in which another backward of the cotangent differs from the first.

    There are none where they are the same up to what the user tolerates. Where both are NaN, or
    infinite likewise, they are the same.
    """
    first, space = measurements.gradient, measurements.map.domain
    if are_equal(first, again):
        return ()
    same = (first == again) | (np.isnan(first) & np.isnan(again))
    tolerated = tolerated_repeat_gap(measurements.settings, first)
    wrong = ~same & ~(np.abs(again - first) <= tolerated)
    what = "another backward of the same cotangent against the first"
    kind, noun, allowed = "nondeterministic", "gradient", np.full_like(first, tolerated)
    return _gap_findings(check, kind, noun, what, space, wrong, again, first, allowed)


def tolerated_repeat_gap(settings: RunSettings, first: Values) -> float:
    """By how much the user lets two backwards of one cotangent differ."""
    largest = float(np.max(np.abs(first), initial=0.0, where=np.isfinite(first)))
    return settings.nondeterminism + settings.relative_nondeterminism * largest


def gradient_repeats(measurements: Measurements) -> bool:
    """Whether two further backwards of the cotangent give the same gradient, up to rounding.

    A gradient that is another one in every run differs in every comparison, whatever that is about.
    """
    products = measurements.backward
    first, again = (products.ask(products.probe) for _ in range(2))
    return not vector_findings("", products, again, first, "")
