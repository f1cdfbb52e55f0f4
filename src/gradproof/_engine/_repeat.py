"""The line of Python that repeats a check, with its seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradproof._data.inputs import name_of, parameter_names
from gradproof._data.options import BITS, LETTERS, chosen
from gradproof._data.settings import KEYWORDS, TRANSFORM_NAMES, Settings
from gradproof._engine._question import Asked


def call(asked: Asked) -> str:
    """`gradproof.check(pick, (x, index), seed=0)`: arguments by the names of the parameters.

    "" for a function without a name that could be written: a lambda, a partial, a module.
    """
    fn: Any = asked.fn
    if not getattr(fn, "__name__", "").isidentifier():
        return ""
    parts = [name_of(fn), _inputs(fn, asked.inputs)]
    if asked.kwargs:
        parts.append(_mapping(asked.kwargs))
    parts += _keywords(asked.settings, asked.variables, asked.derivative)
    return f"gradproof.check({', '.join(parts)}, seed={asked.settings.seed})"


def _keywords(settings: Settings, *records: Any) -> Iterator[str]:
    """What is not as by default; of the settings what is no keyword of `check` in a record."""
    said = [each for each in _chosen(settings) if each[0] != "seed"]
    inside = [f"{name}={text}" for name, text in said if name not in KEYWORDS]
    if inside:
        yield f"settings=gradproof.Settings({', '.join(inside)})"
    yield from (f"{name}={text}" for name, text in said if name in KEYWORDS)
    for record in records:
        yield from (f"{name}={text}" for name, text in _chosen(record))


def _chosen(record: Any) -> Iterator[tuple[str, str]]:
    """The options of a record that are not its defaults, as they are written."""
    for name, value in chosen(record).items():
        if name in ("rtol", "derived") and value == record.derived:
            continue
        if name == "transforms" and value == TRANSFORM_NAMES:
            value = True
        names = type(value) is tuple and value and all(isinstance(one, str) for one in value)
        whole = _literal(list(value)) if names else None
        yield name, whole or _written(value, name)


def _inputs(fn: Callable[..., Any], inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return _mapping(inputs)
    if not isinstance(inputs, (tuple, list)):
        return "x"
    names = _parameters(fn, len(inputs))
    written = [_written(value, name) for value, name in zip(inputs, names, strict=True)]
    return f"({', '.join(written)}{',' * (len(written) == 1)})"


def _mapping(values: Mapping[Any, Any]) -> str:
    items = (f"{_written(key, str(key))}: {_written(values[key], str(key))}" for key in values)
    return f"{{{', '.join(items)}}}"


def _parameters(fn: Callable[..., Any], count: int) -> list[str]:
    """Names of the first parameters; `input 0` has none in a function that C++ implements."""
    names = parameter_names(fn)[:count]
    return names + [f"x{place}" for place in range(len(names), count)]


def _written(value: Any, name: str) -> str:
    """A literal as one writes it; anything else by its name."""
    literal = _literal(value)
    if literal is not None and len(literal) <= LETTERS:  # a longer one is left to its name
        return literal
    own = getattr(value, "__name__", "")
    return own if callable(value) and own.isidentifier() else name.replace(" ", "_")


def _literal(value: Any) -> str | None:
    """The value as a literal of Python; None where it has none."""
    if type(value) is str:
        return json.dumps(value, ensure_ascii=False)
    if type(value) in (tuple, list):
        items = [_literal(item) for item in value]
        if None in items:
            return None
        inside = ", ".join(filter(None, items))
        alone = "," * (type(value) is tuple and len(items) == 1)
        return f"({inside}{alone})" if type(value) is tuple else f"[{inside}]"
    if type(value) is dict:
        pairs = [(_literal(key), _literal(item)) for key, item in value.items()]
        whole = all(key is not None and item is not None for key, item in pairs)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}" if whole else None
    plain = value is None or isinstance(value, bool)
    plain = plain or (isinstance(value, int) and value.bit_length() <= BITS)
    plain = plain or (isinstance(value, float) and math.isfinite(value))
    return repr(value) if plain else None
