"""Derivatives of a map as maps of their own, made once and shared by the checks, and judged."""

from __future__ import annotations

from collections.abc import Callable

from gradproof._data.records import Finding
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._judge.claims import gradient
from gradproof._judge.decide import of_claims
from gradproof._judge.opinion import Opinion
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._measure import directional, probes
from gradproof._measure.evaluate import centre
from gradproof._verdict import oracles
from gradproof._verdict.agree import Pair, differences

ANOTHER = "what is differentiated is another gradient than the backward's"


def cotangent(map_: DifferentiableMap, settings: Settings, number: int = 0) -> Array:
    """The cotangent v at which the backward is differentiated."""
    return probes.on_grid(map_.codomain, probes.cotangent(map_, settings.seed, number))


def tangent(map_: DifferentiableMap, settings: Settings) -> Array:
    """The tangent u at which forward mode is differentiated."""
    return probes.on_grid(map_.domain, probes.tangent(map_, settings.seed, 0))


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


def of_another(name: str, map_: DifferentiableMap, settings: Settings) -> Opinion | None:
    """That the gradient that is differentiated is not the one that is used alone.

    A backward may have two ways: a kernel, and operations where a graph of it is wanted. In few
    bits those of the same function in double precision are asked.
    """
    try:
        exact = in_double(map_, settings)
        v, got = cotangent(exact, settings), centre(of_backward(exact, settings)).value
        found = another(name, exact, settings, (v, got))
    except Unsupported:  # a second derivative by hand, without a first one
        return None
    return Opinion(name, ANOTHER, found) if found else None


def another(
    name: str, map_: DifferentiableMap, settings: Settings, made: tuple[Array, Array] | None
) -> tuple[Finding, ...]:
    """Where a gradient made to be differentiated is not that of the backward alone.

    `made` are its cotangent and that gradient, if there is one.
    """
    if made is None:
        return ()
    v, got = made
    first = probes.cotangent(map_, settings.seed, 0)
    same = bool(namespace(v).all(v == first))
    expected = gradient(map_, settings, 0) if same else map_.vjp(v)
    if got.shape != expected.shape:  # an input has no gradient at all
        return ()
    what = "made to be differentiated again, against the backward's"
    return differences(name, map_, Pair(got, expected, what), of_claims(settings))


def in_double(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map, or below double precision the first of its oracles that computes in it."""
    if map_.resolution <= directional.DOUBLE:
        return map_
    for oracle in oracles.of(map_, settings).trusted:
        if oracle.own and oracle.map.resolution <= directional.DOUBLE:
            return oracle.map
    raise Unsupported("too few bits for an identity of second derivatives")
