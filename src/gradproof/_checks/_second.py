"""The derivatives of a map as maps of their own, made once and shared by the checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradproof._checks import _modes, _oracle, _rounding
from gradproof._checks._verify import MakeClaim, MakeMode, verify
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure, probes
from gradproof._records import CheckResult
from gradproof._settings import Settings
from gradproof._space import Array


def cotangent(map_: DifferentiableMap, settings: Settings, number: int = 0) -> Array:
    """The cotangent v at which the backward is differentiated."""
    return _modes.on_grid(map_.codomain, probes.cotangent(map_, settings.seed or 0, number))


def tangent(map_: DifferentiableMap, settings: Settings) -> Array:
    """The tangent u at which forward mode is differentiated."""
    return _modes.on_grid(map_.domain, probes.tangent(map_, settings.seed or 0, 0))


def of_backward(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map (x, v) -> J(x)^T v at the point and the cotangent above."""
    v = cotangent(map_, settings)
    return _once(map_, "backward", lambda: _oracle.derivative(map_, settings, _backward(v)))


def of_forward(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map (x, u) -> J(x) u at the point and the tangent above."""
    u = tangent(map_, settings)

    def differentiate(of: DifferentiableMap) -> DifferentiableMap:
        return of.forward_derivative(u)

    return _once(map_, "forward", lambda: _oracle.derivative(map_, settings, differentiate))


def _backward(v: Array) -> _oracle.Derivative:
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
    result = verify(map_, settings, make_claim, make_mode)
    result = _rounding.without(map_, settings, make_claim, result)
    findings = tuple(replace(finding, check=name) for finding in result.findings)
    return replace(result, name=name, findings=findings)


def in_double(map_: DifferentiableMap, settings: Settings) -> DifferentiableMap:
    """The map, or below double precision the first of its oracles that computes in it."""
    if map_.resolution <= measure.DOUBLE:
        return map_
    for oracle in _oracle.of(map_, settings).trusted:
        if oracle.own and oracle.map.resolution <= measure.DOUBLE:
            return oracle.map
    raise Unsupported("too few bits for an identity of second derivatives")
