"""The result of one mode: from differences of F, and from references where these do not decide.

Below double precision, differences of F resolve little. The claims are then held against a
reference in double precision: the function under test on float64 arrays, or the user's. Its own
derivative is first verified by differences. Differences in few bits are asked last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradproof._compare.comparison import comparison_of
from gradproof._compare.conclude import point_result
from gradproof._data.formats import DOUBLE, FORMATS, SINGLE
from gradproof._data.records import Verdict
from gradproof._data.results import MeasuredBlock, PointResult, inconclusive_point
from gradproof._data.space import root_mean_square
from gradproof._low_precision.references import Reference, find_references
from gradproof._low_precision.rounding_result import rounding_result
from gradproof._low_precision.rounding_runs import ClaimedBesideExact, ModeBesideReference
from gradproof._low_precision.rounding_tests import array_deviations
from gradproof._maps.contract import BudgetSpent, DifferentiableMap, Mode, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import neighbouring_point, unit_vector

_FEW_PRODUCTS = 128  # unit vectors, that entries are asked with once the claims are refuted
_SOME_PRODUCTS = 24  # of more unit vectors
_MOST_OUTPUTS = 8  # that are asked one by one
_LONGEST_PRODUCT = 1 << 16  # entries of each
_ENTRY_ERRORS = 32.0  # roundings that an entry may be off by, beside entries of the usual size
_HONEST_ERRORS = 8.0  # of honest runs, likewise


def mode_result(
    measurements: Measurements, mode: Mode, check: str, *, quick: bool = False
) -> PointResult:
    """What is found of the Jacobian that one mode claims.

    Args:
        measurements: of the function at its point.
        mode: "backward" or "forward".
        check: name of the check, for findings.
        quick: whether one tangent is enough for differences that agree: see `point_result`.

    Raises:
        Unsupported: the map has no such mode.
    """
    with np.errstate(all="ignore"):
        if measurements.settings.asks_reference_only or not measurements.is_double:
            return _result_against_references(measurements, mode, check, quick=quick)
        found = point_result(comparison_of(measurements, mode, check), quick=quick)
        if found.verdict is not Verdict.PASSED and (few := measurements.in_few_bits) is not None:
            return _result_against_references(few, mode, check, quick=quick)
        if measurements.reference is None:
            return found
        if found.verdict is Verdict.INCONCLUSIVE:
            return _result_against_references(measurements, mode, check, found)
        if found.verdict is Verdict.FAILED:
            return found.with_notes(
                "the reference was not asked, since differences refute the claims: with "
                "trusted=True it is the definition of the derivative"
            )
        return found


def _result_against_references(
    measurements: Measurements,
    mode: Mode,
    check: str,
    native: PointResult | None = None,
    *,
    quick: bool = False,
) -> PointResult:
    """The answer of the first reference that decides, those of full precision first.

    A later one settles what an earlier one leaves open only by agreeing with the claims.
    """
    settings, found = measurements.settings, None
    usable, refused = find_references(measurements)
    for reference in sorted(usable, key=lambda each: each.coarsest_unit):
        if found is not None and reference.coarsest_unit >= DOUBLE:
            continue  # what computes in few bits inside is no witness beside a better one
        try:
            with users_errors():
                answer = _answer_of(measurements, reference, mode, check, quick=quick)
        except Unsupported:
            if reference.is_own:
                raise
            products = measurements.forward if mode == "forward" else measurements.backward
            products.ask(np.zeros(products.probe_space.size))  # raises if the map has no such mode
            answer = f"it has no {mode} mode"
        except UsersError as error:
            answer = f"its derivative raised {error}"
        if isinstance(answer, str):
            refused.append(f"{reference.name}: {answer}")
        elif found is None or answer.verdict is Verdict.PASSED:
            found = answer
        if found is not None and found.verdict is not Verdict.INCONCLUSIVE:
            break
    if found is not None:
        return replace(found, refused=tuple(refused))
    if native is not None:
        return native
    if settings.asks_reference_only or "native" not in settings.references:
        reasons = "; ".join(refused) or "no reference was given"
        return inconclusive_point(f"there is no reference to hold it against: {reasons}")
    found = point_result(comparison_of(measurements, mode, check))
    name = "differences in the precision of the arrays"
    return replace(found, reference=name, refused=tuple(refused))


def _answer_of(
    measurements: Measurements, reference: Reference, mode: Mode, check: str, *, quick: bool
) -> PointResult | str:
    """What a reference says of its own derivative and of the claims; or why it is not believed."""
    settings, exact = measurements.settings, reference.measurements
    formula = PointResult(Verdict.PASSED, "right by definition", bound=0.0)
    if not settings.trusted:
        formula = _formula_result(exact, mode, check, quick=quick)
        if formula.verdict is Verdict.FAILED and not reference.is_own:
            return (
                f"it fails its own check: {formula.summary} (trusted=True where its derivative is "
                "a definition)"
            )
    is_coarse = reference.is_own and reference.coarsest_unit > SINGLE
    if is_coarse and formula.verdict is not Verdict.PASSED:
        return f"it computes in few bits there, where it is not decided: {formula.summary}"
    sides, claims, reason = _explained_claims(measurements, reference, mode, check)
    if reason:
        return reason
    if formula.verdict is Verdict.FAILED:
        if claims.verdict is Verdict.FAILED:
            return "what is claimed there is another derivative, and wrong"
        text = f"the formula is wrong, as {reference.name} shows: {formula.summary}"
        return replace(formula, summary=text, reference=reference.name)
    if claims.verdict is Verdict.FAILED:
        at_kinks = formula.kinks and not reference.is_own
        if at_kinks and _agrees_beside(measurements, reference, mode, check):
            text = (
                f"{claims.summary}, but right beside the point: {reference.name} has kinks there, "
                "and claims may follow another convention"
            )
            return replace(claims, verdict=Verdict.INCONCLUSIVE, summary=text, findings=())
        block = _measured_entries(measurements.map, exact.map, mode, sides)
        return replace(claims, block=block)
    verdict = claims.verdict
    text = f"{formula.summary}, against {reference.name}; {claims.summary}"
    if formula.verdict is Verdict.INCONCLUSIVE:
        verdict, text = formula.verdict, f"{reference.name}: {formula.summary}"
    elif verdict is Verdict.INCONCLUSIVE:
        text = claims.summary
    return replace(
        formula,
        verdict=verdict,
        summary=text,
        bound=float(np.nanmax([claims.bound, formula.bound])),
        statistics=claims.statistics,
        reference=reference.name,
        notes=(*formula.notes, *claims.notes),
    )


def _explained_claims(
    measurements: Measurements, reference: Reference, mode: Mode, check: str
) -> tuple[ClaimedBesideExact, PointResult, str]:
    """The claims beside the first explanation of their errors that suffices, or beside the last.

    What is right of all outputs together is asked of each alone as well: the rounding of one hides
    another whose gradient is small, as that of an auxiliary loss beside the output of a layer.

    Returns:
        The claims with that explanation; the result; and that F has another value than the
        reference, "" if it has not.
    """
    sides, claims, reason = _claims_of_outputs(measurements, reference, mode, check, None)
    slots = measurements.map.codomain.slots
    outputs = [k for k, slot in enumerate(slots) if slot.size and not slot.detached]
    is_right = claims.verdict is Verdict.PASSED and not reason
    if mode == "backward" and len(outputs) > 1 and is_right:
        for k in outputs[:_MOST_OUTPUTS]:
            alone, of_one, _ = _claims_of_outputs(measurements, reference, mode, check, k)
            if of_one.verdict is Verdict.FAILED:
                text = f"{of_one.summary}, of {slots[k].name} alone"
                return alone, replace(of_one, summary=text), ""
    return sides, claims, reason


def _agrees_beside(
    measurements: Measurements, reference: Reference, mode: Mode, check: str
) -> bool:
    """Whether claims agree with a reference at a point beside this one, away from its kinks."""
    map_, settings = measurements.map, measurements.settings
    x = neighbouring_point(map_.domain, map_.point, measurements.scales, settings.seed, 0)
    try:
        with users_errors():
            near = Measurements(map_.map_at(x), settings)
            exact = Measurements(reference.measurements.map.map_at(x), settings)
            other = replace(reference, measurements=exact)
            _, claims, reason = _explained_claims(near, other, mode, check)
    except (Unsupported, UsersError):
        return False
    return claims.verdict is Verdict.PASSED and not reason


def _claims_of_outputs(
    measurements: Measurements, reference: Reference, mode: Mode, check: str, output: int | None
) -> tuple[ClaimedBesideExact, PointResult, str]:
    """The same of all outputs together, or of a single one."""
    exact_map = reference.measurements.map
    beside = ModeBesideReference(measurements, exact_map, mode, reference.is_own, output)
    tolerance, noun = measurements.settings.slack, "gradient" if mode == "backward" else "tangent"
    words = {"reference": reference.name, "noun": noun, "check": check}
    for sides in beside.explanations():
        arrays = list(array_deviations(sides, tolerance, until_doubt=True))
        if all(array.is_right for array in arrays):
            claims, reason = rounding_result(sides, arrays, **words), beside.other_value(sides)
            if claims.verdict is Verdict.PASSED and not reason:
                return sides, claims, reason
    arrays = list(array_deviations(sides, tolerance))
    return sides, rounding_result(sides, arrays, **words), beside.other_value(sides)


def _measured_entries(
    map_: DifferentiableMap, reference: DifferentiableMap, mode: Mode, sides: ClaimedBesideExact
) -> MeasuredBlock | None:
    """Entries of the Jacobian, for causes that products with random vectors do not show.

    They are J^T e, or J e, of every unit vector; of some, evenly spaced, where these are many. None
    where they are not to be had.
    """
    shape = (map_.codomain.size, map_.domain.size)
    count, other = shape if mode == "backward" else shape[::-1]
    chosen = np.arange(count)
    if count > _FEW_PRODUCTS:
        chosen = np.linspace(0, count - 1, _SOME_PRODUCTS).astype(int)
    if other > _LONGEST_PRODUCT:
        return None
    vectors, is_forward = np.stack([unit_vector(count, int(k)) for k in chosen]), mode == "forward"
    try:
        claimed, exact = (
            np.asarray(each.products(vectors, forward=is_forward)) for each in (map_, reference)
        )
    except (Exception, BudgetSpent):  # the verdict is known, and this only its explanation
        return None
    rows, columns = chosen, np.arange(other)
    if is_forward:
        claimed, exact, rows, columns = claimed.T, exact.T, columns, rows
    honest = root_mean_square(sides.errors) / max(root_mean_square(sides.exact), 1e-300)
    part = max(_ENTRY_ERRORS * sides.grain.unit, _HONEST_ERRORS * honest)
    error = part * (np.abs(exact) + root_mean_square(exact))
    return MeasuredBlock(
        rows=rows,
        columns=columns,
        claimed=claimed,
        measured=exact,
        error=error,
        allowed=error,
        wrong=~(np.abs(claimed - exact) <= error),
        whole=len(chosen) == count,
    )


def _formula_result(exact: Measurements, mode: Mode, check: str, *, quick: bool) -> PointResult:
    """What differences say of the derivative of a reference in float64.

    A kernel may keep sums, and what it saves for its backward, in float32 whatever its arrays are.
    So what is wrong is asked again as if claims were rounded in float32, and stands if it is wrong
    even so.
    """
    comparison = comparison_of(exact, mode, check)
    found = point_result(comparison, quick=quick)
    if quick and found.verdict is not Verdict.PASSED:
        found = point_result(comparison)
    if found.verdict is not Verdict.FAILED:
        return found
    other = point_result(comparison_of(exact, mode, check, FORMATS["float32"].unit))
    if other.verdict is Verdict.FAILED:
        return other
    if found.block is not None and comparison.unit < DOUBLE:
        # The rounding of large columns hides small ones, which are asked by themselves.
        columns = found.block.columns[found.block.wrong.any(axis=0)]
        small = np.isin(np.arange(comparison.inputs), columns)
        cancelled = comparison_of(exact, mode, check, SINGLE / 2)
        alone = replace(cancelled, u=np.where(small, cancelled.u, 0.0))
        if point_result(alone).verdict is Verdict.FAILED:
            text = f"{found.summary}, unless it rounds as in float32 inside"
            return found if _is_exact(found.block) else inconclusive_point(text)
    return other.with_notes(
        "in float64 the claims are off by no more than rounding in float32 inside would explain"
    )


def _is_exact(block: MeasuredBlock) -> bool:
    """Whether the right entries that are known best agree to more digits than float32 has."""
    digits = 2.0**-27 * np.abs(block.measured)
    known = ~block.wrong & (block.error < digits)
    return bool(known.sum() > 2 and (np.abs(block.claimed - block.measured) < digits)[known].all())
