"""What an option may be: each kind is a function (name, value) -> the value as it is used.

Whoever takes options has one table from their names to kinds. UsageError, one sentence that begins
with the name, where a value is not of its kind.
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

Kind = Callable[[str, Any], Any]

DEEPEST = 100  # containers in containers; what frameworks take apart by recursion ends near 300
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


def kind_or_none(kind: Kind) -> Kind:
    """The kind, or None."""
    return lambda name, value: None if value is None else kind(name, value)


def boolean(name: str, value: Any) -> bool:
    """True or False; also NumPy's, 0 and 1. An array is none, whatever its truth is."""
    plain = isinstance(value, (int, float)) or type(value).__name__ in ("bool", "bool_")
    if plain and getattr(value, "ndim", 0) == 0 and value in (0, 1):
        return bool(value)
    raise UsageError(f"{name}: expected True or False, got {short_repr(value)}")


def number_kind(words: str, fits: Callable[[float], bool]) -> Kind:
    """A real number that fits, as `words` say."""

    def kind(name: str, value: Any) -> Any:
        with contextlib.suppress(OverflowError):  # of an integer beyond all doubles
            if isinstance(value, Real) and fits(float(value)):
                return value
        raise UsageError(f"{name}: expected {words}, got {short_repr(value)}")

    return kind


number = number_kind("a number >= 0", lambda size: size >= 0)  # also infinite
positive_number = number_kind("a positive finite number", lambda size: 0 < size < math.inf)


def integer_kind(low: int, below: int | None, limits: str) -> Kind:
    """An integer in [low, below), which `limits` says in words."""

    def kind(name: str, value: Any) -> Any:
        if type(value) is not int and not isinstance(value, Integral):
            raise UsageError(f"{name}: expected a whole number, got {short_repr(value)}")
        if int(value) < low or (below is not None and int(value) >= below):
            raise UsageError(f"{name}: expected {limits}, got {short_repr(value)}")
        return value

    return kind


def sequence(name: str, value: Any, of: str = "values") -> tuple[Any, ...]:
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


def strings(name: str, value: Any) -> tuple[str, ...]:
    """Several texts, in a tuple."""
    found = sequence(name, value, "names")
    for one in found:
        if not isinstance(one, str):
            raise UsageError(f"{name}: expected a list of names, got {short_repr(one)} in it")
    return found


def choice_kind(known: Collection[str]) -> Kind:
    """One of the known names."""

    def kind(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise UsageError(f"{name}: expected one of {', '.join(known)}, got {short_repr(value)}")
        return value

    return kind


def names_among(known: Collection[str]) -> Kind:
    """Several of the known names."""

    def kind(name: str, value: Any) -> tuple[str, ...]:
        found = strings(name, value)
        for one in found:
            if one not in known:
                raise UsageError(f"{name}: unknown {unknown_name_message(one, known)}")
        return found

    return kind


def unknown_name_message(name: str, known: Collection[str]) -> str:
    """The name that is unknown, with the nearest of those known, and all of them."""
    close = difflib.get_close_matches(name[:LETTERS], known, 1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{short_repr(name)}{meant}; choose from {', '.join(known)}"


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Values by names."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{name}: expected a dict from names to values, got {short_repr(value)}")
    for key in value:
        if not isinstance(key, str):
            raise UsageError(f"{name}: expected names as keys, got {short_repr(key)}")
    return value


def function(name: str, value: Any) -> Any:
    """Anything that can be called."""
    if not callable(value):
        raise UsageError(f"{name}: expected a function, got {short_repr(value)}")
    return value


def container(name: str, value: Any) -> Any:
    """Arguments or results: containers that do not hold themselves."""
    level, depth = {id(value): value}, 0
    while level := {
        id(part): part for each in level.values() for part in contained_values(each) or ()
    }:
        depth += 1
        if depth > DEEPEST:
            raise UsageError(
                f"{name}: a container nested more than {DEEPEST} deep, or one that holds itself"
            )
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
