"""A function that spans ranks, as one map: its inputs are those of all ranks together.

The first rank runs the checks. It sees a `RanksMap`: each of its calls is sent to the other ranks,
made on all of them at once, and the results are gathered. So probes, decisions, clocks and budgets
are those of one rank, and the number of calls does not grow with the ranks.

A replicated array has one slot for each rank, and moving one copy moves all. The derivative with
respect to each copy is then that of the whole, and the gradient of each rank is judged by itself:
it cannot cancel with another's, and the place names the rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradproof._adapters.arrays import ROUNDINGS
from gradproof._data.held import finite_point
from gradproof._data.space import Array, Space
from gradproof._maps.contract import CallCounter, DifferentiableMap, Trait
from gradproof.errors import UsageError
from gradproof.torch._adapter import TorchMap
from gradproof.torch._notes import ALONE
from gradproof.torch.distributed._lockstep import Ranks
from gradproof.torch.distributed._placed import Local, Share, local_map


@dataclass(frozen=True)
class Part:
    """What the first rank knows about the map of one rank."""

    place: int  # among the maps of its rank
    domain: Space
    codomain: Space
    given: Array
    value: Array
    resolution: float
    inputs: tuple[Share, ...]
    outputs: tuple[Share, ...]
    layouts: tuple[str, ...]
    notes: tuple[str, ...]


STOP = "stop"


class RankMaps:
    """The maps of this rank, and what is done with them when all ranks are asked."""

    def __init__(self, ranks: Ranks, local: Local) -> None:
        self.ranks, self._local = ranks, local
        self._maps: list[TorchMap] = [ranks.run_together(lambda: local_map(local))]

    def close(self) -> None:
        """Put back what the maps changed."""
        for map_ in self._maps:
            map_.close()

    def part(self, place: int) -> Part:
        """What the first rank gets to know about a map of this rank."""
        map_, outputs = self._maps[place], self._local.outputs
        return Part(
            place,
            map_.domain,
            map_.codomain,
            map_.given_point,
            map_.kept_value(),
            map_.resolution,
            tuple(self._local.inputs),
            tuple([outputs[output.position] for output in map_.outputs.kept]),
            map_.layouts(),
            tuple(note for note in map_.notes if note != ALONE),
        )

    def ask(self, what: str, place: int, *arguments: Sequence[Any]) -> list[Any]:
        """On the first rank: call a member of all ranks' maps, and gather the results.

        Each argument has one value per rank.
        """
        return self._answer(*self.ranks.broadcast_object((what, place, arguments)))

    def serve(self) -> Any:
        """On the other ranks: answer until the first one is done; the report that it sends last."""
        while True:
            what, place, arguments = self.ranks.broadcast_object(forever=True)
            if what == STOP:
                return arguments
            with suppress(Exception):  # the same as on the first rank, which judges it
                self._answer(what, place, arguments)

    def stop(self, report: Any) -> None:
        """On the first rank: end the others' service, and send them the report."""
        self.ranks.broadcast_object((STOP, 0, report))

    def _answer(self, what: str, place: int, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Call a member of this rank's map; a map that it makes stays on this rank."""
        ask: Callable[..., Any] = getattr(self._maps[place], what)
        own = [each[self.ranks.rank] for each in arguments]
        found = self.ranks.run_together(lambda: ask(*own))
        if isinstance(found, TorchMap):
            self._maps.append(found)
            found = self.part(len(self._maps) - 1)
        return self.ranks.gather_objects(found)


class RanksMap(DifferentiableMap):
    """The function of all ranks together, on the first of them.

    `like` is another map of it; `point` may be one where copies are not alike, as they are moved
    one by one.
    """

    def __init__(
        self,
        rank_maps: RankMaps,
        parts: Sequence[Part],
        like: RanksMap | None = None,
        point: Array | None = None,
    ) -> None:
        self._rank_maps, self._parts = rank_maps, parts
        self.counts = CallCounter() if like is None else like.counts
        self.resolution = max(part.resolution for part in parts)
        names = rank_maps.ranks.names
        self._inputs = _JointArrays(names, [(part.domain, part.inputs) for part in parts])
        self._outputs = _JointArrays(names, [(part.codomain, part.outputs) for part in parts])
        self.domain, self.codomain = self._inputs.space, self._outputs.space_of_wholes()
        self._starts = list(itertools.accumulate((len(p.domain.slots) for p in parts), initial=0))
        given = np.concatenate([part.given for part in parts])
        if like is None:
            self._require_alike(given)
        self._outputs.require_copies([part.value for part in parts])
        self.point, self.held = finite_point(self.domain, given)
        self._alike: Array = self.point if like is None else like._alike
        self.point = self.point if point is None else point

    def _require_alike(self, given: Array) -> None:
        """UsageError where copies of an input differ."""
        first = given[self._inputs.source]
        differing = ~np.isclose(given, first, rtol=0, atol=0, equal_nan=True)
        if differing.any():
            other = int(np.argmax(differing))
            one = int(self._inputs.source[other])
            raise UsageError(
                f"placements: {self.domain.locate(one)} is {given[one]:.6g} and "
                f"{self.domain.locate(other)} is {given[other]:.6g}, and a replicated array has "
                "the same numbers on every rank"
            )

    # Vectors of the whole, and of each rank.

    def _points(self, x: Array) -> list[Array]:
        """A point, by rank: where one copy is moved, all are."""
        inputs, alike = self._inputs, self._alike
        moved = (alike + inputs.add_parts(x - alike))[inputs.source]
        return inputs.split(np.where(inputs.tied, moved, x))

    def _cotangents(self, v: Array) -> list[Array]:
        """A cotangent, by rank: all copies, and all terms of a sum, have the same one."""
        whole = np.zeros(self._outputs.space.size)
        whole[self._outputs.first] = v
        return self._outputs.split(whole[self._outputs.source])

    def _value(self, values: Sequence[Array]) -> Array:
        """The whole value, of that of each rank: of copies the first, of terms the sum."""
        return self._outputs.sum_parts(values)[self._outputs.first]

    def _ask(self, what: str, run: str, *arguments: Sequence[Any]) -> list[Any]:
        """What a member of each rank's map returns, which makes one run of that kind."""
        # Counted here, and not where the ranks run: a budget that one rank alone keeps to would
        # leave the others waiting.
        self.counts.add(run)
        return self._rank_maps.ask(what, self._parts[0].place, *arguments)

    # The contract.

    def value(self, x: Array) -> Array:
        return self._value(self._ask("value", "function", self._points(x)))

    def kept_value(self) -> Array:
        return self._value([part.value for part in self._parts])

    def vjp(self, v: Array) -> Array:
        return np.concatenate(self._ask("vjp", "vjp", self._cotangents(v)))

    def layouts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(layout for part in self._parts for layout in part.layouts))

    def vjp_layout(self, v: Array, layout: str) -> Array:
        layouts = [layout] * len(self._parts)
        return np.concatenate(self._ask("vjp_layout", "vjp", self._cotangents(v), layouts))

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        found: list[Sequence[Trait]] = self._ask("gradient_traits", "vjp", self._cotangents(v))
        return [
            replace(trait, slot=start + trait.slot)
            for start, traits in zip(self._starts, found, strict=False)
            for trait in traits
        ]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        self.counts.add("function")  # beside the backward
        found = self._ask("side_effects", "vjp", self._cotangents(v))
        return [
            (kind, f"on rank {rank} {sentence}")
            for rank, effects in zip(self._rank_maps.ranks.names, found, strict=True)
            for kind, sentence in effects
        ]

    @property
    def notes(self) -> list[str]:
        pairs = zip(self._rank_maps.ranks.names, self._parts, strict=True)
        return [f"rank {rank}: {note}" for rank, part in pairs for note in part.notes]

    def map_at(self, x: Array) -> RanksMap:
        return RanksMap(self._rank_maps, self._ask("map_at", "function", self._points(x)), self, x)

    def map_in_double(self, fn: Callable[..., Any] | None = None) -> RanksMap:
        del fn  # there is no other function
        return RanksMap(self._rank_maps, self._ask("map_in_double", "function"), self, self.point)


class _JointArrays:
    """The inputs, or the outputs, of all ranks; those of one name and key are one array.

    Attributes:
        space: every array of every rank.
        source: of each coordinate, that of the first array that is one with it.
        first: which coordinates are their own first.
        tied: which have others that are one with them.
        weights: of each coordinate, 0 where it is that of a copy.
    """

    def __init__(
        self, names: Sequence[int], parts: Sequence[tuple[Space, Sequence[Share]]]
    ) -> None:
        pairs = zip(names, parts, strict=True)
        self._slots = slots = [(rank, s) for rank, (space, _) in pairs for s in space.slots]
        self._shares = [share for _, shares in parts for share in shares]
        self.space = Space(tuple(replace(s, name=f"rank {rank}, {s.name}") for rank, s in slots))
        keys: list[Any] = [
            (share.name, share.key) if slot.size else place
            for place, (share, (_, slot)) in enumerate(zip(self._shares, slots, strict=True))
        ]
        self._firsts = [keys.index(key) for key in keys]
        for (rank, slot), first in zip(slots, self._firsts, strict=True):
            if slot.shape != (shape := slots[first][1].shape):
                raise UsageError(
                    f"placements: {slot.name}, which is one array, has shape {slot.shape} on rank "
                    f"{rank} and {shape} on rank {slots[first][0]}"
                )
        spans = [self.space.span(place) for place in range(len(keys))]
        self.source = np.concatenate([np.r_[spans[place]] for place in self._firsts]).astype(int)
        self.first = self.source == np.arange(self.space.size)
        self.tied = np.bincount(self.source, minlength=self.space.size)[self.source] > 1
        sizes = [slot.size for _, slot in slots]
        self.weights = np.repeat([share.weight for share in self._shares], sizes)
        self._cuts = np.cumsum([space.size for space, _ in parts])[:-1]

    def split(self, x: Array) -> list[Array]:
        """A vector of all coordinates, by rank."""
        return np.split(x, self._cuts)

    def add_parts(self, x: Array) -> Array:
        """The sums over arrays that are one, in the place of the first."""
        return np.bincount(self.source, x, self.space.size)

    def sum_parts(self, values: Sequence[Array]) -> Array:
        """The same of what counts; copies do not, whatever they hold."""
        return self.add_parts(np.where(self.weights == 0, 0.0, np.concatenate(values)))

    def space_of_wholes(self) -> Space:
        """One slot for each array; one of several ranks bears no rank's name."""
        return Space(
            tuple(
                slot if self._firsts.count(k) > 1 else self.space.slots[k]
                for k, (_, slot) in enumerate(self._slots)
                if self._firsts[k] == k
            )
        )

    def require_copies(self, values: Sequence[Array]) -> None:
        """UsageError where a copy differs from the whole by more than rounding."""
        whole = self.sum_parts(values)[self.source]
        apart = abs(np.concatenate(values) - whole)
        for k, (rank, slot) in enumerate(self._slots):
            here = self.space.span(k)
            if self._shares[k].weight or not slot.size:
                continue
            # Sums in an order of their own differ so; a term of a sum, by its own size.
            if (apart[here] > ROUNDINGS * slot.grain.unit * abs(whole[here]).max()).any():
                place = self._slots[self._firsts[k]][1].place(int(np.argmax(apart[here])), 0)
                raise UsageError(
                    f"placements: {place} of rank {rank} is off by {apart[here].max():.3g} from "
                    "that of the first rank, and a replicated output is the same on every rank; "
                    "where the ranks hold terms of a sum it is Partial()"
                )


def require_agreement(ranks: Ranks, local: Local, options: Mapping[str, Any]) -> None:
    """UsageError, the same one on every rank, where the ranks were not given the same."""
    facts: dict[str, Any] = {f"{name}:": repr(value) for name, value in options.items()}
    for share, tensor in zip(local.inputs, local.tensors, strict=True):
        if share.argument:
            who = f"inputs: {share.name}"
            facts |= {f"{who} is": tensor.dtype, f"{who} is placed": share.placed}
            facts[f"{who} has"] = f"{tensor.dim()} dimensions"
    nothing = "nothing that requires grad, were it of size 0,"
    first, *others = ranks.gather_objects(facts)
    for rank, other in zip(ranks.names[1:], others, strict=True):
        for what in {**first, **other}:
            here, there = first.get(what, nothing), other.get(what, nothing)
            if here != there:
                raise UsageError(
                    f"{what} {here} on rank {ranks.names[0]} and {there} on rank {rank}; give "
                    "every rank the same"
                )
