"""The result of one mode: from differences of F, and from references where these do not decide.

Below double precision, differences of F resolve little. The claims are then held against a
reference in double precision: the function under test on float64 arrays, or the user's. Its own
derivative is first verified by differences. Differences in few bits are asked last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gradproof._compare.claims import Claim, Mode
from gradproof._compare.comparison import comparison_of
from gradproof._compare.conclude import point_result
from gradproof._compare.tolerances import root_mean_square
from gradproof._data.formats import DOUBLE, FORMATS, SINGLE
from gradproof._data.frames import is_our_mistake
from gradproof._data.records import Finding, Verdict
from gradproof._data.results import MeasuredBlock, PointResult, inconclusive_point
from gradproof._data.settings import RunSettings
from gradproof._data.space import Values
from gradproof._low_precision.references import (
    USERS_REFERENCE,
    Reference,
    different_value_text,
    find_references,
)
from gradproof._low_precision.rounding_runs import (
    ClaimedBesideExact,
    arithmetic_of,
    claimed_beside_exact,
    coarser_formats,
    coarsest_grain,
    products_of,
    widen_by_neighbours,
    widen_by_value_errors,
    with_honest_runs,
)
from gradproof._low_precision.rounding_tests import ArrayDeviations, array_deviations, statistics_of
from gradproof._maps.contract import BudgetSpent, DifferentiableMap, Unsupported
from gradproof._numdiff.probes import unit_vector
from gradproof._numdiff.slopes import Slopes
from gradproof._numdiff.values import FunctionValues
from gradproof.errors import UsageError

_FEW_PRODUCTS = 128  # unit vectors, that entries are asked with once the claims are refuted
_SOME_PRODUCTS = 24  # of more unit vectors
_LONGEST_PRODUCT = 1 << 16  # entries of each
_ENTRY_ERRORS = 32.0  # roundings that an entry may be off by, beside entries of the usual size
_HONEST_ERRORS = 8.0  # of honest runs, likewise
_FEW_RUNS = 2  # honest ones, that are made first
_BLIND = 0.5  # part of a derivative: honest rounding that large tells nothing smaller


@dataclass(frozen=True)
class _Answer:
    """What one reference says: of its own derivative, and of the claims."""

    reference: Reference
    formula: PointResult
    claims: PointResult | None  # None where they were not compared


def mode_result(
    map_: DifferentiableMap,
    settings: RunSettings,
    mode: Mode,
    *,
    check: str = "",
    function: FunctionValues | None = None,
    gradient: Values | None = None,
    slopes: Slopes | None = None,
    users_reference: Callable[[], DifferentiableMap] | None = None,
    quick: bool = False,
) -> PointResult:
    """What is found of the Jacobian that one mode claims.

    Args:
        map_: the function at its point.
        settings: of the run.
        mode: "backward" or "forward".
        check: name of the check, for findings; the mode where it is "".
        function, gradient, slopes: values of F, J^T v of cotangent 0 and measured slopes along
            the first tangent, where they are known.
        users_reference: makes the map of the user's reference; None without one.
        quick: whether one tangent is enough for differences that agree: see `point_result`.

    Raises:
        Unsupported: the map has no such mode.
    """
    check = check or mode
    with np.errstate(all="ignore"):
        is_double = max(map_.resolution, coarsest_grain(map_).unit) < DOUBLE
        if settings.asks_reference_only or not is_double:
            return _result_against_references(
                map_, settings, mode, check, is_double, users_reference, quick=quick
            )
        comparison = comparison_of(
            map_, settings, mode, function=function, gradient=gradient, check=check
        )
        found = point_result(comparison, slopes, quick=quick)
        if found.verdict is Verdict.INCONCLUSIVE and users_reference is not None:
            return _result_against_references(
                map_, settings, mode, check, is_double, users_reference, found
            )
        if found.verdict is Verdict.FAILED and users_reference is not None:
            note = (
                "the reference was not asked, since differences refute the claims: with "
                "trusted=True it is the definition of the derivative"
            )
            return found.with_notes(note)
        return found


def _result_against_references(
    map_: DifferentiableMap,
    settings: RunSettings,
    mode: Mode,
    check: str,
    is_double: bool,
    users_reference: Callable[[], DifferentiableMap] | None,
    native: PointResult | None = None,
    *,
    quick: bool = False,
) -> PointResult:
    usable, refused = find_references(map_, settings, is_double, users_reference)
    answers, unused = list[_Answer](), list[str]()
    # The finest first: a twin that computes in few bits inside is no witness beside a better one.
    for reference in sorted(usable, key=lambda each: each.function.coarsest_unit):
        coarse = reference.function.coarsest_unit >= DOUBLE
        if coarse and any(each.claims is not None for each in answers):
            unused.append(f"{reference.name}: it computes in fewer bits than the other")
            continue
        try:
            answer = _answer_of(map_, reference, settings, mode, check, quick=quick)
        except Unsupported:
            if reference.is_own:
                raise
            _require_mode(map_, mode)
            unused.append(f"{reference.name}: it has no {mode} mode")
            continue
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # of the user's code, which may raise anything
            if is_our_mistake(error):
                raise
            answer = f"its derivative raised {type(error).__name__}: {error}"
        if isinstance(answer, str):
            refused.append(f"{reference.name}: {answer}")
        else:
            answers.append(answer)
    if answers:
        return _combined_result(answers, refused, unused)
    if native is not None:
        return native
    if settings.asks_reference_only or "native" not in settings.references:
        reasons = "; ".join((*refused, *unused)) or "no reference was given"
        return inconclusive_point(f"there is no reference to hold it against: {reasons}")
    found = point_result(comparison_of(map_, settings, mode, check=check))
    name = "differences in the precision of the arrays"
    return replace(found, reference="; not ".join((name, *refused, *unused)))


def _require_mode(map_: DifferentiableMap, mode: Mode) -> None:
    """Raise Unsupported where the map itself has no such mode."""
    if mode == "forward":
        map_.jvp(np.zeros(map_.domain.size))
    else:
        map_.vjp(np.zeros(map_.codomain.size))


def _answer_of(
    map_: DifferentiableMap,
    reference: Reference,
    settings: RunSettings,
    mode: Mode,
    check: str,
    *,
    quick: bool,
) -> _Answer | str:
    """What a reference says, or why it is not believed."""
    formula = PointResult(Verdict.PASSED, "right by definition", bound=0.0)
    if not settings.trusted:
        formula = _formula_result(reference, settings, mode, check, quick=quick)
        if formula.verdict is Verdict.FAILED and not reference.is_own:
            return (
                f"it fails its own check: {formula.summary} (trusted=True where its derivative is "
                "a definition)"
            )
    coarse = reference.function.coarsest_unit > SINGLE
    if formula.verdict is not Verdict.PASSED and reference.is_own and coarse:
        return f"it computes in few bits there, where it is not decided: {formula.summary}"
    exact = reference.function.centre
    grain = arithmetic_of(map_, exact, settings)
    sides = claimed_beside_exact(map_, reference.map, mode, settings, grain)
    for runs in (0, _FEW_RUNS):  # what a few roundings of each result explain needs no runs
        if runs:
            sides = with_honest_runs(map_, reference.map, mode, settings, sides, runs)
        claims = _claims_result(sides, reference, settings, mode, check)
        reason = different_value_text(map_, exact, sides.value_errors, is_own=reference.is_own)
        if claims.verdict is Verdict.PASSED and not reason:
            break
    else:
        claims, sides = _claims_beside_runs(map_, reference, settings, mode, check, sides)
        reason = different_value_text(map_, exact, sides.value_errors, is_own=reference.is_own)
    if reason:
        return reason
    if formula.verdict is Verdict.FAILED:
        if claims.verdict is Verdict.FAILED:
            return "what is claimed there is another derivative, and wrong"
        return _Answer(reference, formula, None)
    if claims.verdict is Verdict.FAILED:
        entries = _measured_entries(map_, reference.map, mode, sides)
        claims = replace(claims, block=entries)
    return _Answer(reference, formula, claims)


def _claims_beside_runs(
    map_: DifferentiableMap,
    reference: Reference,
    settings: RunSettings,
    mode: Mode,
    check: str,
    sides: ClaimedBesideExact,
) -> tuple[PointResult, ClaimedBesideExact]:
    """The claims beside what honest runs, values and points nearby show of rounding."""
    exact = reference.function.centre
    sides = with_honest_runs(map_, reference.map, mode, settings, sides)
    claims = _claims_result(sides, reference, settings, mode, check)
    if claims.verdict is not Verdict.PASSED and not (settings.accumulate or settings.trusted):
        for grain in coarser_formats(map_, sides, exact):
            sides = replace(sides, grain=grain)
            sides = with_honest_runs(map_, reference.map, mode, settings, sides)
            claims = _claims_result(sides, reference, settings, mode, check)
            claims = claims.with_notes(
                f"the function computes in {-math.log2(grain.unit):.0f} bits inside, whatever "
                "the dtype of its arrays says"
            )
            if claims.verdict is Verdict.PASSED:
                break
    if claims.verdict is not Verdict.PASSED:
        wider = widen_by_value_errors(map_, sides, exact)
        if wider is not sides:
            claims = _claims_result(wider, reference, settings, mode, check)
        if claims.verdict is not Verdict.PASSED:
            wider = widen_by_neighbours(
                map_, reference.map, mode, settings, wider, is_own=reference.is_own
            )
            other = _claims_result(wider, reference, settings, mode, check)
            claims = claims if other.verdict is Verdict.FAILED else other
    return claims, sides


def _measured_entries(
    map_: DifferentiableMap,
    reference: DifferentiableMap,
    mode: Mode,
    sides: ClaimedBesideExact,
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
    vectors = [unit_vector(count, int(k)) for k in chosen]
    try:
        claimed, exact = (products_of(each, mode, vectors) for each in (map_, reference))
    except (Exception, BudgetSpent):  # the verdict is known, and this only its explanation
        return None
    rows, columns = chosen, np.arange(other)
    if mode == "forward":
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


def _formula_result(
    reference: Reference, settings: RunSettings, mode: Mode, check: str, *, quick: bool
) -> PointResult:
    """What differences say of the derivative of a reference in float64.

    A kernel may keep sums, and what it saves for its backward, in float32 whatever its arrays are.
    So what is wrong is asked again as if claims were rounded in float32, and stands if it is wrong
    even so.
    """
    usual = settings.with_precision(reference.map.resolution)
    first = comparison_of(reference.map, usual, mode, function=reference.function, check=check)
    if quick and (found := point_result(first, quick=True)).verdict is Verdict.PASSED:
        return found
    found = point_result(first)
    if found.verdict is not Verdict.FAILED:
        return found
    unit = max(first.unit, FORMATS["float32"].unit)
    single = Claim(reference.map, mode, first.claim.v, unit=unit)
    other = point_result(replace(first, claim=single))
    if other.verdict is Verdict.FAILED:
        return other
    return other.with_notes("the claims are rounded as in float32, whatever the arrays are")


def _claims_result(
    sides: ClaimedBesideExact, reference: Reference, settings: RunSettings, mode: Mode, check: str
) -> PointResult:
    """The claims in few bits against those of a reference."""
    arrays = array_deviations(sides, settings.slack)
    statistics = statistics_of(arrays, sides, reference.name)
    findings, open_ = [], []
    for array in arrays:
        bad = [each for each in array.deviations if each.is_wrong]
        if bad:
            findings.append(_finding(sides, array, reference, mode, check))
        elif any(each.is_open for each in array.deviations):
            open_.append(sides.space.slots[array.slot].name)
    resolution = max((array.resolution for array in arrays), default=0.0)
    found = PointResult(
        Verdict.PASSED, "", bound=resolution, statistics=statistics, reference=reference.name
    )
    notes = []
    for array in arrays:
        slot = sides.space.slots[array.slot]
        if array.left_out:
            lost = f"{array.left_out} of {slot.size} entries of {slot.name}"
            notes.append(f"{lost} are beyond the format's numbers")
    if sides.why_no_runs:
        notes.append(
            f"operations cannot be rounded one by one ({sides.why_no_runs}): what is allowed is "
            "the rounding of the format"
        )
    found = found.with_notes(*notes)
    if findings:
        count = f"{len(findings)} array{'s' if findings[1:] else ''}"
        text = f"{count} off by more than rounding explains, against {reference.name}"
        return replace(found, verdict=Verdict.FAILED, summary=text, findings=tuple(findings))
    if open_:
        text = f"{open_[0]} is off by about as much as rounding explains, against {reference.name}"
        return replace(found, verdict=Verdict.INCONCLUSIVE, summary=text)
    blind = [array for array in arrays if array.resolution > _BLIND]
    if blind and len(blind) == len(arrays):
        name = sides.space.slots[blind[0].slot].name
        text = f"honest rounding is as large as the derivative itself ({name})"
        return replace(found, verdict=Verdict.INCONCLUSIVE, summary=text)
    return replace(found, summary=f"the claims agree with it to {resolution:.0e}")


def _finding(
    sides: ClaimedBesideExact,
    array: ArrayDeviations,
    reference: Reference,
    mode: Mode,
    check: str,
) -> Finding:
    """The largest deviation of one array, in words, with the entry that is most off."""
    slot, span = sides.space.slots[array.slot], sides.space.span(array.slot)
    wrong = sorted(
        (each for each in array.deviations if each.is_wrong),
        key=lambda each: -each.value / max(each.allowed, 1e-300),
    )
    got, exact = sides.got[:, span], sides.exact[:, span]
    if wrong[0].entry is not None:
        probe, k = wrong[0].entry
    else:
        probe, k = divmod(int(np.argmax(np.abs(got - exact))), got.shape[1])
    place = slot.place(int(k), array.slot)
    claimed, expected = float(got[probe, k]), float(exact[probe, k])
    others = ", ".join(each.name for each in wrong[1:3])
    what = "gradient" if mode == "backward" else "tangent"
    message = (
        f"{what} of {place if wrong[0].entry else slot.name} against {reference.name}: "
        f"{wrong[0].name} off by {wrong[0].value:.3g}, rounding explains {wrong[0].allowed:.2g}"
        f"{f'; also {others}' if others else ''}; {place} claimed {claimed:.6g}, exact "
        f"{expected:.6g}"
    )
    return Finding(
        check,
        message,
        "precision",
        input=place if mode == "backward" else None,
        output=None if mode == "backward" else place,
        claimed=claimed,
        measured=expected,
        error=0.0,
        allowed=wrong[0].allowed,
    )


def _combined_result(answers: list[_Answer], refused: list[str], unused: list[str]) -> PointResult:
    """What references say together: a wrong formula first, then who disagrees with whom.

    Args:
        answers: of references that were asked.
        refused: of others, and why: if the user's is among them a pass would mean that it agreed.
        unused: of others that say nothing of this mode, and why.
    """
    users = next((reason for reason in refused if reason.startswith(USERS_REFERENCE)), "")
    suffix = "".join(f"; not {reason}" for reason in (*refused, *unused))
    for answer in answers:
        if answer.formula.verdict is Verdict.FAILED:
            text = (
                f"the formula is wrong, as {answer.reference.name} shows: {answer.formula.summary}"
            )
            return replace(answer.formula, summary=text, reference=answer.reference.name)
    compared = [(answer, answer.claims) for answer in answers if answer.claims is not None]
    against = [each for each in compared if each[1].verdict is Verdict.FAILED]
    agreeing = [each for each in compared if each[1].verdict is Verdict.PASSED]
    names = "; ".join(answer.reference.name for answer, _ in compared) + suffix
    statistics = tuple(row for _, claims in compared for row in claims.statistics)
    if against and agreeing:
        text = (
            f"{against[0][0].reference.name} is the odd one out: the claims agree with "
            f"{agreeing[0][0].reference.name} and not with it"
        )
        return replace(inconclusive_point(text), statistics=statistics, reference=names)
    if against:
        return replace(against[0][1], statistics=statistics, reference=names)
    # One whose own derivative differences resolve tells more than one where they do not.
    answer, claims = min(
        agreeing or compared, key=lambda each: each[0].formula.verdict is not Verdict.PASSED
    )
    doubt = f"not held against {users}" if users else ""
    if answer.formula.verdict is Verdict.INCONCLUSIVE:
        doubt = f"{answer.reference.name}: {answer.formula.summary}"
    elif claims.verdict is Verdict.INCONCLUSIVE:
        doubt = claims.summary
    bound = float(np.nanmax([claims.bound, answer.formula.bound]))
    found = replace(
        answer.formula,
        verdict=Verdict.INCONCLUSIVE if doubt else Verdict.PASSED,
        bound=bound,
        statistics=statistics,
        reference=names,
        notes=(*answer.formula.notes, *claims.notes),
    )
    text = doubt or f"{answer.formula.summary}, against {answer.reference.name}; {claims.summary}"
    return replace(found, summary=text)
