"""Entries that are nothing but rounding of a sum that cancels, told from wrong ones.

A derivative that is zero in exact arithmetic is claimed as some number of the size of rounding.
Differences may measure it far more sharply: where the function is constant, to the last bit. So
its claims are asked for at neighbours as near as x (1 + 2^-38 c). A wrong entry is the same at all
of them, to so many digits; rounding is not. One factor moves all entries, so that zeros and ties
stay what they are; and neighbours on one side of x only are compared, as x may lie on a jump.

At the point itself it is asked for with a probe a little longer: J^T (c e) / c is J^T e in exact
arithmetic, for a wrong J as for a right one. With c = 1 + 2^-26 k every product is rounded anew,
and no smooth rule, not even one that squares its probe, changes by a part of 10^-6. That
tells where the neighbours happen to agree, and where x is zero and has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from gradproof._data.records import CheckResult, Finding, Place
from gradproof._data.settings import Settings
from gradproof._data.space import Array, Space
from gradproof._data.vectors import rms
from gradproof._judge.claims import Claim
from gradproof._judge.decide import explained, resolved
from gradproof._judge.opinion import Opinion
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, jacobian, probes, steps
from gradproof._verdict import oracles
from gradproof._verdict.conclude import conclude, merged
from gradproof._verdict.judge import MakeClaim
from gradproof._verdict.verify import MakeMode, gathered

_LONGER = 2.0**-26
_FACTORS = (1.0, 1.375, 0.625, 1.8125)  # c, of the neighbours on one side
_TIMES = 16.0  # the change that a few neighbours show
_SMOOTH = 1e-4  # part of a derivative by which it changes at most, so near
_MOST = 64  # entries, and coordinates that are searched for each: 64 times as many


def only_rounding(
    map_: DifferentiableMap, settings: Settings, make_claim: MakeClaim, said: Opinion
) -> Opinion | None:
    """What is left of claims that were refuted by nothing but rounding; None where they were not.

    Args:
        map_: a derivative.
        settings: of the run.
        make_claim: of the mode that is checked.
        said: of the claims, all evidence together.
    """
    if not said.findings or map_.resolution > directional.DOUBLE:
        return None
    found = [_coordinates(map_, finding) for finding in said.findings]
    places = [at for at in found if at is not None]
    if len(places) < len(found):
        return None
    claimed = make_claim(map_, settings)
    noise = [0.0] * len(places)

    @functools.cache
    def here(at: tuple[int, int]) -> float:
        return _again(claimed, map_, at)

    try:
        for side in (1.0, -1.0):
            beside = [map_.at(map_.point * (1 + side * steps.ROUNDING * c)) for c in _FACTORS]
            claims = [make_claim(each, settings) for each in beside]
            for k, at in enumerate(places):
                seen = [_entry(*each, at) for each in zip(claims, beside, strict=True)]
                noise[k] = max(noise[k], _spread(seen), here(at))
                if not k and not explained(said.findings[0].gap, 2 * _TIMES * noise[0]):
                    return None  # the usual case: the largest gap is seen to be no rounding
    except Unsupported:
        return None
    # A sum of few terms is rounded to one of a few numbers, perhaps to the same at all neighbours:
    # the others of its kind tell how large they are.
    typical = sorted(noise)[len(noise) // 2]
    gaps = [finding.gap for finding in said.findings]
    if not all(explained(g, _TIMES * max(n, typical)) for g, n in zip(gaps, noise, strict=True)):
        return None
    direction = probes.tangent(map_, settings.seed or 0, 0)
    return _left(map_, said, [claim.along(direction) for claim in (claimed, *claims)])


def _left(map_: DifferentiableMap, said: Opinion, along: Sequence[Array | None]) -> Opinion:
    """Verified but for these entries; open where the whole derivative is such rounding.

    Args:
        map_: the map.
        said: of its claims.
        along: the claimed derivative along a tangent, at the point and at its neighbours.
    """
    here = along[0]
    if here is None or not all(
        there is not None and resolved(rms(there - here), _SMOOTH * rms(here)) for there in along
    ):
        return Opinion(said.check, "nothing was tested: the derivative is only rounding", open=True)
    count = len(said.findings)
    which = "an entry is" if count == 1 else f"{count} entries are"
    note = f"{which} nothing but rounding, up to {said.findings[0].gap:.0e}: not tested"
    summary = f"{map_.codomain.size:,} x {map_.domain.size:,} Jacobian verified"
    return Opinion(said.check, summary, notes=(note,))


def _spread(seen: Sequence[float]) -> float:
    return max(seen) - min(seen)


def _entry(claim: Claim, map_: DifferentiableMap, at: tuple[int, int]) -> float:
    """One claimed entry of the Jacobian."""
    push, place, probe = _asked(claim, map_, at)
    return float(push(probe)[place])


def _again(claim: Claim, map_: DifferentiableMap, at: tuple[int, int]) -> float:
    """The rounding that longer probes show in it."""
    push, place, probe = _asked(claim, map_, at)
    factors = [1 + _LONGER * k for k in _FACTORS]
    return _spread([float(push(c * probe)[place]) / c for c in factors])


def _asked(
    claim: Claim, map_: DifferentiableMap, at: tuple[int, int]
) -> tuple[Callable[[Array], Array], int, Array]:
    """How a mode is asked for an entry: by its row, or else by its column."""
    i, j = at
    row = jacobian.unit(map_.point, i, count=map_.codomain.size)
    if claim.project(row) is not None:
        return cast("Callable[[Array], Array]", claim.project), j, row
    return cast("Callable[[Array], Array]", claim.along), i, jacobian.unit(map_.point, j)


def _coordinates(map_: DifferentiableMap, finding: Finding) -> tuple[int, int] | None:
    """Row and column of a finding; None where it concerns no single entry of the Jacobian."""
    if finding.input is None or finding.output is None:
        return None
    row = _coordinate(map_.codomain, finding.output)
    column = _coordinate(map_.domain, finding.input)
    return None if row is None or column is None else (row, column)


def _coordinate(space: Space, place: Place) -> int | None:
    span = space.span(place.slot)
    if span.stop - span.start > _MOST * _MOST:
        return None
    return next((k for k in range(span.start, span.stop) if space.locate(k) == place), None)


# The derivatives of a map as maps of their own, made once and shared by the checks.


def cotangent(map_: DifferentiableMap, settings: Settings, number: int = 0) -> Array:
    """The cotangent v at which the backward is differentiated."""
    return probes.on_grid(map_.codomain, probes.cotangent(map_, settings.seed or 0, number))


def tangent(map_: DifferentiableMap, settings: Settings) -> Array:
    """The tangent u at which forward mode is differentiated."""
    return probes.on_grid(map_.domain, probes.tangent(map_, settings.seed or 0, 0))


def of_backward(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map (x, v) -> J(x)^T v at the point and the cotangent above."""
    v = cotangent(map_, settings)
    return _once(map_, "backward", lambda: oracles.derivative(map_, settings, _backward(v)))


def of_forward(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map (x, u) -> J(x) u at the point and the tangent above."""
    u = tangent(map_, settings)

    def differentiate(of: DifferentiableMap) -> DifferentiableMap:
        return of.forward_derivative(u)

    return _once(map_, "forward", lambda: oracles.derivative(map_, settings, differentiate))


def _backward(v: Array) -> oracles.Derivative:
    return lambda of: of.derivative(v)


def _once(
    map_: DifferentiableMap, kind: str, make: Callable[[], DifferentiableMap]
) -> DifferentiableMap:
    """What `make` makes, or the reason why it cannot, made only the first time."""
    key = ("derivative", kind)
    if key not in map_.memo:
        try:
            map_.memo[key] = make()
        except Unsupported as missing:
            map_.memo[key] = missing
    found = map_.memo[key]
    if isinstance(found, Unsupported):
        raise type(found)(found.reason)
    made: DifferentiableMap = found
    return made


def verified(
    name: str,
    map_: DifferentiableMap,
    settings: Settings,
    make_claim: MakeClaim,
    make_mode: MakeMode,
) -> CheckResult:
    """The verdict on a derivative of a derivative, under the name of its check."""
    evidence = gathered(map_, settings, make_claim, make_mode)
    left = only_rounding(map_, settings, make_claim, merged(evidence))
    return conclude(replace(evidence, rounding=left), name)


def in_double(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map, or below double precision the first of its oracles that computes in it."""
    if map_.resolution <= directional.DOUBLE:
        return map_
    for oracle in oracles.of(map_, settings).trusted:
        if oracle.own and oracle.map.resolution <= directional.DOUBLE:
            return oracle.map
    raise Unsupported("too few bits for an identity of second derivatives")
