"""Bad arguments of `check`: one sentence that begins with the name of the argument."""

from __future__ import annotations

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
HUGE = 10**5000
NO_SEQUENCES = [5, 2.5, ARRAY, Unprintable(), {"a": 1}, b"backward", "backward", len]
NO_FLAGS = [ARRAY, np.ones(1), "yes", [True], 2, Unprintable()]
NO_NUMBERS = [ARRAY, "1", 1j, [1], Unprintable(), -HUGE]
# Argument -> what is expected, and values that are something else.
REFUSED = {
    **dict.fromkeys(["checks", "references", "names", "args"], ("a list of", NO_SEQUENCES)),
    **dict.fromkeys(["masked", "sweep"], ("True or False, got ", NO_FLAGS)),
    **dict.fromkeys(["rtol", "atol", "order", "seed", "budget_seconds"], ("", [*NO_NUMBERS, HUGE])),
    "budget": ("", NO_NUMBERS),  # a huge one is as good as none
    **dict.fromkeys(["vjp", "jvp", "hess"], ("a function, got 5", [5])),
    "transforms": ("", [5, ARRAY, Unprintable(), "compiled"]),
    "wrt": ("a list of names, patterns or positions", [2.5, ARRAY, Unprintable(), len]),
    "kwargs": ("a dict", [5, [("a", 1)], "a", Unprintable()]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_of_another_kind_is_refused_by_name(name):
    expected, values = REFUSED[name]
    for value in values:
        assert refused(**{name: value}).startswith(f"{name}: expected {expected}")


def test_names_of_another_kind_are_refused():
    assert refused(wrt=[2.5]) == "wrt: expected names, patterns or positions, got 2.5"
    assert refused(kwargs={1: 2}) == "kwargs: expected names as keys, got 1"
    assert refused(names=[""]) == "names: expected different ones, none empty, got ['']"


def test_long_representations_are_cut():
    assert len(refused(checks="x" * 10**6)) < 300
    assert len(refused(checks=["x" * 10**6])) < 900
    assert len(refused(masked=[[1] * 1000] * 1000)) < 300
    assert "got an object of type int" in refused(seed=HUGE)


@pytest.mark.parametrize(
    ("name", "given", "near"),
    [
        ("checks", "backwrd", "backward"),
        ("references", "nativ", "native"),
        ("transforms", "compile", "compiled"),
    ],
)
def test_an_unknown_name_lists_the_known_ones_and_the_nearest(name, given, near):
    said = f"{name}: unknown '{given}' (did you mean '{near}'?); choose from "
    assert refused(**{name: [given]}).startswith(said)


def test_an_unknown_keyword_is_refused_as_python_does_with_the_nearest():
    with pytest.raises(TypeError, match=r"check\(\) has no option 'ordre' \(did you mean 'order'"):
        gradproof.check(np.sin, POINT, ordre=2)


def test_a_keyword_of_by_hand_is_told_where_it_belongs():
    with pytest.raises(
        TypeError, match=r"check\(\) takes no grad=: .*gradproof\.by_hand\(fn, grad="
    ):
        gradproof.check(np.sin, POINT, grad=np.cos)


@pytest.mark.parametrize("name", ["masked", "accumulate", "references", "full_jacobian"])
def test_an_option_of_settings_is_told_where_it_belongs(name):
    said = rf"check\(\) takes no {name}=: pass settings=gradproof\.Settings\({name}="
    with pytest.raises(TypeError, match=said):
        gradproof.check(np.sin, POINT, **{name: True})


def test_compare_names_its_own_arguments():
    for arguments, sentence in [
        ((3, np.sin), "fused: expected a function, got 3"),
        ((np.sin, "s"), "eager: expected a function, got 's'"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            gradproof.compare(*arguments, POINT)


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
