"""Our gradcheck in the place of `torch.autograd.gradcheck`, for tests that nobody changes.

A test module may have imported the name long before, a helper may hold it as a default, and
PyTorch's own helpers call it by another path. All of them hold one function object, so what is
exchanged is the code inside it, and nobody's name has to be found.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.gradcheck import gradcheck as _gradcheck
from torch.autograd.gradcheck import gradgradcheck as _gradgradcheck


# The code of these two becomes PyTorch's functions', and then sees PyTorch's globals, not ours.
def _in_place_of_gradcheck(*args: Any, **kwargs: Any) -> bool:
    __tracebackhide__ = True
    from gradproof.torch import gradcheck

    return gradcheck(*args, **kwargs)


def _in_place_of_gradgradcheck(*args: Any, **kwargs: Any) -> bool:
    __tracebackhide__ = True
    from gradproof.torch import gradgradcheck

    return gradgradcheck(*args, **kwargs)


_EXCHANGED: tuple[tuple[Any, Any], ...] = (
    (_gradcheck, _in_place_of_gradcheck),
    (_gradgradcheck, _in_place_of_gradgradcheck),
)


@contextmanager
def replace_gradcheck() -> Iterator[None]:
    """In this block whoever calls PyTorch's gradcheck or gradgradcheck calls ours."""
    codes = [theirs.__code__ for theirs, _ in _EXCHANGED]
    for theirs, ours in _EXCHANGED:
        theirs.__signature__ = inspect.signature(theirs)  # stays what it was: helpers read it
        theirs.__code__ = ours.__code__
    try:
        yield
    finally:
        for (theirs, _), code in zip(_EXCHANGED, codes, strict=True):
            theirs.__code__ = code
            del theirs.__signature__
