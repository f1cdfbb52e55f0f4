"""A cotangent or tangent that is not there behaves like zero, in every combination.

With each one missing in turn linearity says what any set of missing ones must give: of the parts
p_s = J^T v without s, that without a set S is the sum of p_s over S less (|S| - 1) J^T v. Of
tangents and J u the same is true.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradproof._checks import _behaviour, _faint
from gradproof._checks._claims import gradient, tangent
from gradproof._checks._gradients import differences, relative
from gradproof._checks._outcome import failed, first_line, passed, skipped
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import probes
from gradproof._numerics.compare import rms, within
from gradproof._records import CheckResult, Finding, Place
from gradproof._settings import Settings
from gradproof._space import Array, Space, namespace, positions

_NAME = "undefined"
_MOST = 24  # combinations of two or more that are tried


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Undefined cotangents give the gradient of zero ones; missing tangents likewise."""
    findings: list[Finding] = []
    modes = []
    if "forward" not in settings.checks or "backward" in settings.checks:
        findings += [*_all_missing(map_, settings), *_one_missing(map_, settings)]
        modes.append("cotangents")
    if "forward" in settings.checks and len(map_.domain.slots) > 1:
        try:
            findings += _tangents(map_, settings)
            modes.append("tangents")
        except Unsupported:
            pass  # the forward check says why there is no forward mode
    if findings:
        result = failed(
            _NAME, "an undefined cotangent or tangent is not treated as zero", tuple(findings)
        )
        return _behaviour.undefined(result)
    if not modes:
        return skipped(_NAME, "one input only: without its tangent there is none")
    return passed(
        _NAME, f"undefined {' and '.join(modes)} behave like zero", notes=_left_out(map_, modes)
    )


def _left_out(map_: DifferentiableMap, modes: Sequence[str]) -> tuple[str, ...]:
    """That there are more combinations than were tried."""
    slots = {"cotangents": len(_attached(map_)), "tangents": len(map_.domain.slots)}
    counts = {mode: 2 ** slots[mode] - slots[mode] - 2 for mode in modes}
    return tuple(
        f"{_MOST} of {count:,} combinations of two or more undefined {mode} were tried"
        for mode, count in counts.items()
        if count > _MOST
    )


def _attached(map_: DifferentiableMap) -> list[int]:
    return [k for k, slot in enumerate(map_.codomain.slots) if not slot.detached]


def _sets(slots: Sequence[int]) -> list[tuple[int, ...]]:
    """Sets of two or more but not all: first those that leave one, then the smallest."""
    sizes = sorted(range(2, len(slots)), key=lambda size: (size != len(slots) - 1, size))
    every = (s for size in sizes for s in itertools.combinations(slots, size))
    return list(itertools.islice(every, _MOST))


def _attempt(run: Callable[[], Array], what: str, place: Place | None) -> Array | Finding:
    try:
        return run()
    except Unsupported:
        raise
    except Exception as error:  # whatever the user's rule raises is the finding
        message = f"{what}: it raised {type(error).__name__}: {first_line(str(error))}"
        return Finding(_NAME, message, "undefined: raised", None, place)


def _all_missing(map_: DifferentiableMap, settings: Settings) -> list[Finding]:
    every = frozenset(range(len(map_.codomain.slots)))
    v = probes.cotangent(map_, settings.seed or 0, 0)
    what = "the backward of undefined cotangents"
    got = _attempt(lambda: map_.vjp_undefined(v, every), what, None)
    if isinstance(got, Finding):
        return [got]
    xp = namespace(got)
    return list(
        differences(
            _NAME,
            map_,
            got,
            xp.zeros_like(got),
            kind="undefined",
            what="all cotangents undefined",
            atol=settings.atol,
        )
    )


def _one_missing(map_: DifferentiableMap, settings: Settings) -> list[Finding]:
    """Each output undefined in turn: the gradients sum to (k - 1) J^T v, at no further VJP."""
    slots = _attached(map_)
    if len(slots) < 2:
        return []
    v, whole = probes.cotangent(map_, settings.seed or 0, 0), gradient(map_, settings, 0)
    parts: dict[int, Array] = {}
    for slot in slots:
        place = Place(map_.codomain.slots[slot].name, slot, ())
        what = f"the backward where the cotangent of {place.name} is undefined"
        missing = frozenset({slot})
        got = _attempt(lambda missing=missing: map_.vjp_undefined(v, missing), what, place)  # type: ignore[misc]  # default binds the loop variable
        if isinstance(got, Finding):
            return [got]
        parts[slot] = got
    total, expected = sum(parts.values()), (len(slots) - 1) * whole
    terms = (expected, *parts.values())
    if not differences(
        _NAME, map_, total, expected, kind="", what="", terms=terms, atol=settings.atol
    ) or _faint.gradients(map_, settings, v, terms):
        return _several_missing(map_, settings, v, whole, parts)
    return _name_slots(map_, v, parts)


def _several_missing(
    map_: DifferentiableMap, settings: Settings, v: Array, whole: Array, parts: dict[int, Array]
) -> list[Finding]:
    """Several outputs undefined together, held against what each one by itself says."""
    for chosen in _sets(list(parts)):
        names = " and ".join(map_.codomain.slots[slot].name for slot in chosen)
        what = f"cotangents of {names} undefined together"

        def run(chosen: tuple[int, ...] = chosen) -> Array:
            return map_.vjp_undefined(v, frozenset(chosen))

        got = _attempt(run, f"the backward with {what}", None)
        if isinstance(got, Finding):
            return [got]
        expected = sum(parts[slot] for slot in chosen) - (len(chosen) - 1) * whole
        terms = (whole, *parts.values())
        options: dict[str, Any] = {"kind": "undefined", "what": what, "most": 2}
        options |= {"terms": terms, "atol": settings.atol}
        found = list(differences(_NAME, map_, got, expected, **options))
        if found and not _faint.gradients(map_, settings, v, terms):
            return found
    return []


def _name_slots(map_: DifferentiableMap, v: Array, parts: dict[int, Array]) -> list[Finding]:
    """Which output it is: its cotangent zero, compared with its cotangent undefined."""
    xp = namespace(v)
    index, found = xp.arange(map_.codomain.size), list[Finding]()
    for slot, part in parts.items():
        span = map_.codomain.span(slot)
        zeroed = xp.where((index >= span.start) & (index < span.stop), 0.0, v)
        what = f"cotangent of {map_.codomain.slots[slot].name} undefined against zero"
        found += differences(
            _NAME, map_, part, map_.vjp(zeroed), kind="undefined", what=what, most=2
        )
    return found


def _tangents(map_: DifferentiableMap, settings: Settings) -> list[Finding]:
    """Each of k inputs without tangent in turn, whose sum is (k - 1) J u; then several together."""
    u, whole = probes.tangent(map_, settings.seed or 0, 0), tangent(map_, settings, 0)
    parts: dict[int, Array] = {}
    for slot in range(len(map_.domain.slots)):
        got = _without(map_, u, (slot,))
        if isinstance(got, Finding):
            return [got]
        parts[slot] = got
    size = sum(map(abs, parts.values())) + abs(whole)

    def beyond(got: Array, expected: Array, what: str) -> list[Finding]:
        xp = namespace(whole)
        allowed = relative(map_) * (size + rms(whole))
        wrong = xp.isfinite(expected) & ~within(xp.abs(got - expected), allowed)
        if bool(xp.any(wrong)):
            wrong = wrong & ~within(size, _faint.bars(map_, settings))
        numbers = got, expected, allowed
        return [_tangent_finding(map_.codomain, i, numbers, what) for i in positions(wrong)[:4]]

    what = "inputs without a tangent in turn: the sum is"
    found = beyond(sum(parts.values()), (len(parts) - 1) * whole, what)
    for chosen in _sets(list(parts)) if not found else ():
        got = _without(map_, u, chosen)
        if isinstance(got, Finding):
            return [got]
        expected = sum(parts[slot] for slot in chosen) - (len(chosen) - 1) * whole
        if found := beyond(got, expected, f"{_names(map_, chosen)} without a tangent: got"):
            return found
    return found


def _without(map_: DifferentiableMap, u: Array, slots: tuple[int, ...]) -> Array | Finding:
    """J u where some inputs have no tangent."""
    what = f"forward mode with {_names(map_, slots)} without a tangent"
    return _attempt(lambda: map_.jvp_undefined(u, frozenset(slots)), what, None)


def _names(map_: DifferentiableMap, slots: Sequence[int]) -> str:
    return " and ".join(map_.domain.slots[slot].name for slot in slots)


def _tangent_finding(
    space: Space, i: int, numbers: tuple[Array, Array, Array], what: str
) -> Finding:
    got, expected, allowed = (float(values[i]) for values in numbers)
    place = space.locate(i)
    message = (
        f"tangent of {place}: {what} {got:.6g}, "
        f"expected {expected:.6g}; the gap is {abs(got - expected):.3g}, allowed {allowed:.2g}"
    )
    return Finding(_NAME, message, "undefined tangent", None, place, got, expected, 0.0, allowed)
