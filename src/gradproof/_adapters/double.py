"""A function and its arguments in double precision: what the adapters share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import exception_line, first_line
from gradproof._maps.contract import DifferentiableMap, OtherOutputs
from gradproof.errors import UsageError

Twin = TypeVar("Twin", bound=DifferentiableMap)


def twin_in_double(
    target: DifferentiableMap,
    reference: Callable[..., Any] | None,
    build: Callable[[], Twin],
) -> Twin:
    """The map that `build` makes in double precision, with as many outputs as the target.

    Args:
        target: the map under test.
        reference: the user's function that `build` calls; None where it is the target's own.
        build: makes the map.

    Raises:
        Unsupported: the function raises in double precision.
        OtherOutputs: it returns outputs of another shape.
    """

    def refusal(error: Exception) -> str:
        if isinstance(error, UsageError):
            return first_line(error)
        message = f"in double precision it raised {exception_line(error)}"
        if reference is None:
            return message
        return f"{message}; a reference takes and returns arrays of the framework under test"

    with unsupported(why=refusal):
        twin = build()
    if [slot.size for slot in twin.codomain.slots] != [s.size for s in target.codomain.slots]:
        twin.close()
        name = getattr(twin, "name", "it")
        raise OtherOutputs(f"{name} returns outputs of another shape in double precision")
    twin.keep_limits(twin.domain.with_limits_of(target.domain))
    return twin


def convert_partial(value: Any, change: Callable[[Any], Any]) -> Any:
    """A partial application with its function and arguments changed; any other value as it is."""
    if not isinstance(value, functools.partial):
        return value
    options = {name: change(option) for name, option in value.keywords.items()}
    return functools.partial(change(value.func), *map(change, value.args), **options)
