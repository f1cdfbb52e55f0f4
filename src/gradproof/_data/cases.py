"""Functions that ask to be checked: `@gradproof.case(inputs=...)`, collected by `gradproof run`.

Light on purpose: a module that uses the decorator loads nothing else of gradproof.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from gradproof.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Case:
    """A function, and the inputs it wants to be checked at.

    Attributes:
        function: as the user wrote it.
        inputs: as `gradproof.case` was given them.
        options: of `gradproof.check`.
        module: `__name__` of the module in which the decorator was applied.
    """

    function: Callable[..., Any]
    inputs: Any
    options: Mapping[str, Any]
    module: str

    @property
    def name(self) -> str:
        named: str = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return named.rpartition("<locals>.")[2]


# Where decorators leave their cases; None outside `collected`, where they leave none.
_CASES: ContextVar[list[Case] | None] = ContextVar("gradproof_cases", default=None)


def case(*, inputs: Any, **options: Any) -> Callable[[Function], Function]:
    """Mark a function for `gradproof run FILE`, which checks its derivatives; change nothing.

    Args:
        inputs: what `gradproof.check` takes; a text like ``"float64[8,16]"``, alone or inside
            lists, tuples and dicts, stands for an array drawn from the run's seed. A function
            without parameters is called for the inputs when the case runs.
        **options: of `gradproof.check`; texts inside `kwargs` stand for arrays likewise.

    Returns:
        A decorator that returns its function as it is. Several on one function are several cases.

    Raises:
        UsageError: the decorated object cannot be called.
    """
    module = str(sys._getframe(1).f_globals.get("__name__", ""))

    def mark(function: Function) -> Function:
        if not callable(function):
            raise UsageError(f"case: expected a function, got {type(function).__name__}")
        cases = _CASES.get()
        if cases is not None:
            cases.append(Case(function, inputs, dict(options), module))
        return function

    return mark


@contextlib.contextmanager
def collected() -> Iterator[list[Case]]:
    """The cases of every module imported in this block, in the order of their decorators."""
    cases: list[Case] = []
    token = _CASES.set(cases)
    try:
        yield cases
    finally:
        _CASES.reset(token)
