"""Spaces: arrays with names become one real vector, and come back."""

from __future__ import annotations

import itertools
import math

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
    """One array per slot: the inverse of `flatten`."""
    shapes = [(*slot.shape, len(slot.parts)) for slot in space.slots]
    pieces = [vector[space.span(k)].reshape(shape) for k, shape in enumerate(shapes)]
    pairs = zip(pieces, space.slots, strict=True)
    return [p[..., 0] + 1j * p[..., 1] if len(s.parts) > 1 else p[..., 0] for p, s in pairs]


@given(spaces())
def test_a_vector_survives_unflattening_and_flattening(space: Space) -> None:
    vector = _vector(space)
    arrays = unflattened(space, vector)
    assert [array.shape for array in arrays] == [slot.shape for slot in space.slots]
    assert np.array_equal(space.flatten(arrays), vector)


@given(spaces(), st.integers(0, 2**32 - 1))
def test_arrays_survive_flattening_and_unflattening(space: Space, seed: int) -> None:
    arrays = _arrays(space, seed)
    vector = space.flatten(arrays)
    assert vector.shape == (space.size,)
    assert vector.dtype == np.float64
    for array, back in zip(arrays, unflattened(space, vector), strict=True):
        assert np.array_equal(array, back)
        assert np.iscomplexobj(array) == np.iscomplexobj(back)


def _arrays(space: Space, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for slot in space.slots:
        array = np.asarray(rng.standard_normal(slot.shape))
        if len(slot.parts) == 2:
            array = array + 1j * np.asarray(rng.standard_normal(slot.shape))
        arrays.append(array)
    return arrays


@given(spaces(), st.integers(0, 2**32 - 1))
def test_the_inner_product_of_flat_arrays_is_the_real_part_of_the_complex_one(
    space: Space, seed: int
) -> None:
    left, right = _arrays(space, seed), _arrays(space, seed + 1)
    expected = sum(np.vdot(a, b).real for a, b in zip(left, right, strict=True))
    found = space.flatten(left) @ space.flatten(right)
    assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)


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


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 3, 1), ()])
def test_a_wrong_shape_is_refused_by_name(shape: tuple[int, ...]) -> None:
    space = Space((Slot("weight", (2, 3)),))
    with pytest.raises(ValueError, match=r"weight: expected shape \(2, 3\), got"):
        space.flatten([np.zeros(shape)])


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_arrays_is_refused(count: int) -> None:
    space = Space((Slot("a", (2,)), Slot("b", (2,))))
    with pytest.raises(ValueError):
        space.flatten([np.zeros(2)] * count)


def test_one_slot_refuses_two_arrays() -> None:
    with pytest.raises(ValueError):
        Space((Slot("a", (2,)),)).flatten([np.zeros(2), np.zeros(2)])


def test_a_space_of_nothing_is_empty() -> None:
    space = Space(())
    assert space.size == 0
    assert space.flatten([]).shape == (0,)
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


def test_integers_and_single_precision_become_double() -> None:
    space = Space((Slot("a", (2,)), Slot("b", (1,))))
    flat = space.flatten([np.asarray([1, 2]), np.asarray([0.5], dtype=np.float32)])
    assert flat.dtype == np.float64
    assert flat.tolist() == [1.0, 2.0, 0.5]


def test_a_norm_whose_square_is_no_number_is_right():
    with np.errstate(all="ignore"):  # as every run
        for size in (1e300, 1.0, 1e-300):
            assert norm(size * np.asarray([3.0, 4.0])) == pytest.approx(5 * size)
    assert norm(np.zeros(2)) == norm(np.zeros(0)) == 0
    assert norm(np.asarray([np.inf, 1.0])) == np.inf
