"""Hypothesis strategies for property tests: inputs at which derivatives are often wrong.

They need Hypothesis (the extra `hypothesis`) and the framework of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from gradproof import _adapters
from gradproof._adapters.samples import SampleCall, Samples
from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import positional_arguments
from gradproof.errors import UsageError

__all__ = ["inputs"]


def inputs(
    fn: Callable[..., Any] | ByHand,
    examples: Any,
    *,
    shapes: bool = True,
    seed: int = 0,
) -> st.SearchStrategy[tuple[Any, ...]]:
    """Positional arguments like the given ones: these first, then all inputs that a sweep tries.

    Some are zeros, ties, other signs and scales, and with `shapes` other sizes. `fn` need not
    accept all of them: use `hypothesis.assume` or ``shapes=False``. Failures shrink towards the
    given arguments.

    Args:
        fn: the function; only the names of its parameters are used.
        examples: its arguments, as `inputs` of `gradproof.check`.
        shapes: whether shapes change too.
        seed: seed of the values of other shapes.

    Returns:
        A strategy of tuples of arguments.

    Raises:
        UsageError: no argument is an array that can be varied.

    Example:
        >>> import torch
        >>> from hypothesis import given
        >>> from gradproof import assert_derivatives, strategies
        >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        >>> @given(strategies.inputs(torch.sin, (x,)))
        ... def test_sin(inputs):
        ...     assert_derivatives(torch.sin, inputs)
    """
    arguments = positional_arguments(fn, examples)
    function = fn.fn if isinstance(fn, ByHand) else fn
    adapter = _adapters.find_adapter(arguments, {}, function)
    samples = None if adapter is None else Samples(adapter, function, arguments)
    if samples is None or not samples.values:
        raise UsageError("examples: expected at least one array of a framework that can be varied")
    changed = (case for case in samples.cases(seed) if shapes or not case.resized)
    return st.sampled_from([SampleCall("as given", {}), *changed]).map(
        lambda one: samples.call(one)[0]
    )
