"""Numbers that the code of a function, and of what it calls, names: where branches may lie.

Whatever a kernel compares with or clips at in Python stands in its code objects, in its closures
and defaults, or is a global that it reads. What it calls is looked into likewise: functions,
classes such as those that hold a backward, callables with rules as attributes.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_MOST_LOOKED_AT = 2_000  # functions, classes and objects
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_CONTAINERS = (tuple, list, set, frozenset)


def constants(roots: Iterable[Any]) -> list[float]:
    """Real finite numbers that the code of these functions names, each once, fractions first.

    Whole numbers, of which many are axes and extents, come last; each by size.

    What is installed, the standard library and other packages, is looked into only where one of
    the roots belongs to the same package.
    """
    roots = [root for root in roots if root is not None]
    homes = {_package(root) for root in roots} - {""}
    found: set[float] = set()
    seen: dict[int, Any] = {}  # kept, so that no identity comes twice
    waiting = list(roots)
    while waiting and len(seen) < _MOST_LOOKED_AT:
        value = waiting.pop(0)
        if _is_number(value):
            if math.isfinite(value):
                found.add(float(value))
        elif id(value) not in seen:
            seen[id(value)] = value
            waiting += _inside(value, homes)
    return sorted(found, key=lambda number: (number.is_integer(), abs(number), number))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _package(value: Any) -> str:
    """The top-level package in which a function was written; "" where it says none."""
    value = getattr(value, "__func__", value)
    module = getattr(value, "__module__", None) or getattr(type(value), "__module__", "")
    return str(module).partition(".")[0]


def _inside(value: Any, homes: set[str]) -> Iterator[Any]:
    """What a value holds that may name a number."""
    if isinstance(value, _CONTAINERS):
        yield from itertools.islice(value, _MOST_LOOKED_AT)
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, types.FunctionType):
        if _is_users(value, homes):
            yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, type):
        if _is_users(value, homes):
            yield from vars(value).values()
    elif not isinstance(value, types.ModuleType) and callable(value):
        yield from _of_object(value)


def _of_object(value: Any) -> Iterator[Any]:
    """The class of a callable, what it wraps, and its attributes; none of an array's."""
    try:
        if hasattr(value, "__array__"):
            return
        inside = (type(value), getattr(value, "__wrapped__", None), dict(vars(value)))
    except Exception:  # whatever an attribute of the user's raises: nothing is named there
        inside = (type(value), None, {})
    yield from inside


def _is_users(value: Any, homes: set[str]) -> bool:
    """Whether a function or class was written by the user, or beside what is under test."""
    if _package(value) in homes:
        return True
    code = getattr(value, "__code__", None)
    file = code.co_filename if code else getattr(sys.modules.get(value.__module__), "__file__", "")
    return bool(file) and not any(Path(file).is_relative_to(path) for path in _INSTALLED)


def _of_function(fn: types.FunctionType) -> Iterator[Any]:
    yield from fn.__defaults__ or ()
    yield from (fn.__kwdefaults__ or {}).values()
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield getattr(fn, "__wrapped__", None)
    for code in _codes(fn.__code__):
        yield from (each for each in code.co_consts if not isinstance(each, types.CodeType))
        for name in code.co_names:  # of globals, and of attributes, which are none
            yield fn.__globals__.get(name)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions defined in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)
