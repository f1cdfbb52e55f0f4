"""Bad arguments of `check`: one sentence that begins with the name of the argument."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest

import gradproof
from flat_options import check
from gradproof.errors import UsageError

POINT = np.array([0.3, -0.7])


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no such luck")


def refused(fn=np.sin, inputs=POINT, *more, **options):
    """The sentence with which `check` refuses."""
    options.setdefault("vjp", lambda x, v: np.cos(x) * v)
    with pytest.raises(UsageError) as caught:
        check(fn, inputs, *more, seed=options.pop("seed", 0), **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 900
    return sentence


ARRAY = np.ones(3)
LIST = "expected a list of"
NO_SEQUENCES = [5, 2.5, ARRAY, Unprintable(), {"a": 1}, b"backward", "backward", len]


@pytest.mark.parametrize("name", ["checks", "references", "names", "args"])
@pytest.mark.parametrize("value", NO_SEQUENCES, ids=lambda value: type(value).__name__)
def test_what_is_no_sequence(name, value):
    assert refused(**{name: value}).startswith(f"{name}: {LIST}")


@pytest.mark.parametrize(
    "value", [5, ARRAY, Unprintable(), "compiled"], ids=lambda v: type(v).__name__
)
def test_transforms_that_are_neither_a_flag_nor_names(value):
    assert refused(transforms=value).startswith("transforms: expected")


@pytest.mark.parametrize("value", [2.5, ARRAY, Unprintable(), len], ids=lambda v: type(v).__name__)
def test_a_selection_that_is_none(value):
    assert refused(wrt=value).startswith("wrt: expected a list of names, patterns or positions")
    assert refused(wrt=[value]).startswith("wrt: expected names, patterns or positions, got")


@pytest.mark.parametrize(
    "value", [5, [("a", 1)], "a", Unprintable()], ids=lambda v: type(v).__name__
)
def test_keyword_arguments_that_are_no_mapping(value):
    assert refused(kwargs=value).startswith("kwargs: expected a dict")
    assert refused(kwargs={1: value}) == "kwargs: expected names as keys, got 1"


@pytest.mark.parametrize("name", ["masked", "sweep"])
@pytest.mark.parametrize(
    "value", [ARRAY, np.ones(1), "yes", [True], 2, Unprintable()], ids=lambda v: type(v).__name__
)
def test_what_is_no_flag(name, value):
    assert refused(**{name: value}).startswith(f"{name}: expected True or False, got ")


@pytest.mark.parametrize("name", ["rtol", "atol", "order", "seed", "budget", "budget_seconds"])
@pytest.mark.parametrize(
    "value", [ARRAY, "1", 1j, [1], Unprintable(), -(10**5000), 10**5000], ids=range(7)
)
def test_numbers_that_are_none(name, value):
    if (name, value if isinstance(value, int) else 0) == ("budget", 10**5000):
        return  # a budget as good as none
    assert refused(**{name: value}).startswith(f"{name}: expected")


@pytest.mark.parametrize("name", ["vjp", "jvp", "hess"])
def test_derivatives_that_are_no_functions(name):
    assert refused(**{name: 5}) == f"{name}: expected a function, got 5"


def test_long_representations_are_cut():
    assert len(refused(checks="x" * 10**6)) < 300
    assert len(refused(checks=["x" * 10**6])) < 900
    assert len(refused(masked=[[1] * 1000] * 1000)) < 300
    assert "got an object of type int" in refused(seed=10**5000)


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"checks": ["backwrd"]}, "checks: unknown 'backwrd' (did you mean 'backward'?)"),
        (
            {"references": ["reference", "nativ"]},
            "references: unknown 'nativ' (did you mean 'native'?)",
        ),
        ({"transforms": ["compile"]}, "transforms: unknown 'compile' (did you mean 'compiled'?)"),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_the_nearest(options, near):
    assert refused(**options).startswith(f"{near}; choose from ")


def test_an_earlier_name_of_a_check_is_refused_with_the_present_one():
    assert refused(checks=["hygiene"]) == "checks: 'hygiene' is called 'side_effects'"


@dataclasses.dataclass
class Node:
    value: object
    next: object = None


def nested(kind, deep):
    value = POINT
    for _ in range(deep):
        value = kind(value)
    return value


KINDS = [
    lambda value: [value],
    lambda value: (value, 1),
    lambda value: {"a": value},
    lambda value: collections.OrderedDict(a=value),
    lambda value: Node(1.0, value),
    lambda value: [value, value],
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deep", [101, 2000])
def test_containers_nested_too_deep(kind, deep):
    deeply = nested(kind, deep)
    assert refused(inputs=(deeply,)).startswith("inputs: a container nested more than 100 deep")
    assert refused(kwargs={"a": deeply}).startswith("kwargs: a container nested more than 100")
    assert refused(args=(deeply,)).startswith("args: a container nested more than 100")
    assert refused(kwargs=None, names=deeply).startswith("names: expected a list of names")


def test_containers_that_hold_themselves():
    ring = [POINT]
    ring.append(ring)
    both = Node(ring)
    both.next = {"a": both}
    for one in (ring, both, (1, ring)):
        assert "holds itself" in refused(inputs=one)
        assert refused(checks=one).startswith("checks: expected a list of names")
    assert refused(wrt=ring).startswith("wrt: expected names, patterns or positions, got array")


def test_a_function_needs_its_derivative():
    with pytest.raises(UsageError, match=r"^by_hand: expected at least one of"):
        gradproof.by_hand(np.sin)
    with pytest.raises(UsageError, match=r"^fn: expected a function"):
        gradproof.by_hand(3, vjp=np.multiply)
    with pytest.raises(UsageError, match=r"^inputs: .* gradproof.by_hand\(fn, vjp=...\)"):
        gradproof.check(np.sin, POINT)


MATRIX = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("given", [lambda matrix: matrix, lambda matrix: lambda x: matrix])
@pytest.mark.parametrize("shape", [(3, 2), (2, 2), (6,), (3, 3, 2)])
def test_a_jacobian_of_another_shape_is_refused_with_both(given, shape):
    said = refused(lambda x: MATRIX @ x, np.ones(3), jac=given(np.zeros(shape)), vjp=None)
    assert said == f"jac: expected a matrix of shape (2, 3), got one of shape {shape}"


def test_one_jacobian_of_several_inputs_is_refused_likewise():
    def fn(x, y):
        return MATRIX @ x + y

    inputs = (np.ones(3), np.ones(2))
    said = refused(fn, inputs, jac=np.zeros((5, 2)), vjp=None)
    assert said == "jac: expected a matrix of shape (2, 5), got one of shape (5, 2)"
    said = refused(fn, inputs, jac=(MATRIX, np.eye(3)), vjp=None)
    assert said == "jac: expected a matrix of shape (2, 2), got one of shape (3, 3)"
    said = refused(fn, inputs, jac=(MATRIX,), vjp=None)
    assert said.startswith("jac: expected one matrix, or blocks, 1 outputs by 2 inputs: ")


@pytest.mark.parametrize("said", ["text", [None], np.array([(1.0, 2)], dtype="f8,i4")], ids=str)
def test_a_matrix_that_is_no_matrix_of_numbers_is_refused(said):
    sentence = refused(np.sin, POINT[:1], jac=lambda x: said, vjp=None)
    assert sentence.startswith("jac: expected a matrix of shape (1, 1), got ")


def test_positional_arguments_one_after_the_other():
    """The most natural mistake of all."""
    sentence = refused(np.add, POINT, POINT)
    assert sentence.startswith("kwargs: expected a dict of keyword arguments, got array(")
    assert sentence.endswith("positional arguments go together in a tuple: check(add, (x, y))")
