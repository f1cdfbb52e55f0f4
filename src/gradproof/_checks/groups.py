"""Groups of arrays that are asked for together."""

from __future__ import annotations

import numpy as np

Group = frozenset[int]


def splits_in_two(count: int, seed: int, most_singles: int = 3) -> list[Group]:
    """Ways to split so many slots in two parts, each by one of its parts.

    Of at most `most_singles` slots each is a part by itself: with all of them together these hold,
    of any three slots, every combination. Of more there are about log2(count) random halves, of
    which for any two slots some holds one and not the other: slots are numbered at random, and a
    half holds those with a one in one binary digit.
    """
    if count <= most_singles:
        return [frozenset({slot}) for slot in range(count if count > 2 else count - 1)]
    numbers = np.random.default_rng([seed, count]).permutation(count)
    digits = range((count - 1).bit_length())
    return [
        frozenset(slot for slot in range(count) if numbers[slot] >> digit & 1) for digit in digits
    ]


def share_of_subsets(asked: int, count: int) -> str:
    """How many of the proper subsets of so many slots were asked for: "36 of 2^200 subsets"."""
    every = f"{2**count - 2:,}" if count < 24 else f"2^{count}"
    return f"{asked} of {every} subsets"
