"""Functions that ask to be checked: `@gradproof.case(inputs=...)`, collected by `gradproof run`.

Light on purpose: a module that uses the decorator loads nothing else of gradproof.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gradproof.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Case:
    """A function, and the inputs it wants to be checked at.

    Attributes:
        function: as the user wrote it.
        inputs: as `gradproof.case` takes them.
        options: of `gradproof.check`.
        module: name of the module that says which framework described inputs are of: that in which
            `gradproof.case` was applied; "" for the function's own.
    """

    function: Callable[..., Any]
    inputs: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    module: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"case: expected a function, got {type(self.function).__name__}")
        if not self.module:
            module = getattr(self.function, "__module__", type(self.function).__module__)
            object.__setattr__(self, "module", str(module))

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
        made = Case(function, inputs, dict(options), module)
        cases = _CASES.get()
        if cases is not None:
            cases.append(made)
        return function

    return mark


def named(cases: Sequence[Case]) -> list[str]:
    """The name of each case, and `name[1]`, `name[2]` of others with the same."""
    count: dict[str, int] = {}
    names = []
    for case in cases:
        nth = count[case.name] = count.get(case.name, -1) + 1
        names.append(f"{case.name}[{nth}]" if nth else case.name)
    return names


@contextlib.contextmanager
def collected() -> Iterator[list[Case]]:
    """The cases of every module imported in this block, in the order of their decorators."""
    cases: list[Case] = []
    token = _CASES.set(cases)
    try:
        yield cases
    finally:
        _CASES.reset(token)
