"""Sets of coordinates in words; what the words say, read again, is exactly the set."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof._data.space import Slot, Space
from gradproof._explain.coordinates import words_of_coordinates as described


def space_of(*shapes: tuple[int, ...], parts: tuple[str, ...] = ("",)) -> Space:
    return Space(tuple(Slot(name, s, parts) for name, s in zip("xyz", shapes, strict=False)))


def chosen(space: Space, **picked: object) -> np.ndarray:
    """A mask of the space with these indices true, by slot."""
    pieces = []
    for slot in space.slots:
        mask = np.zeros((*slot.shape, len(slot.parts)), dtype=bool)
        if slot.name in picked:
            mask[picked[slot.name]] = True
        pieces.append(mask.reshape(-1))
    return np.concatenate(pieces)


def read_slot(words: str, space: Space) -> tuple[str, np.ndarray]:
    """The entries of one array that words for a part of it mean."""
    slots = {slot.name: slot for slot in space.slots}
    if found := re.match(r"the (first|last) ([\d,]+) of ([\d,]+) (\w+) of ([a-z]+)(.*)$", words):
        which, count, size, noun, name, order = found.groups()
        mask = np.zeros(slots[name].shape, dtype=bool)
        lines = mask if noun == "rows" or mask.ndim == 1 else mask.reshape(-1)
        assert int(size.replace(",", "")) == len(lines)
        assert bool(order) == (noun == "entries" and mask.ndim > 1)
        number = int(count.replace(",", ""))
        lines[slice(number) if which == "first" else slice(-number, None)] = True
        return name, mask
    name = words.split("[")[0].split(".")[0]
    mask = np.zeros(slots[name].shape, dtype=bool)
    target = mask.reshape(-1) if ".ravel()" in words else mask
    target[eval(f"numpy.s_{words[words.index('[') :]}", {"numpy": np})] = True
    return name, mask


def read(words: str, space: Space) -> dict[str, np.ndarray]:
    """What words for a part of one array mean."""
    found = {slot.name: np.zeros(slot.shape, dtype=bool) for slot in space.slots}
    listed = "]" in words
    for piece in re.split(r"(?<=\]) and |(?<=\]), (?=[a-z])", words) if listed else [words]:
        piece = piece.removeprefix("all of ")
        if piece in found:
            found[piece][...] = True
        else:
            name, mask = read_slot(piece, space)
            found[name] |= mask
    return found


@pytest.mark.parametrize(
    ("shape", "picked", "words"),
    [
        ((67,), np.s_[64:], "the last 3 of 67 entries of x"),
        ((67, 4), np.s_[64:], "the last 3 of 67 rows of x"),
        ((67, 4), np.s_[:64], "the first 64 of 67 rows of x"),
        ((4, 128), np.s_[:, 64:], "x[:, 64:]"),
        ((4, 128), np.s_[:, 5], "x[:, 5]"),
        ((4, 5, 6), np.s_[:, :, 0], "x[:, :, 0]"),
        ((12,), np.s_[1::3], "x[1::3]"),
        ((12,), np.s_[::2], "x[::2]"),
        ((8, 8), np.s_[2:4, 3:7], "x[2:4, 3:7]"),
        ((5, 6), np.s_[4, 5], "x[4, 5]"),
        ((9,), [1, 8], "x[1] and x[8]"),
        ((4, 4), np.triu_indices(4, 1), ""),
        ((), (), "x"),
        ((5,), np.s_[:], "all of x"),
    ],
)
def test_the_usual_sets_have_the_usual_words(shape, picked, words):
    space = space_of(shape)
    assert described(chosen(space, x=picked), space) == words


SHAPES = st.lists(st.integers(1, 6), min_size=0, max_size=3).map(tuple)


@st.composite
def a_set(draw):
    """A space and a set in it: any, or made of slices, which is what is described."""
    space = space_of(draw(SHAPES))
    mask = np.zeros(space.size, dtype=bool)
    for position, slot in enumerate(space.slots):
        part = mask[space.span(position)].reshape(slot.shape)
        for _ in range(draw(st.integers(0, 2))):
            lines = tuple(draw(st.slices(size)) for size in slot.shape)
            part[lines] = draw(st.booleans()) or True
    flips = draw(st.lists(st.integers(0, space.size - 1), max_size=2)) if space.size else []
    mask[flips] ^= True
    return space, mask


@settings(max_examples=400, deadline=None)
@given(a_set())
def test_words_read_again_give_exactly_the_set(given_):
    space, mask = given_
    words = described(mask, space) if mask.any() else ""
    if words:
        meant = read(words, space)
        again = np.concatenate([meant[slot.name].reshape(-1) for slot in space.slots])
        assert (again == mask).all(), words
