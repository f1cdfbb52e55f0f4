"""What one call leaves behind changes no other: a second point has its own derivative.

A backward that reads what the last forward left is right as long as that was made next to the
point; one that reads what the first call left is right as long as there is one point only. So
another call is made far away, the kept call is asked again, and the derivative there is measured.
Two further calls share something with the first: the arrays that held the point, and the buffers
that the function writes.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gradproof._checks.agreement import vector_findings, vectors_agree
from gradproof._checks.groups import listed_names
from gradproof._checks.outcome import failed_check, inconclusive_check, passed_check, skipped_check
from gradproof._checks.users_code import UsersError, users_errors
from gradproof._compare.claims import Mode
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.results import PointResult
from gradproof._data.space import Values
from gradproof._low_precision.combine import mode_result
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import Kind, random_bits, random_moves, round_to_formats
from gradproof._numdiff.steps import NEIGHBOUR

_NAME = "second_point"
_AT = "at a second point"
_FAR = (0.5, -0.5, 1 / 16, -1 / 16)  # of a scale: how far second points lie
_NEAR = (NEIGHBOUR, 1 / 16, -1 / 16)  # where what was kept is wrong too, and no domain is left
_NUMBER = 128  # of the random direction in which they lie
_MOST_POINTS = 3  # at which a derivative is measured, where it is not decided at the first
_LARGE_VALUES = 2.0**20  # times those at the point: the domain of F has been left
_NEGLIGIBLE = 1e-8  # of the largest entry of a gradient
_LAST_DIGITS = 64.0  # roundings that two values of the same function may differ by
_DOUBT = (
    "nearer it is right: what was kept from the first call is used there, or the function is not "
    "made for such inputs"
)
_UNCHANGED = "a call far away changes no gradient of the one before"

SUMMARIES = {
    "last call": "the backward reads what the last call left, not its own",
    "first call": "what was kept from the first call is used for another",
    "first point": "the derivative at a second point is wrong",
    "second point": "the derivative at a second point is wrong",
}


@dataclass(frozen=True)
class _Outcome:
    """What calls at a second point show.

    Attributes:
        findings: what is wrong.
        bound: how finely the derivative there is verified; NaN where it is not.
        doubt: what is wrong, where it need not be a matter of state; "" where nothing is.
        notes: on what could not be asked.
        evidence: measured entries that are wrong.
    """

    findings: tuple[Finding, ...] = ()
    bound: float = math.nan
    doubt: str = ""
    notes: tuple[str, ...] = ()
    evidence: object = None


def check(measurements: Measurements) -> CheckResult:
    """J^T v of the kept call stays what it was, and another point has its own J^T v and J u."""
    map_ = measurements.map
    if not measurements.settings.other_inputs:
        return skipped_check(_NAME, "no other inputs are to be tried")
    if not (map_.domain.size and map_.codomain.size):
        return skipped_check(_NAME, "no entries to move")
    jitter = float(measurements.function.jitter.max())
    if jitter > math.sqrt(measurements.unit) * measurements.largest_value:
        return skipped_check(_NAME, "the function returns another value every time")
    with contextlib.suppress(Unsupported):  # forward mode may be all there is
        measurements.gradient(0)  # before any call far away
    outcome, reason, tried = _Outcome(), "", 0
    for x in _second_points(measurements):
        there = _map_at(measurements, x)
        if isinstance(there, str):
            reason = there
            continue
        outcome = _outcome_at(measurements, there)
        tried += 1
        decided = outcome.findings or outcome.doubt or outcome.bound == outcome.bound
        if decided or tried == _MOST_POINTS:
            break
    if not tried:
        return skipped_check(_NAME, f"at the second points tried the function {reason}")
    return _result(measurements, outcome)


def _result(measurements: Measurements, outcome: _Outcome) -> CheckResult:
    if outcome.findings:
        # Later checks find what earlier ones did.
        measurements.map.value(measurements.map.point)
        summary = SUMMARIES[outcome.findings[0].kind]
        return failed_check(
            _NAME, summary, outcome.findings, evidence=outcome.evidence, notes=outcome.notes
        )
    if outcome.doubt:
        return inconclusive_check(_NAME, outcome.doubt, notes=outcome.notes)
    if math.isnan(outcome.bound):
        return passed_check(_NAME, _UNCHANGED, notes=outcome.notes)
    text = f"{_UNCHANGED}, and has its own derivative, to {outcome.bound:.0e}"
    return passed_check(_NAME, text, notes=outcome.notes, resolution=outcome.bound)


def _second_points(measurements: Measurements, number: int = 0) -> Iterator[Values]:
    """Points far away, the best first: some entries of inputs with both signs have the other one.

    The first entry of each array of several is the point's own: a cache may know an array by that.
    `number` is that of the random direction in which they lie.
    """
    map_, seed = measurements.map, measurements.settings.seed
    turns = random_bits(seed, Kind.REPEAT, _NUMBER + number, map_.domain.size)
    turned = _point_nearby(measurements, _FAR[0], number)
    for position, slot in enumerate(map_.domain.slots):
        span = map_.domain.span(position)
        values = turned[span]
        if (values < 0).any() and (values > 0).any() and slot.limits == (-math.inf, math.inf):
            own = turns[span] if turns[span].any() else ~turns[span]
            turned[span] = np.where(own, -values, values)
    yield _first_entries_unmoved(map_, turned)
    for part in _FAR:
        yield _first_entries_unmoved(map_, _point_nearby(measurements, part, number))


def _point_nearby(measurements: Measurements, radius: float, number: int = 0) -> Values:
    """A random point this far from the map's, in parts of the scales, (n,).

    In numbers of its arrays; half way to the limit of an input where it would leave that.
    """
    map_ = measurements.map
    domain, point = map_.domain, map_.point
    moves = random_moves(domain, measurements.settings.seed, Kind.NEARBY_POINT, _NUMBER + number)
    x = point + radius * measurements.scales * moves
    for position, slot in enumerate(domain.slots):
        span, (low, high) = domain.span(position), slot.limits
        for limit, beyond in ((low, x[span] <= low), (high, x[span] >= high)):
            if math.isfinite(limit):
                x[span] = np.where(beyond, (point[span] + limit) / 2, x[span])
    return round_to_formats(domain, x)


def _first_entries_unmoved(map_: DifferentiableMap, x: Values) -> Values:
    for position, slot in enumerate(map_.domain.slots):
        start, entry = map_.domain.span(position).start, len(slot.parts)
        if slot.size > entry:
            x[start : start + entry] = map_.point[start : start + entry]
    return x


def _map_at(measurements: Measurements, x: Values) -> Measurements | str:
    """The function at x; or why it is not asked there.

    Values that are very much larger than at the point tell that its domain has been left.
    """
    here = measurements.function.centre
    try:
        with users_errors():
            there = measurements.map.map_at(x)
            value = there.kept_value()
    except UsersError as error:
        return f"raised {error}"
    if value.shape != here.shape:
        return "returns other shapes"
    known = np.isfinite(here)
    if not np.isfinite(value[known]).all():
        return "has no finite value"
    largest = measurements.largest_value
    if largest and np.abs(value[known]).max(initial=0.0) > _LARGE_VALUES * largest:
        return "has values very much larger than at the point"
    return Measurements(there, measurements.settings)


def _outcome_at(measurements: Measurements, there: Measurements) -> _Outcome:
    """The outcome at one second point, at which F has just been called."""
    map_, v = measurements.map, measurements.cotangent(0)
    try:
        first = measurements.gradient(0)
    except Unsupported:
        return _measured_outcome(measurements, there, ("forward",))
    what = "asked again after a call at a second point, against before"
    if found := _gradient_findings(measurements, map_.vjp(v), first, what, "last call"):
        return _Outcome(found)
    try:
        with users_errors():
            own = there.gradient(0)
            again = there.map.vjp(v)
    except UsersError as error:
        return _Outcome(doubt=f"{_AT} the backward raised {error}")
    what = f"{_AT}, one backward of a call there against another"
    if found := _gradient_findings(there, own, again, what, "second point", measurements):
        return _Outcome(found)
    outcome = _measured_outcome(measurements, there, ("backward", "forward"))
    if outcome.findings or outcome.doubt:
        return outcome
    for ask, how in (
        (map_.products_in_reused_arrays, "held by the arrays that held the other point"),
        (map_.products_of_overtaken_call, "with buffers that a call at the other point wrote"),
    ):
        shared = _outcome_of_shared_calls(measurements, there, ask, how)
        outcome = replace(outcome, notes=outcome.notes + shared.notes)
        if shared.findings:
            return replace(outcome, findings=shared.findings)
    what = "asked again after all calls at a second point, against before"
    found = _gradient_findings(measurements, map_.vjp(v), first, what, "last call")
    return replace(outcome, findings=found)


def _gradient_findings(
    of: Measurements,
    got: Values,
    expected: Values,
    what: str,
    kind: str,
    steady: Measurements | None = None,
) -> tuple[Finding, ...]:
    """Findings where two gradients differ that two backwards in a row, at the point, do not.

    What differs from run to run is no matter of state.
    """
    if vectors_agree(of, got, expected):
        return ()
    found = vector_findings(_NAME, of, got, expected, what, kind=kind)
    return found if found and _is_steady(steady or of) else ()


def _is_steady(measurements: Measurements) -> bool:
    map_, v = measurements.map, measurements.cotangent(0)
    map_.value(map_.point)  # so that the last call is one at the point again
    gradients = [map_.vjp(v) for _ in range(3)]
    return any(vectors_agree(measurements, *pair) for pair in itertools.pairwise(gradients))


def _measured_outcome(
    measurements: Measurements, there: Measurements, modes: tuple[Mode, ...]
) -> _Outcome:
    """The derivative that is claimed at a second point, held against differences there."""
    bounds: list[float] = []
    notes: list[str] = []
    for mode in modes:
        try:
            with users_errors():
                result = _mode_result_of(there, mode, quick=True)
                if result.verdict is Verdict.FAILED:
                    if _mode_result_of(measurements, mode, quick=True).verdict is Verdict.FAILED:
                        continue  # it is wrong at the first point too, which its own check says
                    result = _mode_result_of(there, mode)
        except Unsupported:
            continue
        except UsersError as error:
            return _Outcome(doubt=f"{_AT} the {mode} mode raised {error}")
        if result.verdict is Verdict.FAILED:
            outcome = _outcome_of_failure(measurements, there, mode, result)
            if outcome.findings or outcome.doubt:
                return outcome
            notes += outcome.notes
            if outcome.bound == outcome.bound:
                bounds.append(outcome.bound)
        elif result.verdict is Verdict.PASSED:
            bounds.append(result.bound)
        else:
            notes.append(f"a second point tells nothing of {mode} mode: {result.summary}")
    return _Outcome(bound=min(bounds, default=math.nan), notes=tuple(notes))


def _mode_result_of(measurements: Measurements, mode: Mode, *, quick: bool = False) -> PointResult:
    """The result of a mode at a point; `quick` where one tangent is enough."""
    is_double = measurements.is_double
    return mode_result(
        measurements.map,
        measurements.settings,
        mode,
        check=_NAME,
        users_reference=measurements.reference,
        function=measurements.function,
        gradient=measurements.gradient(0) if mode == "backward" else None,
        slopes=measurements.slopes if is_double else None,
        quick=quick,
    )


def _outcome_of_failure(
    measurements: Measurements, there: Measurements, mode: Mode, result: PointResult
) -> _Outcome:
    """A failure at a second point, unless the function may just not be made for such inputs.

    What is wrong at the point as well is no matter of state. What was kept from the first call is
    all that is claimed, or it is wrong at every other point, and beside the first one too.
    """
    if result.findings and all(finding.kind == "row" for finding in result.findings):
        # No entry is wrong by itself: F has kinks within the steps, or a claim that is not linear.
        return _Outcome(notes=(f"a second point tells nothing of {mode} mode: {result.summary}",))
    if _is_negligible(there, result):
        return _Outcome(notes=(f"{_AT} tiny entries are not told from zero",))
    if _mode_result_of(measurements, mode).verdict is not Verdict.PASSED:
        note = f"{mode} mode is wrong {_AT}, and not verified at the first one"
        return _Outcome(notes=(note,))
    kind = "second point"
    if mode == "backward" and np.array_equal(there.gradient(0), measurements.gradient(0)):
        kind = "first point"
    findings = tuple(
        replace(finding, check=_NAME, kind=kind, message=f"{_AT}: {finding.message}")
        for finding in result.findings
    ) or (Finding(_NAME, f"{_AT}: {result.summary}", kind),)
    outcome = _Outcome(findings, evidence=result.block if kind == "second point" else None)
    if kind == "first point":
        return outcome
    if names := there.map.carried_arrays():
        text = (
            f"each call writes into {listed_names(names)}, on which the next value depends: what "
            "is computed for them counts"
        )
        return _Outcome(doubt=f"{_AT} the derivative is wrong, but {text}")
    other = _result_at(measurements, _second_points(measurements, 1), mode)
    if other is not None and other.verdict is Verdict.PASSED:
        note = f"{findings[0].message}; at another one it is right"
        return _Outcome(bound=other.bound, notes=(note,))
    for radius in _NEAR:
        x = _first_entries_unmoved(measurements.map, _point_nearby(measurements, radius))
        beside = _result_at(measurements, [x], mode)
        if beside is not None and beside.verdict is Verdict.FAILED:
            return outcome
    return _Outcome(doubt=f"{findings[0].message}; {_DOUBT}")


def _result_at(
    measurements: Measurements, points: Iterable[Values], mode: Mode
) -> PointResult | None:
    """The result of a mode at the first of some points at which F has a value."""
    for x in points:
        there = _map_at(measurements, x)
        if isinstance(there, Measurements):
            try:
                with users_errors():
                    return _mode_result_of(there, mode)
            except UsersError:
                return None
    return None


def _is_negligible(there: Measurements, result: PointResult) -> bool:
    """Whether all that is wrong at a second point is tiny beside the largest derivative there.

    Far from the point a function may cancel, as ``1 + erf(x)`` does for negative x, and is then a
    staircase whose slopes mean nothing. What is kept from another call is not off by so little.
    """
    try:
        largest = float(np.abs(there.gradient(0)).max(initial=0.0))
    except Unsupported:
        return False
    gaps = [finding.gap for finding in result.findings]
    return bool(gaps) and all(gap <= _NEGLIGIBLE * largest for gap in gaps)


def _outcome_of_shared_calls(
    measurements: Measurements,
    there: Measurements,
    ask: Callable[[Values, Values], tuple[Values | None, Values, Values]],
    how: str,
) -> _Outcome:
    """Calls at both points that share arrays, against those that share nothing."""
    try:
        with users_errors():
            here, value, gradient = ask(there.map.point, measurements.cotangent(0))
    except Unsupported:
        return _Outcome()
    except UsersError as error:
        return _Outcome(notes=(f"{_AT}, {how}, the backward raised {error}",))
    if here is not None:
        first = measurements.gradient(0)
        if found := _gradient_findings(measurements, here, first, how, "last call"):
            return _Outcome(found)
    if not _is_same_value(there, value):
        return _Outcome(notes=(f"{_AT}, {how}, the value is another",))  # and so is the function
    own, what = there.gradient(0), f"{_AT}, {how}"
    return _Outcome(_gradient_findings(there, gradient, own, what, "first call", measurements))


def _is_same_value(measurements: Measurements, value: Values) -> bool:
    """Whether a value is F at the point, but for rounding in its last digits."""
    own = measurements.function.centre
    allowed = _LAST_DIGITS * measurements.function.unit * measurements.largest_value
    with np.errstate(invalid="ignore"):
        return bool(((value == own) | (np.abs(value - own) <= allowed) | ~np.isfinite(own)).all())
