"""From a comparison to a result: screen, entries or bisection, neighbours, other points.

A claim fails if it is wrong in all of these, as far as they apply, in this order:

1. along a first tangent, with finer steps if need be: `first_screen`;
2. along a tangent that moves each input by parts of its own size: `_result_in_own_scales`;
3. beside the noise that runs with rounded operations show: `_result_of_doubtful_screen`, which
   leaves open what a function in double precision that computes in few bits inside claims;
4. entry by entry, up to `full_jacobian` inputs: `entries_result`; else beside slopes nearby where
   there are kinks, and in ever fewer rows and columns: `localized_result`.

What is not wrong, but at a kink, fails if it is wrong at a neighbouring point.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gradproof._compare.comparison import (
    Comparison,
    comparison_of,
    entry_finding,
    verified_text,
)
from gradproof._compare.entries import (
    entries_result,
    open_outputs_text,
    rounding_of_runs,
)
from gradproof._compare.localize import localized_result
from gradproof._compare.nonsmooth import slopes_with_neighbours, width_beyond_sample
from gradproof._compare.screen import (
    Screen,
    are_as_good_as_zero,
    first_screen,
    ill_scaled_columns,
    is_open_by_noise,
    screen_along,
    terms_of_columns,
)
from gradproof._compare.tolerances import bound_of_entry
from gradproof._data.formats import DOUBLE, SINGLE
from gradproof._data.records import Finding, Verdict
from gradproof._data.results import PointResult, count_of, inconclusive_point, passed_point
from gradproof._data.space import root_mean_square
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import neighbouring_point
from gradproof._numdiff.slopes import ROUGH_ULPS
from gradproof.errors import UsageError

WITHOUT_ENTRIES = "nothing to check: no input or no output has an entry"
_BETWEEN = "claims lie between the one-sided slopes"
_NEIGHBOURS, _NEIGHBOURS_TRIED = 2, 8


def point_result(comparison: Comparison, *, quick: bool = False) -> PointResult:
    """What differences of F say of the claims: at the point, and beside it where F is not smooth.

    Args:
        comparison: of one mode.
        quick: whether one tangent is enough: what is wrong along it fails without a place, what is
            open stays open, and ill-scaled inputs are not asked again.
    """
    found = result_at_point(comparison, quick=quick)
    if found.kinks and found.verdict is not Verdict.FAILED:
        where = f"at {count_of(len(found.kinks))}"
        if comparison.settings.other_inputs:
            return _result_with_neighbours(comparison, found, where)
        return found.with_notes(f"not differentiable {where}; {_BETWEEN}")
    return found


@np.errstate(all="ignore")
def result_at_point(comparison: Comparison, *, quick: bool = False) -> PointResult:
    """What differences of F say of the claims at the point alone."""
    if not comparison.inputs or not comparison.outputs:
        return _result_without_entries(comparison)
    if not np.isfinite(comparison.function.centre).any():
        return _result_without_values(comparison)
    if quick:
        screen = screen_along(comparison, comparison.u)
        if screen.decisions.wrong.any():
            return PointResult(Verdict.FAILED, "wrong along a tangent")
        if screen.decisions.open.any() and not screen.is_flat:
            return inconclusive_point("not resolved along a tangent")
    else:
        screen = first_screen(comparison)
    is_doubtful = not (screen.is_flat or screen.decisions.are_all_right)
    # Of many inputs what is wrong is located at once.
    is_doubtful &= comparison.can_measure_every_entry or not screen.decisions.wrong.any()
    found = _result_in_own_scales(comparison, screen, quick=quick) if is_doubtful else None
    return found or _result_of_screen(comparison, screen, quick=quick)


def _result_in_own_scales(
    comparison: Comparison, screen: Screen, *, quick: bool
) -> PointResult | None:
    """What is found where each input is moved by parts of its own size.

    None where that leaves something open, or does not see what is wrong by the usual steps: columns
    of inputs that are tiny by chance.
    """
    if (own := comparison.in_own_scales()) is None:
        return None
    other = first_screen(own)
    if other.is_flat or other.decisions.open.any():
        return None
    result = _result_of_screen(own, other, quick=quick)
    if result.verdict is Verdict.FAILED or not screen.decisions.wrong.any():
        return result
    # A hundredth of what an untested column adds to v.F is less than the screen allows.
    terms, allowed = terms_of_columns(own), other.decisions.allowed
    if other.claimed is not None:
        allowed = allowed * np.abs(own.claim.v)
    untested = terms is None or own.resolution.of_entry * terms <= allowed.max(initial=0.0)
    along = np.where(untested, comparison.u, 0.0)
    is_wrong = other.decisions.wrong.any() or (
        along.any() and screen_along(comparison, along).decisions.wrong.any()
    )
    return None if is_wrong else result


def _result_of_screen(comparison: Comparison, screen: Screen, *, quick: bool) -> PointResult:
    """What the first tangent, and further measurements where it leaves a doubt, say."""
    decisions = screen.decisions
    if screen.is_flat:
        return _flat_result(comparison, screen, is_point_enough=quick)
    if not decisions.are_all_right:
        return _result_of_doubtful_screen(comparison, screen)
    found, untested = (None, 0) if quick else _result_of_ill_scaled(comparison, screen)
    if found is not None:
        return found
    bound = bound_of_entry(decisions.bound, comparison.inputs)
    # Sums over outputs, in 16 bits, never show a single entry of one.
    is_blunt = not bound < 1 or (screen.claimed is None and comparison.unit > SINGLE)
    if is_blunt and comparison.unit >= DOUBLE and not quick:
        if comparison.can_measure_every_entry:
            return entries_result(comparison, screen)
        return inconclusive_point(
            f"the slopes of the {comparison.jacobian_text} along random directions are right, but "
            "known too roughly to show one wrong entry: pass reference=, or check fewer inputs"
        )
    notes = []
    if comparison.map.derived and screen.claimed is not None and not screen.claimed.any():
        notes.append("zero, claimed and measured: a point where it is not tests more")
    if untested:
        inputs = count_of(untested, "input", "inputs")
        notes.append(f"the derivatives of {inputs} are below the rounding of F: not tested")
        if untested == np.count_nonzero(comparison.u):
            if (own := comparison.in_own_scales()) is not None:
                return result_at_point(own)
            return inconclusive_point(notes[0])
    return passed_point(verified_text(comparison, bound), bound).with_notes(*notes)


def _result_of_ill_scaled(comparison: Comparison, screen: Screen) -> tuple[PointResult | None, int]:
    """What columns show by themselves that drown in the error bars of the screen.

    Returns:
        The result where something is wrong or open; and the number of columns that stay below the
        rounding of F, also where tiny inputs are moved like zeros.
    """
    wrong, untested = ill_scaled_columns(comparison, screen)
    if wrong is not None:
        found = _result_of_doubtful_screen(comparison, wrong)
        is_open = found.verdict is Verdict.INCONCLUSIVE
        is_zero = are_as_good_as_zero(comparison, wrong.u != 0)
        return (None if is_open and is_zero else found), 0
    larger = comparison.in_scales_of_zeros(untested) if untested.any() else None
    if larger is not None:
        again = screen_along(larger, np.where(untested, larger.u, 0.0))
        if again.decisions.are_all_right:
            return None, 0
        # Unless F is another one there, the formula is wrong where they are not tiny too.
        beside = _neighbour_results(larger) if again.decisions.wrong.any() else []
        if beside and beside[-1].verdict is Verdict.FAILED:
            return _result_of_doubtful_screen(larger, again), 0
    return None, 0 if are_as_good_as_zero(comparison, untested) else int(untested.sum())


def _result_of_doubtful_screen(comparison: Comparison, screen: Screen) -> PointResult:
    """Where the screen shows something wrong or open: entries, or bisection, decide."""
    measurements = comparison.measurements
    if measurements.is_double and measurements.in_few_bits is not None:
        return inconclusive_point("the function computes in few bits inside")  # a reference decides
    by_plain_difference = comparison.settings.classic_step and comparison.can_measure_every_entry
    if not by_plain_difference:
        has_jitter = comparison.function is not measurements.function
        is_noise = is_open_by_noise(comparison, screen.slopes, screen.decisions)
        if screen.claimed is not None and (is_noise or _is_rough(comparison, screen)):
            # Of terms that cancel only the rounding is left, which runs in fewer bits show.
            none = np.zeros(comparison.outputs)
            jitter = 4 * rounding_of_runs(comparison, screen.claimed, screen.u, none)[1]
            comparison = replace(comparison, function=comparison.function.with_jitter(jitter))
            screen = screen_along(comparison, screen.u)
            if screen.decisions.are_all_right and not has_jitter:
                return result_at_point(comparison)
        if is_open_by_noise(comparison, screen.slopes, screen.decisions):
            rows, bound = np.flatnonzero(screen.decisions.open), screen.decisions.bound
            return inconclusive_point(
                f"{open_outputs_text(comparison, rows, bound)}: F is too rough, or too flat beside "
                "its rounding; where terms cancel, check the function before they are added"
            )
    if comparison.can_measure_every_entry:
        return entries_result(comparison, screen)
    screen = _screen_with_subdifferentials(comparison, screen)
    if not screen.decisions.wrong.any():
        return _result_of_open_kinks(comparison, screen)
    return localized_result(comparison, screen)


def _is_rough(comparison: Comparison, screen: Screen) -> bool:
    """Whether an output in doubt has noise of many units in the last place."""
    ulps = ROUGH_ULPS * 2 * comparison.function.unit * np.abs(comparison.function.centre)
    doubtful = screen.decisions.open | screen.decisions.wrong
    return bool((screen.slopes.noise > ulps)[doubtful].any())


def _screen_with_subdifferentials(comparison: Comparison, screen: Screen) -> Screen:
    """The screen, with wrong rows at kinks left open that slopes nearby explain.

    Of many tied numbers a claim may be any of them: see `joint_mismatch` for what is allowed.
    """
    decisions, slopes = screen.decisions, screen.slopes
    if screen.claimed is None or not (decisions.wrong.any() and (slopes.width > 0).any()):
        return screen
    wide = slopes_with_neighbours(comparison, slopes, screen.claimed, screen.u)
    explained = decisions.wrong & (wide.width > 0)
    explained &= wide.gap(screen.claimed) <= slopes.bar + width_beyond_sample(slopes, wide)
    changed = replace(
        decisions, wrong=decisions.wrong & ~explained, open=decisions.open | explained
    )
    return replace(screen, decisions=changed)


def _result_without_entries(comparison: Comparison) -> PointResult:
    """No output has an entry, or no input: every gradient of these outputs is zero."""
    if not comparison.map.codomain.slots:
        return inconclusive_point(
            "nothing was tested: the function has no output with a derivative"
        )
    gradient = comparison.claim.gradient
    if gradient is not None and gradient.any():
        j = int(np.flatnonzero(gradient)[0])
        place = comparison.map.domain.locate(j)
        text = f"outputs without entries have a gradient: {place} got {gradient[j]:.6g}, expected 0"
        return PointResult(Verdict.FAILED, text, (Finding(comparison.check, text, "entry", place),))
    return passed_point(WITHOUT_ENTRIES).with_notes(WITHOUT_ENTRIES)


def _result_without_values(comparison: Comparison) -> PointResult:
    """No output is finite: open; a claim of NaN fails where PyTorch's gradcheck is stood in for."""
    text, gradient = "the function has no finite value at the point", comparison.claim.gradient
    if gradient is None or not (comparison.settings.classic_step and np.isnan(gradient).any()):
        return inconclusive_point(text)
    column = int(np.flatnonzero(np.isnan(gradient))[0])
    finding = entry_finding(comparison, 0, column, (math.nan, math.nan, math.nan, 0.0))
    return PointResult(Verdict.FAILED, f"{text}, and NaN is claimed", (finding,))


def _flat_result(comparison: Comparison, screen: Screen, *, is_point_enough: bool) -> PointResult:
    """Nothing is claimed, and F does not vary near the point.

    That is right at this point, which is all that PyTorch's gradcheck asks. The rule was not tested
    by it, unless F is a derivative: one that does not vary is that of a linear function.
    """
    bar = float(np.max(screen.slopes.bar, initial=0.0))
    if comparison.settings.classic_step or is_point_enough:
        return passed_point("zero, claimed and measured: the function does not vary")
    size = root_mean_square(comparison.function.centre)
    if comparison.map.derived and size and bar <= comparison.settings.resolution * size:
        text = f"zero to {bar:.0e}, claimed and measured, where the derivative is {size:.2g}"
        return passed_point(text, bar / size)
    return inconclusive_point(
        f"nothing was tested: claimed and measured are both zero to {bar:.0e} and the function "
        "does not vary; choose a point where it does"
    )


def _comparison_beside(comparison: Comparison, number: int) -> Comparison | None:
    """The same comparison at a neighbouring point; None where there is none."""
    map_, claim, settings = comparison.map, comparison.claim, comparison.settings
    x = neighbouring_point(map_.domain, map_.point, comparison.scales, settings.seed, number)
    try:
        with users_errors():
            measurements = Measurements(map_.map_at(x), settings)
            return comparison_of(measurements, claim.mode, comparison.check, claim.unit)
    except (Unsupported, UsageError, UsersError):
        return None


def _neighbour_results(comparison: Comparison) -> list[PointResult]:
    """What is found at points beside this one, where ties and kinks are left behind.

    The first failure is the last of them. Points at which F has no value, beyond the border of its
    domain, are passed over, and so is what is open, or in few bits not tested.
    """
    missing, tried = int((~np.isfinite(comparison.function.centre)).sum()), 0
    found: list[PointResult] = []
    for number in range(_NEIGHBOURS_TRIED):
        near = _comparison_beside(comparison, number)
        if near is None or int((~np.isfinite(near.function.centre)).sum()) > missing:
            continue
        result = result_at_point(near, quick=True)
        if result.verdict is Verdict.FAILED:
            result = result_at_point(near)
        is_tested = near.unit < DOUBLE or not result.bound >= 1
        if result.verdict is Verdict.FAILED or (result.verdict is Verdict.PASSED and is_tested):
            found.append(result)
        if result.verdict is Verdict.FAILED or (tried := tried + 1) == _NEIGHBOURS:
            break
    return found


def _result_with_neighbours(comparison: Comparison, found: PointResult, where: str) -> PointResult:
    """The result at a point that is not smooth, with what its neighbours say of the formula.

    Claims between the slopes at a kink may be a convention while the formula beside it is wrong.
    `where` says in how many entries or outputs F is not differentiable.
    """
    beside = _neighbour_results(comparison)
    if beside and (wrong := beside[-1]).verdict is Verdict.FAILED:
        findings = tuple(
            replace(each, kind="neighbour", message=f"at a smooth neighbour: {each.message}")
            for each in wrong.findings
        )
        text = f"wrong at a smooth neighbour of the point: {wrong.summary}"
        return replace(wrong, summary=text, findings=findings, kinks=found.kinks)
    if len(beside) == _NEIGHBOURS:
        bound = float(np.nanmax([result.bound for result in (found, *beside)]))
        if found.verdict is Verdict.INCONCLUSIVE and not found.kinks:
            found = passed_point(f"{verified_text(comparison, bound)} nearby")
        note = f"not differentiable {where}; {_BETWEEN}; right at smooth neighbours"
        return replace(found, bound=bound).with_notes(note)
    note = f"not differentiable {where}; not verified at a smooth neighbour"
    if found.verdict is Verdict.PASSED and any(kink.kind != "kink" for kink in found.kinks):
        text = f"a claim where there is no slope is a convention, and {note}"
        return replace(found, verdict=Verdict.INCONCLUSIVE, summary=text)
    return found.with_notes(note)


def _result_of_open_kinks(comparison: Comparison, screen: Screen) -> PointResult:
    """Of a large Jacobian at kinks: claims lie between the slopes there, and are right nearby."""
    rows = np.flatnonzero(screen.decisions.open)
    if screen.claimed is None or not rows.size:
        return inconclusive_point("some outputs could not be resolved")
    kinked = np.isfinite(screen.slopes.bar)
    if not kinked[rows].all() or not (screen.slopes.width > 0).any():
        return inconclusive_point(open_outputs_text(comparison, rows, screen.decisions.bound))
    outputs = count_of(len(rows), "output", "outputs")
    found = inconclusive_point(f"{outputs} of {comparison.outputs:,} have kinks, here or nearby")
    return _result_with_neighbours(comparison, found, f"in {outputs}")
