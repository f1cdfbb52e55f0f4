"""Cotangents and tangents as they are not drawn: zeros among them, very large, very small.

Probes are dense, of the size of 1 and of few digits: each sees the whole Jacobian. A derivative may
be right for those alone. So one more is taken apart: J^T (2 v - 3 w + 4 e) is asked in two parts,
2^20 times as large and as small, each with half of its entries exactly zero (`probes.Split`), and
what comes of them must add up to 2 J^T v - 3 J^T w + 4 J^T e. No part has both sizes: where rows
are mixed, the large ones would hide what becomes of the small ones.

w is constant on each output. Where memory layouts are tried it is handed over with stride 0, which
saves a VJP: if the sum holds, that one is right too. e has a single entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradproof._checks._claims import gradient, tangent
from gradproof._map import DifferentiableMap
from gradproof._numerics import measure, probes
from gradproof._numerics.compare import largest_size
from gradproof._settings import Settings
from gradproof._space import Array

# Their sum is not 1, so that an added constant shows too.
DENSE, CONSTANT, HOT = 2.0, -3.0, 4.0
EXPANDED = "expanded"
AGREES = ("cotangent of stride 0 agrees",)  # key of the memo
_LARGEST = 16.0  # of the probe; and of its derivative, in that of v


def expands(map_: DifferentiableMap, settings: Settings) -> bool:
    """Whether a cotangent with stride 0 is handed over in this run."""
    return "layout" in settings.checks and any(EXPANDED in each for each in map_.layouts())


def expanded_gradient(map_: DifferentiableMap, settings: Settings) -> Array | None:
    """J^T w, w handed over with stride 0; None where that is not asked, or raises."""
    if not expands(map_, settings):
        return None
    w = probes.short_constant_cotangent(map_, settings.seed or 0)
    try:
        return map_.vjp_layout(w, EXPANDED)
    except Exception:  # Unsupported, or whatever the user's backward raises: `layout` says it
        return None


def is_hot(map_: DifferentiableMap, settings: Settings) -> bool:
    """Whether a cotangent with a single entry is worth a VJP of its own."""
    several = map_.codomain.size > 1
    return several and settings.other_inputs and not measure.large(map_)


@dataclass(frozen=True)
class Parts:
    """Two parts of a probe, and what is claimed of them."""

    split: probes.Split
    pull: Callable[[Array], Array]

    memo: dict[Any, Any] | None  # for the claim of the first, that `batched` compares with

    def of(self, number: int) -> Array:
        """What is claimed of a part, over its factor."""
        key = ("part", self.split.tangents)
        if number == 0 and self.memo is not None and key in self.memo:
            return self.memo[key]
        found = self.pull(self.split.part(number)) / self.split.factors[number]
        if number == 0 and self.memo is not None:
            self.memo[key] = found
        return found


def of_cotangents(map_: DifferentiableMap, settings: Settings) -> Parts:
    """2 v - 3 w + 4 e, or what of it is asked, in two parts."""
    seed = settings.seed or 0

    def whole() -> Array:
        found = DENSE * probes.cotangent(map_, seed, 0)
        if expands(map_, settings):
            found += CONSTANT * probes.constant_cotangent(map_, seed)
        if is_hot(map_, settings):
            found += HOT * probes.one_hot(map_, seed)
        return found

    largest = largest_size(gradient(map_, settings, 0)) if map_.domain.size else 0.0
    split = probes.split(
        map_,
        whole,
        (_LARGEST, _LARGEST * largest),
        seed=seed,
        unit=measure.resolution(map_),
    )
    return Parts(split, map_.vjp, None if measure.large(map_) else map_.memo)


def of_tangents(map_: DifferentiableMap, settings: Settings) -> Parts:
    """U in two parts."""
    seed = settings.seed or 0
    sizes = largest_size(probes.tangent(map_, seed, 0)), largest_size(tangent(map_, settings, 0))
    split = probes.split(
        map_,
        lambda: 1.0 * probes.tangent(map_, seed, 0),
        (2 * sizes[0], 2 * sizes[1]),
        seed=seed,
        unit=measure.resolution(map_),
        tangents=True,
    )
    return Parts(split, map_.jvp, None if measure.large(map_) else map_.memo)
