"""What one call leaves behind changes no other: a second point, far away, has its own derivative.

A backward that reads what the last forward left is right as long as that was made next to the
point; one that reads what the first call left is right as long as there is one point only. So the
kept call is asked again after a call far away, and the derivative there is measured.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gradproof._data.checks import TABLE
from gradproof._data.frames import raised
from gradproof._data.records import CheckResult, Finding, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array, dot, namespace, norm
from gradproof._data.vectors import rms
from gradproof._judge.claims import REPEATS, Backward, Claim, Forward, gradient, pulled
from gradproof._judge.decide import BARS, of_claims, of_sum, same_value, signs_count
from gradproof._judge.outcome import failed, inconclusive, passed, skipped
from gradproof._judge.projections import Projection, gap_of, usual
from gradproof._judge.screen import rows_of, summed
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, evaluate, probes, steps
from gradproof._measure.sizes import DRAWS
from gradproof._verdict import oracles
from gradproof._verdict.agree import Pair, differences, same
from gradproof._verdict.judge import unsteady
from gradproof._verdict.verify import carried, verify

# Key of a map's memo, with the name of a check: what it concluded.
VERDICT = "verdict"

ELSEWHERE = ("elsewhere",)  # likewise: a second point, F there, and gradients claimed there
_NAME = "state"
# Number of the point near this one that is the second: along a tangent of that purpose alone.
_NEARBY = probes.ALONE - probes.NEARBY
_AT = "at a second point"
_DOUBT = (
    "nearer it is right: what was kept from the first call is used there, or the function is not "
    "made for such inputs"
)


@dataclass(frozen=True)
class _Seen:
    """What was asked, and found."""

    findings: tuple[Finding, ...] = ()  # what is wrong
    evidence: object = None  # of it
    notes: tuple[str, ...] = ()  # on what could not be asked
    # Of the derivative at the second point, in parts of its size; None where not measured.
    bar: float | None = None
    doubt: str = ""  # what is wrong, where it need not be a matter of state; "" where nothing is


_Mode = type[Claim]
_WAYS: tuple[_Mode, ...] = (Backward, Forward)


def _here(map_: DifferentiableMap, mode: _Mode) -> Verdict:
    """What the check of a mode concluded at the point; passed where that has not run."""
    found: Verdict = map_.memo.get((VERDICT, mode.check), Verdict.PASSED)
    return found


def is_refuted(map_: DifferentiableMap) -> bool:
    """Whether a check that ran says that something is wrong."""
    return Verdict.FAILED in [map_.memo.get((VERDICT, row.name)) for row in TABLE]


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T v of a kept call stays what it was, and another point has its own J^T v and J u."""
    if not settings.other_inputs:
        return skipped(_NAME, "no other inputs are to be tried")
    if not (map_.domain.size and map_.codomain.size):
        return skipped(_NAME, "no entries to move")
    if reason := unsteady(map_):
        return inconclusive(_NAME, reason)
    far = _far(map_, settings)
    if isinstance(far, str):
        return skipped(_NAME, far)
    notes: tuple[str, ...] = ()
    bar, doubt = None, ""
    for ask in (_kept, _measured, _in_its_memory, _with_its_buffers, _as_before):
        seen = ask(map_, settings, far)
        notes += seen.notes
        bar, doubt = seen.bar if bar is None else bar, doubt or seen.doubt
        if seen.findings:
            evaluate.call_again(map_)  # so that later checks find what earlier ones did
            summary = SUMMARIES[seen.findings[0].kind]
            return failed(_NAME, summary, seen.findings, evidence=seen.evidence, notes=notes)
        if doubt and ask is _kept:  # its backward raises there
            break
    if doubt:
        return inconclusive(_NAME, doubt, notes=notes)
    if bar is None:
        return passed(_NAME, UNCHANGED, notes=notes)
    return passed(_NAME, OWN.format(UNCHANGED, bar), notes=notes, resolution=bar)


UNCHANGED = "a call far away changes no gradient of the one before"
OWN = "{}, and has its own derivative, to {:.0e}"
SUMMARIES = {
    "last call": "the backward reads what the last call left, not its own",
    "first call": "what was kept from the first call is used for another",
    "first point": "the derivative at a second point is wrong",
    "second point": "the derivative at a second point is wrong",
}


def plain_bar(map_: DifferentiableMap, settings: Settings, stacks: Sequence[str]) -> float | None:
    """The bar of the derivative at a second point where nothing at all is wrong; else None.

    What is asked is what `check` asks, of a call whose inputs are in another memory layout; the
    one in the arrays of the first has them as they are given.

    Args:
        map_: the map, whose modes are right at its own point.
        settings: of the run.
        stacks: memory layouts of the inputs at the second point, of the cotangent there, and of the
            cotangent here; "" for the usual ones.
    """
    x, v = next(_points(map_, settings)), probes.cotangent(map_, settings.seed, 0)
    start, there, push = map_.run_at(x, v, (stacks[0], stacks[1]))
    if start.shape[0] != map_.codomain.size or not np.isfinite(start).all():
        return None
    tolerance, here = of_claims(settings), gradient(map_, settings, 0)
    got = pulled(map_, v, stacks[2])
    map_.memo[ELSEWHERE] = x, start, (claimed := [there])
    map_.memo[REPEATS] = bool((got == here).all())
    if not same(map_, Pair(got, here, ""), tolerance):
        return None
    for ask in (map_.reused, map_.overtaken):
        try:
            first, value, own = ask(x, v)
        except Unsupported:
            if stacks[0] and ask == map_.reused:
                return None  # nothing to hold the other layout against
            continue
        claimed.append(own)
        pairs = [Pair(own, there, ""), *([] if first is None else [Pair(first, here, "")])]
        if not _same_value(map_, value, start):
            return None
        if not all(same(map_, pair, tolerance) for pair in pairs):
            return None
    u = probes.tangent(map_, settings.seed, probes.ALONE + 1)
    found = directional.plainly_at(map_, settings, x, start, u)
    if found is None or not np.isfinite(found.estimate.error).all():
        return None
    bar, wrong = _of_sum(settings, map_, found, (v, there))
    with contextlib.suppress(Unsupported):
        rows, suspect = _of_rows(settings, map_, found, push(u))
        bar, wrong = min(bar, rows), wrong or suspect
    return None if wrong or not bar <= settings.resolution else bar


def _far(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap | str:
    """The map at a second point, far away; or why there is none."""
    known = namespace(map_.point).isfinite(evaluate.centre(map_).value)
    why = "has no finite value"
    for x in _points(map_, settings):
        try:
            far = map_.at(x)
            value = evaluate.share_centre(map_, far).value
        except Unsupported as missing:
            return missing.reason
        except Exception as error:  # whatever the function raises for inputs it does not take
            why = f"raised {raised(error)}"
            continue
        if value.shape[0] != known.shape[0]:
            why = "returns other shapes"
        elif bool(namespace(value).all(namespace(value).isfinite(value) | ~known)):
            return far
    return f"at the second points tried the function {why}"


def _points(map_: DifferentiableMap, settings: Settings) -> Iterator[Array]:
    """Second points, the best first: some entries of inputs with both signs have the other one."""
    xp, seed = namespace(map_.point), settings.seed
    turns = probes.tangent(map_, seed, probes.ALONE + 2)
    x = probes.nearby(map_, seed, _NEARBY, steps.SECOND[0])
    for position, slot in enumerate(map_.domain.slots):
        span = map_.domain.span(position)
        there, turned = x[span], turns[span] < 0
        both = bool(xp.any(there < 0)) and bool(xp.any(there > 0))
        if both and slot.limits == (-math.inf, math.inf):
            x[span] = xp.where(turned if bool(xp.any(turned)) else ~turned, -there, there)
    yield _but_the_first(map_, x)
    for part in steps.SECOND:
        yield _but_the_first(map_, probes.nearby(map_, seed, _NEARBY, part))


def _but_the_first(map_: DifferentiableMap, x: Array) -> Array:
    """That point, with the first entry of each array of several as it is at the map's own.

    A cache may know an array by that.
    """
    for slot, start in zip(map_.domain.slots, map_.domain.offsets, strict=False):
        if slot.size > (entry := len(slot.parts)):
            x[start : start + entry] = map_.point[start : start + entry]
    return x


def _steady(map_: DifferentiableMap, v: Array) -> bool:
    """Whether of three backwards two in a row agree: else what differs is no matter of state."""
    found = [map_.vjp(v) for _ in range(3)]
    return any(
        not differences(_NAME, map_, Pair(one, other, ""), most=1)
        for one, other in itertools.pairwise(found)
    )


def _kept(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> _Seen:
    """The kept call's backward after a call far away, and right after it that one's."""
    try:
        first = gradient(map_, settings, 0)
    except Unsupported:
        return _Seen()
    got = map_.vjp(probes.cotangent(map_, settings.seed, 0))
    map_.memo[REPEATS] = bool(namespace(got).all(got == first))
    try:
        gradient(far, settings, 0)
    except Exception as error:  # the user's backward may raise anything for other inputs
        return _Seen(doubt=f"{_AT} the backward raised {raised(error)}")
    what = "asked again after a call at a second point, against before"
    if not (found := _compared(map_, settings, got, first, what)):
        return _Seen()
    return _Seen(found)


def _measured(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> _Seen:
    """The derivative that is claimed there against differences there, if it is right here."""
    ways = [mode for mode in _WAYS if _here(map_, mode) is Verdict.PASSED]
    if not ways:
        return _Seen()
    source = _source(map_, settings)
    if source is None:
        return _Seen(notes=("no oracle to hold a second point against",))
    if settings.trusted:  # a definition: its value says nothing of it, there or here
        return _all_confirmed(map_, settings, far, ways)
    start = evaluate.centre(far)
    if source is not map_:
        start = evaluate.centre_at(source, far.point)
    u = probes.tangent(far, settings.seed, probes.ALONE + 1)
    found = directional.at_another(source, settings, far.point, start, u)
    bar, doubted = _held_against(settings, far, ways, found)
    seen = _all_confirmed(map_, settings, far, doubted)
    if seen.findings or seen.doubt:
        return seen
    if doubted or not bar <= settings.resolution:
        return _Seen(notes=("a second point tells nothing: its error bar is too wide",))
    return _Seen(bar=bar)


def _held_against(
    settings: Settings,
    far: DifferentiableMap,
    ways: Iterable[_Mode],
    found: directional.Measurement,
) -> tuple[float, list[_Mode]]:
    """Smallest bar of some modes at the second point, and those that disagree."""
    bars, doubted = [1.0], []
    for mode in ways:
        try:
            if mode.columnwise:
                bar, wrong = _of_rows(settings, far, found, far.jvp(found.direction))
            else:
                bar, wrong = _of_sum(settings, far, found, _pulled(settings, far, found, 0))
                several = DRAWS if far.resolution > steps.SINGLE else 0
                wrong = wrong or any(_is_off(settings, far, found, k) for k in range(several))
        except Unsupported:
            continue
        bars.append(bar)
        doubted += [mode] * wrong
    return min(bars), doubted


def _source(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap | None:
    """Whose values are measured: the map's own, or in few bits those of its oracle."""
    if map_.resolution < directional.DOUBLE:
        return map_
    trusted = oracles.of(map_, settings).trusted
    if trusted:
        return trusted[0].map
    return map_ if map_.resolution < steps.SINGLE else None


def _of_sum(
    settings: Settings,
    map_: DifferentiableMap,
    found: directional.Measurement,
    claimed: tuple[Array, Array],
) -> tuple[float, bool]:
    """A projection v.(J u): its bar in parts of its usual size, and whether it disagrees.

    `claimed` are v, and what the backward makes of it.
    """
    v, back = claimed
    usual_size = usual(v, found.estimate) * v.shape[0] ** 0.5
    whole = summed((0.0, math.inf), v, found.estimate)
    if found.ladder is not None and not whole[1] <= settings.rtol * usual_size:
        # A sum that has steps of its own is sharper.
        row = namespace(v).reshape(v, (1, -1))
        sums = found.ladder.of_functionals(row, signs=signs_count(map_))
        whole = float(sums.value[0]), float(sums.error[0])
    one = Projection(v, back, *whole, mixed=False)
    gap = gap_of(Backward(map_, settings), found, one, quiet=of_sum(usual_size))
    return gap.further / usual_size if usual_size else 1.0, gap.wrong


def _pulled(
    settings: Settings, far: DifferentiableMap, found: directional.Measurement, number: int
) -> tuple[Array, Array]:
    """A cotangent, 0 where nothing was measured, and what the backward makes of it."""
    v = probes.cotangent(far, settings.seed, number)
    xp, unseen = namespace(v), ~namespace(v).isfinite(found.estimate.error)
    if bool(xp.any(unseen)):
        v = xp.where(unseen, 0.0, v)
    elif number == 0:  # asked for before
        return v, gradient(far, settings, 0)
    return v, far.vjp(v)


def _is_off(
    settings: Settings, far: DifferentiableMap, found: directional.Measurement, number: int
) -> bool:
    """Whether a projection is off by more than rounding at random usually is.

    A bound on the rounding of 16 bits is as large as the sum itself. That of roundings which are
    mostly random is not; and as one projection may be small by chance, there are several.
    """
    v, back = _pulled(settings, far, found, number)
    u, (value, bar) = found.direction, summed((0.0, math.inf), v, found.estimate)
    return _unusual(far, abs(dot(back, u) - value), norm(back * u), bar)


def _unusual(far: DifferentiableMap, gap: float, size: float, bar: float) -> bool:
    # Mostly it is 0.1 to 7 unit round-offs in the root mean square. What is off by a few more is
    # looked into, which costs its time and decides nothing.
    return gap > BARS * far.resolution * size + bar


def _of_rows(
    settings: Settings, map_: DifferentiableMap, found: directional.Measurement, claimed: Array
) -> tuple[float, bool]:
    """Every row of J u by forward mode, likewise.

    The terms of a row may cancel, and their rounding stays. In double precision there are bits
    enough for that; below it each row may be off by what rounds one of the usual size, and all of
    them together by what they mostly are.
    """
    measured = found.estimate
    size = 0.0 if map_.resolution < directional.DOUBLE else rms(measured.value)
    rows = rows_of(map_, settings, measured, claimed, size)
    off = size and _unusual(map_, rms(claimed - measured.value), size, rms(measured.error))
    return rows.resolution, bool(off or namespace(claimed).any(rows.suspect))


def _all_confirmed(
    map_: DifferentiableMap, settings: Settings, far: DifferentiableMap, ways: Iterable[_Mode]
) -> _Seen:
    """What is said against the first of some modes against which something is said."""
    found = (_confirmed(map_, settings, far, mode) for mode in ways)
    return next((seen for seen in found if seen.findings or seen.doubt), _Seen())


def _confirmed(
    map_: DifferentiableMap, settings: Settings, far: DifferentiableMap, mode: _Mode
) -> _Seen:
    """The whole check of a mode at the second point, if it passed at the first."""
    key = VERDICT, mode.check
    if key not in map_.memo:
        map_.memo[key] = verify(mode(map_, settings)).verdict
    if _here(map_, mode) is not Verdict.PASSED:
        return _Seen()
    again = map_.at(far.point)
    result = verify(mode(again, settings))
    if result.verdict is Verdict.FAILED:
        same = not mode.columnwise and _is_of_first(map_, settings, far)
        # What calls left is of the first point, as after a power iteration there.
        if not same and (left := carried(again)):
            return _Seen(doubt=f"{_AT} the derivative is wrong, but {left}")
        return _wrong_there(map_, settings, mode, result, same=same)
    if mode.columnwise:
        return _Seen()
    what = f"{_AT}, of one call there against another"
    found = _compared(
        again, settings, gradient(far, settings, 0), gradient(again, settings, 0), what
    )
    return _Seen(found)


def _wrong_there(
    map_: DifferentiableMap, settings: Settings, mode: _Mode, result: CheckResult, *, same: bool
) -> _Seen:
    """A failure, unless the function may just not be made for such inputs.

    What was kept from the first call is wrong beside the point too, or is all that is claimed:
    that is `same`.
    """
    kind = "first point" if same else "second point"
    findings = tuple(
        replace(one, check=_NAME, kind=kind, message=f"{_AT}: {one.message}")
        for one in result.findings
    )
    if not same:
        near = probes.nearby(map_, settings.seed, _NEARBY, steps.SMOOTH)
        beside = map_.at(_but_the_first(map_, near))
        if verify(mode(beside, settings)).verdict is not Verdict.FAILED:
            told = findings[0].message if findings else result.summary
            return _Seen(doubt=f"{told}; {_DOUBT}")
    return _Seen(findings, None if same else result.evidence)


def _is_of_first(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> bool:
    """Whether the gradient that is claimed there is that of the first point."""
    one, other = gradient(map_, settings, 0), gradient(far, settings, 0)
    return bool(namespace(one).all(one == other))


def _as_before(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> _Seen:
    """What was claimed there before, unless F goes by the layouts of then.

    Its backward may too: nothing is said where another check has found something wrong.
    """
    if ELSEWHERE not in map_.memo or is_refuted(map_):
        return _Seen()
    x, value, claimed = map_.memo[ELSEWHERE]
    again = evaluate.centre(far).value
    if not bool(namespace(x).all(x == far.point)) or not _same_value(far, value, again):
        return _Seen()
    own, what = gradient(far, settings, 0), f"{_AT}, of one call there against another"
    found = (_compared(far, settings, each, own, what, "second point") for each in claimed)
    return _Seen(next(filter(None, found), ()))


def _in_its_memory(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> _Seen:
    """The second point in the arrays of the first: what is kept by identity or address shows."""
    return _of_further_calls(
        map_, settings, far, map_.reused, "held by the arrays that held the other point"
    )


def _with_its_buffers(map_: DifferentiableMap, settings: Settings, far: DifferentiableMap) -> _Seen:
    """Two calls after each other, of which the second sees what the first wrote into buffers."""
    return _of_further_calls(
        map_, settings, far, map_.overtaken, "with buffers that a call at the other point wrote"
    )


def _of_further_calls(
    map_: DifferentiableMap,
    settings: Settings,
    far: DifferentiableMap,
    ask: Callable[[Array, Array], tuple[Array | None, Array, Array]],
    how: str,
) -> _Seen:
    """Calls at both points that share something, against those that share nothing."""
    if directional.large(map_):  # a few vectors more
        return _Seen()
    try:
        first, expected = gradient(map_, settings, 0), gradient(far, settings, 0)
        here, value, there = ask(far.point, probes.cotangent(map_, settings.seed, 0))
    except Unsupported:
        return _Seen()
    except Exception as error:  # likewise
        return _Seen(notes=(f"{_AT}, {how}, the backward raised {raised(error)}",))
    if here is not None and (found := _compared(map_, settings, here, first, how, "last call")):
        return _Seen(found)
    if not _same_value(far, value, evaluate.centre(far).value):
        return _Seen(notes=(f"{_AT}, {how}, the value is another",))  # and so is the function
    found = _compared(far, settings, there, expected, f"{_AT}, {how}", "first call")
    return _Seen(found)


def _same_value(map_: DifferentiableMap, value: Array, own: Array) -> bool:
    """Whether a value is another one: the very same bits, as nearly always, or but for rounding."""
    xp = namespace(own)
    return bool(xp.all(value == own)) or not bool(xp.any(same_value(map_, value, own, 0.0).wrong))


def _compared(
    map_: DifferentiableMap,
    settings: Settings,
    got: Array,
    expected: Array,
    what: str,
    kind: str = "last call",
) -> tuple[Finding, ...]:
    """Findings where two gradients differ, that two backwards in a row do not."""
    pair = Pair(got, expected, what)
    found = differences(_NAME, map_, pair, of_claims(settings), kind=kind)
    if not found:
        return ()
    evaluate.call_again(map_)  # the last call is then one at the point again
    steady = _steady(map_, probes.cotangent(map_, settings.seed, 0))
    return found if steady else ()
