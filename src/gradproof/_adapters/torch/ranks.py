"""A function that spans ranks, as one map: its inputs are those of all ranks together.

The first rank judges. It sees a `RanksMap`, each call of which is told to the other ranks, made on
all of them at once, and collected. So probes, decisions, clocks and budgets are those of one rank,
and the number of calls does not grow with the ranks.

An array that every rank holds alike has one slot for each rank all the same: whichever copy is
moved, all are. The derivative with respect to each copy is then that of the whole, and what each
rank claims is judged by itself: it cannot cancel with another's, and the place names the rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradproof._adapters.arrays import ROUNDINGS
from gradproof._adapters.torch import TorchMap
from gradproof._adapters.torch.lockstep import Ranks
from gradproof._adapters.torch.placed import Local, Share, local_map
from gradproof._adapters.torch.watch import ALONE
from gradproof._data.space import Array, Slot, Space
from gradproof._maps.contract import DifferentiableMap, Observed, Trait, finite_point
from gradproof.errors import UsageError


@dataclass(frozen=True)
class Part:
    """What the first rank knows of the map of one rank."""

    domain: Space
    codomain: Space
    given: Array
    value: Array
    resolution: float
    inputs: tuple[Share, ...]
    outputs: tuple[Share, ...]
    layouts: tuple[str, ...]
    notes: tuple[str, ...]


# What the first rank may ask of the maps of all.


def _layout(map_: TorchMap, v: Array, layout: str) -> Array:
    """J^T v; as usual where this layout is none of the outputs of this rank."""
    words = {word for stack in map_.layouts() for word in (stack, *stack.split("+"))}
    return map_.vjp_layout(v, layout) if layout in words else map_.vjp(v)


def _observed(map_: TorchMap, v: Array) -> Observed:
    found = map_.observed(v)
    return replace(found, effects=[*found.effects, *found.left()], left=tuple)


_ASKED: dict[str, Callable[..., Any]] = {
    "value": TorchMap.value,
    "vjp": TorchMap.vjp,
    "vjp_layout": _layout,
    "gradient_traits": lambda map_, v: list(map_.gradient_traits(v)),
    "side_effects": lambda map_, v: list(map_.side_effects(v)),
    "observed": _observed,
    "reused": TorchMap.reused,
}
# Those that make another map, which stays where it was made.
_MADE: dict[str, Callable[..., Any]] = {"at": TorchMap.at, "in_double": TorchMap.in_double}
STOP = "stop"


class Party:
    """The maps of this rank, and what is done with them when all ranks are asked.

    Args:
        ranks: all of them.
        local: this rank's part of the function.
    """

    def __init__(self, ranks: Ranks, local: Local) -> None:
        self.ranks, self._local = ranks, local
        self._maps: list[TorchMap] = [ranks.together(lambda: local_map(local))]

    @property
    def counts(self) -> Mapping[str, int]:
        """Runs of the user's function and of its backward on this rank."""
        return self._maps[0].counts

    def close(self) -> None:
        """Put back what the maps changed."""
        for map_ in self._maps:
            map_.close()

    def part(self, place: int) -> Part:
        """What is told of a map."""
        map_, outputs = self._maps[place], self._local.outputs
        kept = [outputs[output.position] for output in map_.outputs.kept if outputs]
        empty = [Share(slot.name, (), 0.0) for slot in map_.codomain.slots]
        return Part(
            map_.domain,
            map_.codomain,
            map_.given,
            map_.kept_value(),
            map_.resolution,
            tuple(self._local.inputs),
            tuple(kept or empty),
            map_.layouts(),
            tuple(note for note in map_.notes if note != ALONE),
        )

    def ask(self, what: str, place: int, *arguments: Sequence[Any]) -> list[Any]:
        """On the first rank: what all ranks' maps say. Each argument has one value per rank."""
        return self._answer(*self.ranks.told((what, place, arguments)))

    def serve(self) -> Any:
        """On the other ranks: answer until the first one is done; what it says last."""
        while True:
            what, place, arguments = self.ranks.told(forever=True)
            if what == STOP:
                return arguments
            try:
                self._answer(what, place, arguments)
            except Exception:  # the same as on the first rank, which judges it
                continue

    def stop(self, said: Any) -> None:
        """On the first rank: that is all."""
        self.ranks.told((STOP, 0, said))

    def _answer(self, what: str, place: int, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        map_, mine = self._maps[place], [each[self.ranks.rank] for each in arguments]
        if what in _MADE:
            made = self.ranks.together(lambda: _MADE[what](map_, *mine))
            self._maps.append(made)
            return self.ranks.shared(self.part(len(self._maps) - 1))
        return self.ranks.shared(self.ranks.together(lambda: _ASKED[what](map_, *mine)))

    def latest(self) -> int:
        """Place of the map that was made last."""
        return len(self._maps) - 1


class RanksMap(DifferentiableMap):
    """The function of all ranks together, on the first of them.

    Args:
        party: of all ranks.
        parts: what the map of each of them is.
        place: of these maps among those of the party.
        like: another map of the same function.
        point: where that is none of all copies alike, as they are moved one by one.
    """

    def __init__(
        self,
        party: Party,
        parts: Sequence[Part],
        place: int = 0,
        like: RanksMap | None = None,
        point: Array | None = None,
    ) -> None:
        self._party, self._parts, self._place = party, parts, place
        self.memo: dict[Any, Any] = {}
        self.counts = party.counts
        self.resolution = max(part.resolution for part in parts)
        names = party.ranks.names
        pairs = list(zip(names, parts, strict=True))
        self.domain = Space(
            tuple(_named(slot, rank) for rank, part in pairs for slot in part.domain.slots)
        )
        shares = [share for part in parts for share in part.inputs]
        self._ties = _together(shares)
        sizes = [slot.size for slot in self.domain.slots]
        self._weights = np.repeat([share.weight for share in shares], sizes)
        self._cuts = np.cumsum([part.domain.size for part in parts])[:-1]
        self._starts = list(itertools.accumulate((len(p.domain.slots) for p in parts), initial=0))
        self._outputs = _Outputs(names, parts)
        self.codomain = self._outputs.space
        given = np.concatenate([part.given for part in parts])
        if like is None:
            self._require_alike(given)
        self.point, self.held = finite_point(self.domain, given)
        self._alike: Array = self.point if like is None else like._alike
        self.point = self.point if point is None else point

    def _require_alike(self, given: Array) -> None:
        """UsageError where copies of an array differ."""
        for tie in self._ties:
            first, *others = tie
            for other in others:
                one, two = given[self.domain.span(first)], given[self.domain.span(other)]
                if not np.array_equal(one, two, equal_nan=True):
                    place = int(np.flatnonzero(one != two)[0])
                    a = self.domain.slots[first].place(place, first)
                    b = self.domain.slots[other].place(place, other)
                    raise UsageError(
                        f"placements: {a} is {one[place]:.6g} and {b} is {two[place]:.6g}, and a "
                        "replicated array has the same numbers on every rank"
                    )

    # Vectors of the whole, and of each rank.

    def _points(self, x: Array) -> list[Array]:
        """A point, by rank: where one copy is moved, all are."""
        moved = x
        for tie in self._ties:
            spans = [self.domain.span(slot) for slot in tie]
            there = self._alike[spans[0]] + sum(x[span] - self._alike[span] for span in spans)
            moved = x.copy() if moved is x else moved
            for span in spans:
                moved[span] = there
        return np.split(moved, self._cuts)

    def _gradient(self, gradients: Sequence[Array]) -> Array:
        return np.concatenate(gradients) * self._weights

    def _ask(self, what: str, *arguments: Sequence[Any]) -> list[Any]:
        return self._party.ask(what, self._place, *arguments)

    # The contract.

    def value(self, x: Array) -> Array:
        return self._outputs.joined(self._ask("value", self._points(x)))

    def kept_value(self) -> Array:
        return self._outputs.joined([part.value for part in self._parts])

    def vjp(self, v: Array) -> Array:
        return self._gradient(self._ask("vjp", self._outputs.cut(v)))

    def layouts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(layout for part in self._parts for layout in part.layouts))

    def vjp_layout(self, v: Array, layout: str) -> Array:
        layouts = [layout] * len(self._parts)
        return self._gradient(self._ask("vjp_layout", self._outputs.cut(v), layouts))

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        return self._traits(self._ask("gradient_traits", self._outputs.cut(v)))

    def _traits(self, found: Sequence[Sequence[Trait]]) -> list[Trait]:
        return [
            replace(trait, slot=start + trait.slot)
            for start, traits in zip(self._starts, found, strict=False)
            for trait in traits
        ]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        return self._told(self._ask("side_effects", self._outputs.cut(v)))

    def _told(self, found: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
        pairs = zip(self._party.ranks.names, found, strict=True)
        return [(kind, f"on rank {rank} {said}") for rank, each in pairs for kind, said in each]

    def observed(self, v: Array) -> Observed:
        found: list[Observed] = self._ask("observed", self._outputs.cut(v))
        return Observed(
            self._outputs.joined([each.value for each in found]),
            self._gradient([each.gradient for each in found]),
            self._traits([each.traits for each in found]),
            self._told([each.effects for each in found]),
        )

    def reused(self, x: Array, v: Array) -> tuple[None, Array, Array]:
        found = self._ask("reused", self._points(x), self._outputs.cut(v))
        values, gradients = [each[1] for each in found], [each[2] for each in found]
        return None, self._outputs.joined(values), self._gradient(gradients)

    @property
    def notes(self) -> list[str]:
        pairs = zip(self._party.ranks.names, self._parts, strict=True)
        return [f"rank {rank}: {note}" for rank, part in pairs for note in part.notes]

    def at(self, x: Array) -> RanksMap:
        return self._made(x, "at", self._points(x))

    def in_double(self, fn: Callable[..., Any] | None = None) -> RanksMap:
        del fn  # there is no other function
        return self._made(self.point, "in_double")

    def _made(self, point: Array, how: str, *arguments: Sequence[Any]) -> RanksMap:
        parts = self._ask(how, *arguments)
        return RanksMap(self._party, parts, self._party.latest(), self, point)


def _named(slot: Slot, rank: int) -> Slot:
    return replace(slot, name=f"rank {rank}, {slot.name}")


def _together(shares: Sequence[Share]) -> list[list[int]]:
    """Places of the arrays that are one and the same."""
    found: dict[Any, list[int]] = {}
    for place, share in enumerate(shares):
        found.setdefault((share.name, share.key), []).append(place)
    return [places for places in found.values() if len(places) > 1]


class _Outputs:
    """The outputs of all ranks as one codomain; those that are one array have one slot.

    Args:
        names: of the ranks.
        parts: their maps.

    Raises:
        UsageError: copies of one output differ.
    """

    def __init__(self, names: Sequence[int], parts: Sequence[Part]) -> None:
        shares = [share for part in parts for share in part.outputs]
        ranks = [rank for rank, p in zip(names, parts, strict=True) for _ in p.outputs]
        slots = [slot for part in parts for slot in part.codomain.slots]
        keys = [(share.name, share.key) for share in shares]
        wholes = list(dict.fromkeys(keys))
        firsts = [keys.index(whole) for whole in wholes]
        self.space = Space(
            tuple(
                slots[first]
                if keys.count(whole) > 1
                else replace(slots[first], name=f"rank {ranks[first]}, {slots[first].name}")
                for whole, first in zip(wholes, firsts, strict=True)
            )
        )
        self._spans = [self.space.span(wholes.index(key)) for key in keys]
        self._weights = [share.weight for share in shares]
        self._sizes = [len(part.outputs) for part in parts]
        self._local = [part.codomain for part in parts]
        self._require_alike(ranks, shares, [part.value for part in parts])

    def joined(self, values: Sequence[Array]) -> Array:
        """The whole value, of that of each rank."""
        whole = np.zeros(self.space.size)
        for piece, span, weight in zip(
            self._split(values), self._spans, self._weights, strict=True
        ):
            if weight:
                whole[span] += weight * piece
        return whole

    def cut(self, v: Array) -> list[Array]:
        """A cotangent, by rank: all copies, and all terms of a sum, have the same one."""
        spans = iter(self._spans)
        return [np.concatenate([v[next(spans)] for _ in range(size)]) for size in self._sizes]

    def _split(self, values: Sequence[Array]) -> list[Array]:
        """The values of all slots of all ranks."""
        return [
            value[space.span(slot)]
            for value, space in zip(values, self._local, strict=True)
            for slot in range(len(space.slots))
        ]

    def _require_alike(
        self, ranks: Sequence[int], shares: Sequence[Share], values: Sequence[Array]
    ) -> None:
        whole, pieces = self.joined(values), self._split(values)
        for k, (piece, span) in enumerate(zip(pieces, self._spans, strict=True)):
            slot = self.space.slots[self.space.slot_at(span.start)] if piece.size else None
            if shares[k].weight or slot is None:
                continue
            apart = abs(piece - whole[span])
            # Sums in an order of their own differ so; a term of a sum, by its own size.
            if (apart > ROUNDINGS * slot.grain.unit * abs(whole[span]).max()).any():
                place = slot.place(int(np.argmax(apart)), 0)
                raise UsageError(
                    f"placements: {place} of rank {ranks[k]} is off by {apart.max():.3g} from that "
                    f"of the first rank, and a replicated output is the same on every rank; where "
                    "the ranks hold terms of a sum it is Partial()"
                )


def require_agreement(ranks: Ranks, local: Local, said: Mapping[str, Any]) -> None:
    """UsageError, the same one on every rank, where the ranks were not given the same.

    Args:
        ranks: all of them.
        local: this rank's part of the function.
        said: further arguments by name, which have to be equal.
    """
    mine = {
        share.name: (str(tensor.dtype), tuple(tensor.shape), bool(share.key), share.placed)
        for share, tensor in zip(local.inputs, local.tensors, strict=True)
        if share.argument
    }
    heard = ranks.shared((mine, dict(said)))
    first, options = heard[0]
    for rank, (inputs, others) in zip(ranks.names[1:], heard[1:], strict=True):
        beside = f"rank {ranks.names[0]}", f"rank {rank}"
        if extra := set(inputs) ^ set(first):
            name = min(extra)
            has, lacks = beside if name in first else beside[::-1]
            raise UsageError(
                f"inputs: {name} requires grad on {has} and is not there, or does not, on {lacks}; "
                "give every rank the same arguments, of size 0 where it has no part"
            )
        for name, here in first.items():
            if difference := _difference(here, inputs[name]):
                raise UsageError(f"inputs: {name} {difference.format(*beside)}")
        for name, value in options.items():
            if value != others[name]:
                raise UsageError(
                    f"{name}: {value} on {beside[0]} and {others[name]} on {beside[1]}; give "
                    "every rank the same"
                )


def _difference(one: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    """How an input differs between two ranks, by more than a shard may; "" where it does not."""
    (dtype, shape, alone, placed), (dtype2, shape2, _, placed2) = one, other
    if dtype != dtype2:
        return f"is {dtype} on {{}} and {dtype2} on {{}}; convert one of them"
    if placed != placed2:
        return f"is {placed} on {{}} and {placed2} on {{}}; place it alike"
    extents = sum(a != b for a, b in zip(shape, shape2, strict=False))
    if len(shape) != len(shape2) or extents > 1 or (extents and not alone):
        return (
            f"has shape {shape} on {{}} and {shape2} on {{}}; shards differ in one extent at "
            "most, replicated inputs in none"
        )
    return ""
