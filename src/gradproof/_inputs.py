"""What the user handed over, in the forms in which the engine needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gradproof.errors import UsageError


def is_operator(value: Any) -> bool:
    """Whether a value is a linear operator with an adjoint."""
    return callable(getattr(value, "matvec", None)) and callable(getattr(value, "rmatvec", None))


def refuse_functions(fn: object, reference: object) -> None:
    """UsageError where one is no function, or the reference is the function under test."""
    if not callable(fn) and not is_operator(fn):
        raise UsageError(f"fn: expected a function, got {type(fn).__name__}")
    if reference is None:
        return
    if not callable(reference):
        raise UsageError(f"reference: expected a function, got {type(reference).__name__}")
    if _bare(reference) == _bare(fn):
        raise UsageError(
            f"reference: {name_of(reference)} is the function under test, which would confirm "
            "itself; pass an independent one in plain operations, or none"
        )


def _bare(fn: Any) -> Any:
    """A function without partial application and decorators."""
    while inner := getattr(fn, "func", None) or getattr(fn, "__wrapped__", None):
        fn = inner
    return fn


def split_arguments(
    fn: Callable[..., Any], inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """Positional and keyword arguments from what the user handed over."""
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), kwargs
    if isinstance(inputs, Mapping) and inputs and _are_parameters(fn, inputs):
        if twice := sorted(set(inputs) & set(kwargs or {})):
            raise UsageError(f"inputs: {twice[0]!r} is also in kwargs; give it once")
        return (), {**inputs, **(kwargs or {})}
    return (inputs,), kwargs


def _are_parameters(fn: Callable[..., Any], names: Mapping[Any, Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # builtins have none
        return False
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return all(name in named for name in names)


def name_of(fn: Callable[..., Any]) -> str:
    """How a report calls a function."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and getattr(fn, "__name__", "") == "apply":  # a custom function's
        return f"{owner.__name__}.{getattr(fn, '__name__', '')}"
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name.rpartition("<locals>.")[2]
