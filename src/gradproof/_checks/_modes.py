"""The two modes of differentiation, as claims in few bits are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradproof._map import DifferentiableMap
from gradproof._numerics import probes
from gradproof._numerics.formats import two_to
from gradproof._settings import Settings
from gradproof._space import Array, Space, namespace

LONG = 1 << 16  # coordinates from which one probe and a few runs must do
_ENTRIES = 256  # of each array, over the probes, where they are cheap
_MOST_PROBES = 4

Pull = Callable[[DifferentiableMap, Array], Array]


@dataclass(frozen=True)
class Mode:
    """One mode of differentiation: what it is asked at, and in which space it answers."""

    check: str
    what: str  # "gradient of" or "tangent of"
    pull: Pull
    probes: list[Array]
    space: Space
    slack: float = 1.0  # more than honest runs are off by, where they run another algorithm
    doubt: float = 1.0  # part of the derivative that a rounded run without a number doubts

    def pulled(self, map_: DifferentiableMap) -> Array:
        """What a map claims for every probe, (V, N)."""
        return namespace(map_.point).stack([self.pull(map_, probe) for probe in self.probes])


def backward(map_: DifferentiableMap, settings: Settings) -> Mode:
    """J^T v for a few cotangents that the precision can represent."""
    seed = settings.seed or 0
    made = [
        on_grid(map_.codomain, probes.cotangent(map_, seed, number))
        for number in range(_count(map_.domain))
    ]
    return Mode("backward", "gradient of", lambda m, v: m.vjp(v), made, map_.domain)


def forward(map_: DifferentiableMap, settings: Settings) -> Mode:
    """J u for a few tangents, likewise."""
    seed = settings.seed or 0
    count = min(2, _count(map_.domain))
    made = [on_grid(map_.domain, probes.tangent(map_, seed, number)) for number in range(count)]
    # Rounded runs differentiate the backward instead: dual numbers do not run under the rounding.
    # Where that has no number, as at a norm's largest entry, forward mode may well have one.
    space = map_.codomain
    return Mode("forward", "tangent of", lambda m, u: m.jvp(u), made, space, slack=2.0, doubt=0.0)


def _count(space: Space) -> int:
    """So many probes that the smallest array has enough entries to average over."""
    if space.size > LONG:
        return 1
    smallest = min((slot.size for slot in space.slots if slot.size), default=1)
    return max(2, min(_MOST_PROBES, _ENTRIES // smallest))


def on_grid(space: Space, values: Array) -> Array:
    """The values, rounded to numbers of each array's own precision."""
    xp = namespace(values)
    pieces = []
    for position, slot in enumerate(space.slots):
        piece = values[space.span(position)]
        safe = xp.where(piece == 0, 1.0, piece)
        spacing = 2 * slot.grain.unit * two_to(xp.floor(xp.log2(xp.abs(safe))))
        pieces.append(xp.round(piece / spacing) * spacing)
    return xp.concat(pieces) if pieces else values
