"""Groups of slots that are asked for together, so that few questions tell all slots apart.

A question splits the slots in two: a group, and the others. What hangs on one slot by itself is
seen by the two groups {i} and all but {i}; these see whatever hangs on up to three slots. Where
there are too many slots for that, the slots are numbered at random and split by each binary digit
of the number: of any two slots, some group then holds the one and not the other, in 2 log2(n)
groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

Group = frozenset[int]
LISTED = 3  # names that a message gives


def splits(count: int, most: int, seed: int) -> list[tuple[Group, Group]]:
    """At most `most` ways to split so many slots in two, the most telling first.

    Every way where there are no more than that. Else each slot apart from all others, then random
    pairs and triples; or, of more slots than that, halves by the digits of a random numbering, then
    a random pair, a random triple and random single slots.
    """
    every = frozenset(range(count))
    groups: dict[Group, None] = {}
    for group in _candidates(count, most, seed):
        if len(groups) == most:
            break
        if 0 < len(group) < count and every - group not in groups:
            groups[group] = None
    return [(group, every - group) for group in groups]


def _candidates(count: int, most: int, seed: int) -> itertools.chain[Group]:
    every, draws = range(count), np.random.default_rng([seed, count])
    singles = [frozenset({slot}) for slot in every]
    if count < 64 and 2 ** (count - 1) - 1 <= most:
        sizes = range(1, count // 2 + 1)
        sets = itertools.chain.from_iterable(itertools.combinations(every, k) for k in sizes)
        return itertools.chain(map(frozenset, sets))
    random = (
        frozenset(draws.choice(count, size, replace=False).tolist())
        for size in itertools.cycle((2, 3))
    )
    if count <= most:
        return itertools.chain(singles, random)
    order = draws.permutation(count).tolist()
    digits = [
        frozenset(slot for slot in every if order[slot] >> digit & 1)
        for digit in range((count - 1).bit_length())
    ]
    drawn = [singles[slot] for slot in draws.choice(count, most, replace=False)]
    return itertools.chain(digits, itertools.islice(random, 2), drawn)


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
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def share(asked: int, count: int) -> str:
    """How many of the proper subsets of so many slots were asked for: "36 of 2^200 subsets"."""
    every = f"{2**count - 2:,}" if count < 24 else f"2^{count}"
    return f"{asked} of {every} subsets"
