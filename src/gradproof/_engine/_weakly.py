"""Values to come back to, held without keeping any array of the user's alive."""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

Held = Callable[[], Any]


class GoneError(LookupError):
    """What was held exists no more."""


def held(value: Any) -> Held:
    """What gives the value back, or raises `GoneError` once nobody else holds it.

    Containers and partial applications are made anew; their contents, and whatever may hold an
    array, is held by weak references.
    """
    if holds_nothing(value):
        return lambda: value
    if type(value) is dict:
        items = {key: held(item) for key, item in value.items()}
        return lambda: {key: item() for key, item in items.items()}
    if isinstance(value, (tuple, list)):
        return _sequence(value)
    if isinstance(value, functools.partial):
        parts = held((value.func, value.args, value.keywords))
        return lambda: _partial(*parts())
    owner = getattr(value, "__self__", None)
    if isinstance(value, (MethodType, BuiltinFunctionType)) and owner is not None:
        method, name = held(owner), value.__name__
        return lambda: getattr(method(), name)
    return _object(value)


def _sequence(value: Any) -> Held:
    parts, kind = [held(part) for part in value], type(value)
    make = getattr(kind, "_make", kind)  # a named tuple's
    return lambda: make(part() for part in parts)


def _partial(fn: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
    return functools.partial(fn, *args, **keywords)


def _object(value: Any) -> Held:
    try:
        reference = weakref.ref(value)
    except TypeError:  # of a class with slots, or of C
        if dataclasses.is_dataclass(value):
            return _with_slots(value)
        return lambda: value

    def found() -> Any:
        if (alive := reference()) is None:
            raise GoneError(f"an object of type {kind}")
        return alive

    kind = type(value).__name__
    return found


def _with_slots(value: Any) -> Held:
    kind, names = type(value), [field.name for field in dataclasses.fields(value)]
    parts = {name: held(getattr(value, name)) for name in names}

    def made() -> Any:
        found = object.__new__(kind)
        for name, part in parts.items():
            object.__setattr__(found, name, part())
        return copy.copy(found)

    return made


def holds_nothing(value: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a value is a number, a text, a class, a module, or a function of such alone."""
    if id(value) in seen:
        return True
    seen |= {id(value)}
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        parts: Any = (*cells, value.__defaults__, value.__kwdefaults__, value.__dict__)
    elif isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
    elif isinstance(value, (MethodType, BuiltinFunctionType)):
        parts = (value.__self__,)
    elif type(value) is dict:
        parts = tuple(value.values())
    elif type(value) in (tuple, list):
        parts = value
    else:
        plain = (bool, int, float, complex, str, bytes, type, ModuleType)
        return value is None or isinstance(value, plain)
    return all(holds_nothing(part, seen) for part in parts)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
