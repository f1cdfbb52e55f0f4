"""Hypothesis strategies: inputs at which derivatives are often wrong, for property tests.

    from hypothesis import given
    from gradproof import assert_derivatives, strategies

    @given(strategies.inputs(my_op, (x, weight)))
    def test_my_op(inputs):
        assert_derivatives(my_op, inputs)

Needs hypothesis (the extra `hypothesis`), and the framework of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradproof import _adapters
from gradproof._adapters import FRAMEWORKS
from gradproof._adapters.samples import SampleCall, Samples
from gradproof._data.inputs import split_arguments
from gradproof._data.specs import ArraySpec
from gradproof.errors import UsageError

__all__ = ["arrays", "inputs"]


def inputs(
    fn: Callable[..., Any],
    examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    shapes: bool = True,
    seed: int = 0,
) -> st.SearchStrategy[tuple[Any, ...]]:
    """Positional arguments like the given ones: these themselves, then all that a sweep tries.

    Zeros, ties, signs, scales; with `shapes`, other sizes. Not all are inputs that `fn` takes: use
    `hypothesis.assume`, or `shapes=False`. What fails shrinks towards the given arguments.

    Args:
        fn: the function; only the names of its parameters are used.
        examples: its arguments, as for `gradproof.check`.
        kwargs: keyword arguments, which stay as they are.
        shapes: whether shapes are changed too.
        seed: of the values of other shapes.

    Raises:
        UsageError: no argument is an array of a framework that can be varied.
    """
    arguments, kwargs = split_arguments(fn, examples, kwargs)
    adapter = _adapters.find_adapter(arguments, kwargs, fn)
    samples = None if adapter is None else Samples(adapter, fn, arguments)
    if samples is None or not samples.values:
        raise UsageError("examples: expected at least one array of a framework that can be varied")
    changed = (case for case in samples.cases(seed) if shapes or not case.resized)
    return st.sampled_from([SampleCall("as given", {}), *changed]).map(
        lambda one: samples.call(one)[0]
    )


def arrays(
    spec: str, *, framework: str = "torch", shapes: bool = False, seed: int = 0
) -> st.SearchStrategy[Any]:
    """Arrays like a described one: `float64[3,4]`, as on the command line.

    Args:
        spec: ``DTYPE[SIZE,...]``.
        framework: whose arrays.
        shapes: whether the shape is changed too.
        seed: of the values.

    Raises:
        UsageError: `spec` is none, or the framework is unknown.
    """
    if framework not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS)
        raise UsageError(f"framework: expected one of {known}, got {framework!r}")
    described = ArraySpec.parse(spec)
    samples = _adapters.samples_module(framework)
    values = described.drawn_values(np.random.default_rng(seed))
    example = samples.array_from_numpy(values, described.dtype)

    def identity(x: Any) -> Any:
        return x

    return inputs(identity, (example,), shapes=shapes, seed=seed).map(lambda found: found[0])
