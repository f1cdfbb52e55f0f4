"""Spaces: arrays with names become one real vector, and come back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof._data.records import Place
from gradproof._data.space import Slot, Space, norm

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
PARTS = st.sampled_from([("",), ("real", "imag")])


@st.composite
def spaces(draw) -> Space:
    kinds = draw(st.lists(st.tuples(SHAPES, PARTS), min_size=1, max_size=4))
    return Space(tuple(Slot(f"a{k}", shape, parts) for k, (shape, parts) in enumerate(kinds)))


def _vector(space: Space) -> np.ndarray:
    return np.arange(1.0, space.size + 1)


def unflattened(space: Space, vector: np.ndarray) -> list[np.ndarray]:
    """One array per slot."""
    shapes = [(*slot.shape, len(slot.parts)) for slot in space.slots]
    pieces = [vector[space.span(k)].reshape(shape) for k, shape in enumerate(shapes)]
    pairs = zip(pieces, space.slots, strict=True)
    return [p[..., 0] + 1j * p[..., 1] if len(s.parts) > 1 else p[..., 0] for p, s in pairs]


@given(spaces())
def test_locating_names_every_coordinate_once_and_the_one_that_holds_its_value(
    space: Space,
) -> None:
    arrays, places = unflattened(space, _vector(space)), set()
    for coordinate in range(space.size):
        place = space.locate(coordinate)
        places.add(place)
        entry = arrays[place.slot][place.index]
        value = entry.imag if place.part == "imag" else entry.real
        assert value == coordinate + 1
        assert place.name == space.slots[place.slot].name
        assert coordinate in range(space.size)[space.span(place.slot)]
    assert len(places) == space.size


@given(spaces(), st.integers(1, 100))
def test_outside_the_space_there_is_nothing(space: Space, beyond: int) -> None:
    for coordinate in (space.size, space.size + beyond, -beyond):
        with pytest.raises(IndexError, match="outside a space"):
            space.locate(coordinate)


@given(spaces())
def test_sizes_and_spans_add_up(space: Space) -> None:
    assert space.size == sum(slot.size for slot in space.slots)
    spans = [space.span(k) for k in range(len(space.slots))]
    assert spans[0].start == 0
    assert spans[-1].stop == space.size
    assert all(a.stop == b.start for a, b in itertools.pairwise(spans))


def test_a_space_of_nothing_is_empty() -> None:
    space = Space(())
    assert space.size == 0
    assert unflattened(space, np.zeros(0)) == []


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("x", 0, ()), "x"),
        (Place("weight", 0, (1, 2)), "weight[1, 2]"),
        (Place("z", 1, (0,), "imag"), "z[0].imag"),
        (Place("params['a'][0]", 2, (), "real"), "params['a'][0].real"),
    ],
)
def test_places_read_like_the_users_code(place: Place, text: str) -> None:
    assert str(place) == text


def test_a_slot_of_some_entries_is_located_in_the_whole_array() -> None:
    slot = Slot("sparse", (3,), entries=np.asarray([[0, 5], [2, 1], [9, 9]]))
    space = Space((Slot("x", (2,)), slot))
    assert [str(space.locate(k)) for k in (2, 3, 4)] == [
        "sparse[0, 5]", "sparse[2, 1]", "sparse[9, 9]"
    ]  # fmt: skip


def test_some_complex_entries_have_two_coordinates_each() -> None:
    slot = Slot("s", (2,), ("real", "imag"), entries=np.asarray([[7], [3]]))
    space = Space((slot,))
    assert [str(space.locate(k)) for k in range(4)] == [
        "s[7].real", "s[7].imag", "s[3].real", "s[3].imag"
    ]  # fmt: skip


def test_a_norm_whose_square_is_no_number_is_right():
    with np.errstate(all="ignore"):  # as every run
        for size in (1e300, 1.0, 1e-300):
            assert norm(size * np.asarray([3.0, 4.0])) == pytest.approx(5 * size)
    assert norm(np.zeros(2)) == norm(np.zeros(0)) == 0
    assert norm(np.asarray([np.inf, 1.0])) == np.inf
