"""`gradproof.case` leaves the function as it is, and a case where one is collected."""

from __future__ import annotations

import pytest

import gradproof
from gradproof._data.cases import collected
from gradproof.errors import UsageError


def function(x):
    return x


def test_the_decorator_returns_the_function_itself_and_changes_nothing_of_it():
    before = dict(vars(function))
    with collected():
        assert gradproof.case(inputs="float64[3]")(function) is function
    assert vars(function) == before


def test_cases_are_collected_in_order_with_their_options_and_module():
    with collected() as cases:
        gradproof.case(inputs="float64[3]", order=2)(function)
        gradproof.case(inputs=("float64[4]",))(function)
    assert [(case.inputs, case.options) for case in cases] == [
        ("float64[3]", {"order": 2}),
        (("float64[4]",), {}),
    ]
    assert {case.module for case in cases} == {__name__}
    assert {case.name for case in cases} == {"function"}


def test_nothing_is_kept_outside_a_collection():
    with collected() as cases:
        pass
    gradproof.case(inputs="float64[3]")(function)
    assert cases == []


def test_what_cannot_be_called_is_refused():
    with pytest.raises(UsageError, match="case: expected a function, got int"):
        gradproof.case(inputs="float64[3]")(3)


def test_a_callable_without_a_name_is_called_by_its_type():
    class Callable:
        def __call__(self, x):
            return x

    with collected() as cases:
        gradproof.case(inputs="float64[3]")(Callable())
    assert cases[0].name == "Callable"
