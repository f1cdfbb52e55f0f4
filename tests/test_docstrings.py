"""The examples in docstrings of public functions run, and print what is shown."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest

CASES = [  # module, name, the package that the example imports
    *(("gradproof", name, "torch") for name in ("check", "compare", "assert_derivatives")),
    *(("gradproof", name, "numpy") for name in ("by_hand", "survey")),
    ("gradproof", "Settings", "torch"),
    *(("gradproof.torch", name, "torch") for name in ("gradcheck", "gradgradcheck", "record")),
    *(("gradproof.jax", name, "jax") for name in ("check_grads", "check_jvp", "check_vjp")),
    ("gradproof.strategies", "inputs", "torch"),
]


@pytest.mark.parametrize(
    ("module", "name"),
    [pytest.param(*case, marks=pytest.mark.needs(package)) for *case, package in CASES],
)
def test_the_example_of_a_docstring_runs(module: str, name: str) -> None:
    documented: Any = getattr(importlib.import_module(module), name)
    test = doctest.DocTestParser().get_doctest(documented.__doc__, {}, name, None, None)
    assert test.examples
    printed: list[str] = []
    results = doctest.DocTestRunner().run(test, out=printed.append)
    assert not results.failed, "".join(printed)
