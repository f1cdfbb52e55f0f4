"""A map around a map forwards the whole contract: none of its members is forgotten."""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import pytest

from gradproof._data.space import Slot, Space
from gradproof._maps.contract import DifferentiableMap, Observed, Trait, Transform
from gradproof._maps.limited import limited
from gradproof._maps.metered import Metered
from gradproof._maps.wrapped import Wrapped

MATRIX = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
OUTPUT = np.array([0.5, -2.0])
INPUT = np.array([1.5, 0.25, -1.0])
ARGUMENTS = {
    "x": INPUT,
    "xs": np.stack([INPUT, 3 * INPUT]),
    "u": INPUT,
    "v": OUTPUT,
    "us": np.stack([INPUT, 2 * INPUT]),
    "vs": np.stack([OUTPUT, 3 * OUTPUT]),
    "missing": frozenset({0}),
    "slots": frozenset({0}),
    "layout": "gaps",
    "layouts": ("gaps", "sliced"),
    "batching": "loops",
    "name": "hooks",
    "fn": None,
    "unit": 2.0**-8,
    "tiny": 2.0**-126,
    "seed": 3,
}
METHODS = sorted(
    name
    for name, member in vars(DifferentiableMap).items()
    if inspect.isfunction(member) and not name.startswith("_")
)
HINTS = ("resolution", "derived", "counts", "spent", "notes", "given", "point")


class Whole(DifferentiableMap):
    """A linear map that has every member of the contract, each with an answer of its own."""

    derived, spent = True, True

    def __init__(self, point=INPUT) -> None:
        self.domain = Space((Slot("x", (3,)),))
        self.codomain = Space((Slot("y", (2,)),))
        self.point, self.resolution, self.memo = point, 2.0**-24, {}
        self.counts = Counter(function=7)
        self.closed = 0

    @property
    def notes(self):
        return ("a note",)

    def close(self):
        self.closed += 1

    def value(self, x):
        return MATRIX @ x

    def values(self, xs):
        return xs @ MATRIX.T + 1

    def vjp(self, v):
        return MATRIX.T @ v

    def kept_value(self):
        return MATRIX @ self.point + 1

    def jvp(self, u):
        return MATRIX @ u

    def transposed_vjp(self, u, v):
        return MATRIX @ u, MATRIX.T @ v

    def batchings(self):
        return ("loops",)

    def vjp_batch(self, vs, batching):
        return vs @ MATRIX + len(batching)

    def jvp_batch(self, us):
        return us @ MATRIX.T

    def vjp_undefined(self, v, missing):
        return MATRIX.T @ v + len(missing)

    def jvp_undefined(self, u, missing):
        return MATRIX @ u + len(missing)

    def vjp_wrt(self, v, slots):
        return MATRIX.T @ v - len(slots)

    def compiles_subsets(self):
        return True

    def layouts(self):
        return ("gaps",)

    def vjp_layout(self, v, layout):
        return MATRIX.T @ v + len(layout)

    def input_layouts(self):
        return ("transposed",)

    def restrided(self, layout):
        return Whole(self.point + len(layout))

    def by_memory(self):
        return "as_strided"

    def gradient_traits(self, v):
        return (Trait(0, "dtype", str(v), "float64"),)

    def outside_domain(self, v):
        return ((0, (1,), float(v[0])),)

    def side_effects(self, v):
        return (("grad", str(v)),)

    def observed(self, v):
        return Observed(OUTPUT, MATRIX.T @ v, self.gradient_traits(v), self.side_effects(v))

    def unreached(self):
        return (0,)

    def at(self, x):
        return Whole(x)

    def run_at(self, x, v, layouts):
        return MATRIX @ x + len(layouts), 4 * MATRIX.T @ v, lambda u: 4 * MATRIX @ u

    def reused(self, x, v):
        return MATRIX.T @ v, MATRIX @ x, 2 * MATRIX.T @ v

    def overtaken(self, x, v):
        return None, MATRIX @ x, 3 * MATRIX.T @ v

    def carried(self):
        return ("weight_u",)

    def in_double(self, fn=None):
        return Whole(2 * self.point)

    def rounded(self, unit, tiny, seed):
        return Whole(self.point + unit + tiny + seed)

    def derivative(self, v):
        return Whole(self.point + v[0])

    def forward_derivative(self, u):
        return Whole(self.point + u[0])

    def transforms(self):
        return (Transform("hooks", "hooks"),)

    def vjp_transform(self, v, name):
        return MATRIX.T @ v + len(name)

    def jvp_transform(self, u, name):
        return MATRIX @ u + len(name)


WRAPPERS = {
    "metered": lambda inner: Metered(inner, 100),
    "limited": lambda inner: limited(inner, (None, None)),
}


def answer(map_: DifferentiableMap, name: str) -> object:
    """What a member says, arrays and maps in a form that can be compared."""
    member = getattr(map_, name)
    asked = [ARGUMENTS[parameter] for parameter in inspect.signature(member).parameters]
    return plain(member(*asked))


def plain(found: object) -> object:
    if isinstance(found, DifferentiableMap):
        return "map", plain(found.point), plain(found.value(INPUT))
    if inspect.isfunction(found):
        return plain(found(INPUT))
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, Observed):
        return plain((found.value, found.gradient, found.traits, found.effects))
    return tuple(map(plain, found)) if isinstance(found, (tuple, list)) else found


def test_the_inner_map_has_an_answer_for_every_member():
    assert set(METHODS) <= set(vars(Whole))
    assert set(METHODS) <= set(vars(Wrapped))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_says_what_its_inner_map_says(wrapper: str, name: str):
    inner = Whole()
    assert answer(WRAPPERS[wrapper](inner), name) == answer(Whole(), name)
    assert inner.closed == (name == "close")


# A limited map says itself whether a coordinate is left.
PAIRS = [
    (wrapper, name)
    for wrapper in WRAPPERS
    for name in HINTS
    if (wrapper, name) != ("limited", "spent")
]


@pytest.mark.parametrize(("wrapper", "name"), PAIRS)
def test_a_wrapper_has_the_attributes_of_its_inner_map(wrapper: str, name: str):
    found = plain(getattr(WRAPPERS[wrapper](Whole()), name))
    assert found == plain(getattr(Whole(), name))


def test_a_map_with_held_coordinates_hands_on_what_the_others_say():
    """The second coordinate lies on its border, and is not moved."""
    map_ = limited(Whole(), (None, 1.5))
    assert map_.point.tolist() == [0.25, -1.0]
    assert map_.unreached() == (0,)
    assert map_.vjp(OUTPUT).tolist() == (MATRIX.T @ OUTPUT)[1:].tolist()
    assert map_.jvp(np.ones(2)).tolist() == MATRIX[:, 1:].sum(1).tolist()
    assert map_.jvp_batch(np.ones((1, 2))).tolist() == [MATRIX[:, 1:].sum(1).tolist()]
    assert map_.value(np.zeros(2)).tolist() == (1.5 * MATRIX[:, 0]).tolist()
    assert map_.at(np.zeros(2)).point.tolist() == [0.0, 0.0]
