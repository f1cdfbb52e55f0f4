"""Parsers of options: (name, value) -> the value as it is used.

UsageError, one sentence that begins with the name, where the value is not of the kind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping
from numbers import Integral, Real
from typing import Any

from gradproof.errors import UsageError

Parser = Callable[[str, Any], Any]

LETTERS = 60  # of a value in a message


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LETTERS
_SHORT.maxlevel = 3


def short_repr(value: Any) -> str:
    """A value in a message: its repr on one line, cut, or its type where it has none."""
    try:
        text = " ".join(_SHORT.repr(value).split())
    except Exception:  # whatever the repr of a user's object does
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 2 * LETTERS else f"{text[: 2 * LETTERS]}..."


def parse_optional(parser: Parser, name: str, value: Any) -> Any:
    """What the parser makes of the value; None stays."""
    return None if value is None else parser(name, value)


def parse_boolean(name: str, value: Any) -> bool:
    """True or False; also NumPy's, 0 and 1. An array is none, whatever its truth is."""
    plain = isinstance(value, (int, float)) or type(value).__name__ in ("bool", "bool_")
    if plain and getattr(value, "ndim", 0) == 0 and value in (0, 1):
        return bool(value)
    raise UsageError(f"{name}: expected True or False, got {short_repr(value)}")


def parse_number(name: str, value: Any) -> Any:
    """A real number that is not negative; it may be infinite."""
    with contextlib.suppress(OverflowError):  # of an integer beyond all doubles
        if isinstance(value, Real) and float(value) >= 0:
            return value
    raise UsageError(f"{name}: expected a number >= 0, got {short_repr(value)}")


def parse_positive_number(name: str, value: Any) -> Any:
    """A positive finite real number."""
    with contextlib.suppress(OverflowError):
        if isinstance(value, Real) and 0 < float(value) < math.inf:
            return value
    raise UsageError(f"{name}: expected a positive finite number, got {short_repr(value)}")


def parse_integer(name: str, value: Any, low: int, limits: str, below: float = math.inf) -> Any:
    """An integer in [low, below), which `limits` says in words."""
    if type(value) is not int and not isinstance(value, Integral):
        raise UsageError(f"{name}: expected a whole number, got {short_repr(value)}")
    if not low <= int(value) < below:
        raise UsageError(f"{name}: expected {limits}, got {short_repr(value)}")
    return value


def parse_sequence(name: str, value: Any, of: str = "values") -> tuple[Any, ...]:
    """Several values, in a tuple."""
    if type(value) in (tuple, list):
        return tuple(value)
    if isinstance(value, str):
        raise UsageError(
            f"{name}: expected a list of {of}, got {short_repr(value)}; write [{short_repr(value)}]"
        )
    single = isinstance(value, (bytes, Mapping)) or hasattr(value, "shape")
    if single or not isinstance(value, Collection):
        raise UsageError(f"{name}: expected a list of {of}, got {short_repr(value)}")
    return tuple(value)


def parse_strings(name: str, value: Any) -> tuple[str, ...]:
    """Several texts, in a tuple."""
    found = parse_sequence(name, value, "names")
    for one in found:
        if not isinstance(one, str):
            raise UsageError(f"{name}: expected a list of names, got {short_repr(one)} in it")
    return found


def parse_choice(name: str, value: Any, known: Collection[str]) -> str:
    """One of the known names."""
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{name}: expected one of {', '.join(known)}, got {short_repr(value)}")
    return value


def parse_names(name: str, value: Any, known: Collection[str]) -> tuple[str, ...]:
    """Several of the known names."""
    found = parse_strings(name, value)
    for one in found:
        if one not in known:
            raise UsageError(f"{name}: unknown {unknown_name_message(one, known)}")
    return found


def unknown_name_message(name: str, known: Collection[str]) -> str:
    """The name that is unknown, with the nearest of those known, and all of them."""
    close = difflib.get_close_matches(name[:LETTERS], known, 1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{short_repr(name)}{meant}; choose from {', '.join(known)}"


def parse_mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Values by names."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: expected a dict from names to values, got {short_repr(value)}")
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{name}: expected names as keys, got {short_repr(key)}")
    return value


def parse_function(name: str, value: Any) -> Any:
    """Anything that can be called."""
    if not callable(value):
        raise UsageError(f"{name}: expected a function, got {short_repr(value)}")
    return value


def contained_values(value: Any) -> Iterator[Any] | None:
    """What a tuple, list, mapping or dataclass holds; None of anything else."""
    if isinstance(value, (tuple, list)):
        return iter(value)
    if isinstance(value, Mapping):
        return iter(value.values())
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return (getattr(value, field.name) for field in dataclasses.fields(value))
    return None
