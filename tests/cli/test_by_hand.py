"""Derivatives written by hand, named on the command line; no framework is needed."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from gradproof import cli
from gradproof._adapters.numpy.samples import array_from_spec, construct
from gradproof._cases.arrays import used_by
from gradproof._data.specs import parse

OPS = """
import numpy as np

def model(x):
    return np.sin(x)

def backward(x, v):
    return v * np.cos(x)

def wrong(x, v):
    return v * np.sin(x)

def pair(x):
    return (x**2).sum(), 2 * x

def weighted(x, y, weight=1.0):
    return weight * x * y

def weighted_back(x, y, v, weight=1.0):
    return weight * y * v, weight * x * v
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    file = tmp_path / "hand.py"
    file.write_text(OPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return file


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        ("model float64[4] --vjp {}:backward", 0),
        ("model float64[4] --vjp {}:wrong", 1),
        ("pair float64[4] --grad True", 0),
        ("weighted float64[4] float64[4] --vjp {}:weighted_back", 0),
        ("weighted float64[4] float64[4] --vjp {}:weighted_back --kwarg weight=float64[4]", 0),
    ],
)
def test_a_claim_is_held_against_the_function(ops, argv, status, capsys):
    name, *rest = [word.format(ops) for word in argv.split()]
    assert cli.main(["check", f"{ops}:{name}", *rest]) == status
    assert f"gradproof  {name}  " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "more", "says"),
    [
        ("bfloat16[2]", [], "NumPy has no bfloat16"),
        ("float64[2]!nograd", [], "hand others over by keyword"),
        ("float64[2]", ["--device", "cuda"], "no device"),
    ],
)
def test_what_numpy_has_not_is_refused_in_one_sentence(ops, spec, more, says, capsys):
    assert cli.main(["check", f"{ops}:model", spec, "--vjp", f"{ops}:backward", *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int64", "bool"])
def test_a_described_array_has_its_dtype_and_shape(dtype):
    array = array_from_spec(parse(f"{dtype}[2,3]"), np.random.default_rng(0))
    assert array.dtype == dtype
    assert array.shape == (2, 3)


def test_the_framework_is_the_one_that_a_module_imports_from(monkeypatch):
    names = {"plain": {}, "whole": {"jax": ModuleType("jax")}, "part": {"f": type("f", (), {})}}
    names["part"]["f"].__module__ = "torch.nn"
    for name, contents in names.items():
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules[name]).update(contents)
    found = [used_by(name) for name in ("plain", "whole", "part", "jax.numpy", "missing", None)]
    assert found == [None, "jax", "torch", "jax", None, None]


def test_what_a_factory_draws_is_seeded_and_the_users_state_is_kept():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 # the user's
    first, again, other = (construct(np.random.rand, (3,), {}, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).all()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002 # likewise
