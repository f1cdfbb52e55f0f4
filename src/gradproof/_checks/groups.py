"""Groups of slots that are asked for together, so that few questions tell all slots apart.

A family of groups holds every slot equally often. What hangs on one slot by itself is seen by the
two groups {i} and all but {i}; these see whatever hangs on up to three slots. Where there are too
many slots for that, every slot is in half of the groups of one family, each in other ones: of any
two slots some group then holds the one and not the other, either way round, and of r groups there
is room for as many slots as r things have halves (Sperner 1928), 9 groups for 126.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from gradproof._data.visible import joined
from gradproof._measure.sizes import LISTED

Group = frozenset[int]
Family = tuple[Group, ...]


def families(count: int, most: int, seed: int) -> list[Family]:
    """Families of groups of so many slots, the most telling first; at most `most` pairs of groups.

    A pair is a group and all others: every one where there are no more than that. Else each slot
    apart from all others, then random pairs and triples; or, of more slots than that, one family
    that tells them apart, and a random slot apart from all others.
    """
    every = frozenset(range(count))
    if count > most and 2 ** (count - 1) - 1 > most:
        return _apart(count, most, seed)
    groups: dict[Group, None] = {}
    for group in _candidates(count, most, seed):
        if len(groups) == most:
            break
        if 0 < len(group) < count and every - group not in groups:
            groups[group] = None
    return [(group, every - group) for group in groups]


def _candidates(count: int, most: int, seed: int) -> itertools.chain[Group]:
    every = range(count)
    if 2 ** (count - 1) - 1 <= most:
        sizes = range(1, count // 2 + 1)
        sets = itertools.chain.from_iterable(itertools.combinations(every, k) for k in sizes)
        return itertools.chain(map(frozenset, sets))
    draws = np.random.default_rng([seed, count])
    random = (
        frozenset(draws.choice(count, size, replace=False).tolist())
        for size in itertools.cycle((2, 3))
    )
    return itertools.chain((frozenset({slot}) for slot in every), random)


def _apart(count: int, most: int, seed: int) -> list[Family]:
    """Groups of which each slot is in another half, as far as there are so many halves."""
    draws, every = np.random.default_rng([seed, count]), frozenset(range(count))
    sizes = (size for size in range(2, 2 * most - 2) if math.comb(size, size // 2) >= count)
    size = next(sizes, 2 * most - 2)
    halves = list(itertools.combinations(range(size), size // 2))
    rounds = -(-count // len(halves))
    drawn = [place for _ in range(rounds) for place in draws.permutation(len(halves)).tolist()]
    owners = list(zip(range(count), drawn, strict=False))
    family = tuple(
        frozenset(slot for slot, place in owners if group in halves[place]) for group in range(size)
    )
    single = frozenset({int(draws.integers(count))})
    return [family, (single, every - single)]


def narrowed(group: Group, wrong: Callable[[Group], object]) -> Group:
    """A part of a group that is wrong by itself, halved as long as a half is."""
    while len(group) > 1:
        slots = sorted(group)
        halves = frozenset(slots[: len(slots) // 2]), frozenset(slots[len(slots) // 2 :])
        found = next((half for half in halves if wrong(half)), None)
        if found is None:
            break
        group = found
    return group


def listed(names: Sequence[str]) -> str:
    """Names in a message: "a", "a and b", "a, b, c and 97 more"."""
    if len(names) > LISTED + 1:
        return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more"
    return joined(names)


def share(asked: int, count: int) -> str:
    """How many of the proper subsets of so many slots were asked for: "36 of 2^200 subsets"."""
    every = f"{2**count - 2:,}" if count < 24 else f"2^{count}"
    return f"{asked} of {every} subsets"
