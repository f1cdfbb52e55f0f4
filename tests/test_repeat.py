"""The line that repeats a check is one that can be run."""

from __future__ import annotations

import functools

import pytest
import torch

import gradproof


def scaled(x, weight, power=2):
    return weight * x**power


X = torch.linspace(1, 2, 3, dtype=torch.float64, requires_grad=True)
OPTIONS = {"seed": 3, "checks": ["linearity"]}


def repeat(fn, inputs, kwargs=None, **options) -> str:
    return gradproof.check(fn, inputs, kwargs, **{**OPTIONS, **options}).repeat


def test_it_names_inputs_by_the_parameters_and_options_as_given():
    line = repeat(scaled, (X, 2.0), {"power": 3}, order=1, domain={"x": (0, None)})
    assert line == (
        'gradproof.check(scaled, (x, 2.0), {"power": 3}, checks=["linearity"], '
        'order=1, domain={"x": (0, None)}, seed=3)'
    )


def test_it_repeats_the_run():
    line = repeat(scaled, (X, X.detach()))
    names = {"gradproof": gradproof, "scaled": scaled, "x": X, "weight": X.detach()}
    report = eval(line, names)
    assert report.repeat == line
    assert report.calls == gradproof.check(scaled, (X, X.detach()), **OPTIONS).calls


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        (X, "x"),
        ((X,), "(x,)"),
        ([X, (1,)], "(x, (1,))"),
        ((X, float("inf")), "(x, weight)"),
    ],
)
def test_inputs_are_written_as_they_were_given(inputs, shown):
    def fn(x, weight=1.0):
        return x * 2

    assert repeat(fn, inputs) == f'gradproof.check(fn, {shown}, checks=["linearity"], seed=3)'


def test_functions_among_the_options_are_named():
    assert "reference=scaled" in repeat(lambda_free, (X, 1.0), reference=scaled)


def lambda_free(x, weight):
    return weight * x * x


@pytest.mark.parametrize(
    "fn", [lambda x: x * 2, functools.partial(scaled, weight=1), torch.nn.Tanh()]
)
def test_what_has_no_name_gets_no_line(fn):
    assert repeat(fn, (X,)) == ""


def test_a_fresh_seed_is_recorded():
    report = gradproof.check(scaled, (X, 2.0), checks=["linearity"])
    assert f"seed={report.seed})" in report.repeat


def test_a_compiled_function_has_its_own_name_only():
    assert repeat(torch.tanh, (X,)).startswith("gradproof.check(tanh, (x0,), ")
