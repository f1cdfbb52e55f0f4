"""Groups of arrays that are asked for together, and how a message names several arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradproof._data.visible import join_words

LISTED = 3  # names that a sentence gives

Group = frozenset[int]


def singles_and_rests(count: int) -> list[Group]:
    """Each of so many slots alone, and each left out.

    Beside all of them together these hold, of any three slots, every combination.
    """
    every = frozenset(range(count))
    singles = [frozenset({slot}) for slot in range(count)]
    return list(dict.fromkeys([*singles, *(every - single for single in singles)]))


def binary_halves(count: int, seed: int) -> list[Group]:
    """About log2(count) random groups: of any two slots some group holds one and not the other.

    Slots are numbered at random; a group holds those with a one in one binary digit.
    """
    numbers = np.random.default_rng([seed, count]).permutation(count)
    digits = range((count - 1).bit_length())
    return [
        frozenset(slot for slot in range(count) if numbers[slot] >> digit & 1) for digit in digits
    ]


def short_list(names: Sequence[str]) -> str:
    """Names in a message: "a", "a and b", "a, b, c and 97 more"."""
    if len(names) > LISTED + 1:
        return f"{', '.join(names[:LISTED])} and {len(names) - LISTED} more"
    return join_words(names)


def share_of_subsets(asked: int, count: int) -> str:
    """How many of the proper subsets of so many slots were asked for: "36 of 2^200 subsets"."""
    every = f"{2**count - 2:,}" if count < 24 else f"2^{count}"
    return f"{asked} of {every} subsets"
