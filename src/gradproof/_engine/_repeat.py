"""The line of Python that repeats a check, with its seed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import name_of, parameter_names
from gradproof._data.options import BITS, LETTERS
from gradproof._data.settings import Settings


def call_text(fn: Any, inputs: Any, kwargs: Any, options: Mapping[str, Any], seed: int) -> str:
    """`gradproof.check(pick, (x, index), seed=0)`: arguments by the names of the parameters.

    "" for a function without a name that could be written: a lambda, a partial, a module.

    Args:
        fn, inputs, kwargs: as given to `check`.
        options: likewise, by keyword; those that are None were not given.
        seed: of the run.
    """
    plain = fn.fn if isinstance(fn, ByHand) else fn
    if not getattr(plain, "__name__", "").isidentifier():
        return ""
    parts = [_function_text(fn), _inputs_text(plain, inputs)]
    if kwargs:
        parts.append(_mapping_text(kwargs))
    parts += _keywords({**options, "seed": seed})
    return f"gradproof.check({', '.join(parts)})"


def _function_text(fn: Any) -> str:
    if not isinstance(fn, ByHand):
        return name_of(fn)
    options = {**fn.claims, "args": fn.args or None}
    return f"gradproof.by_hand({', '.join([name_of(fn), *_keywords(options)])})"


def _keywords(options: Mapping[str, Any]) -> list[str]:
    given = {name: value for name, value in options.items() if value is not None}
    return [f"{name}={_argument_text(value, name)}" for name, value in given.items()]


def _inputs_text(fn: Callable[..., Any], inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return _mapping_text(inputs)
    if not isinstance(inputs, (tuple, list)):
        return "x"
    names = _parameters(fn, len(inputs))
    written = [_argument_text(value, name) for value, name in zip(inputs, names, strict=True)]
    return f"({', '.join(written)}{',' * (len(written) == 1)})"


def _mapping_text(values: Mapping[Any, Any]) -> str:
    items = (
        f"{_argument_text(key, str(key))}: {_argument_text(values[key], str(key))}"
        for key in values
    )
    return f"{{{', '.join(items)}}}"


def _parameters(fn: Callable[..., Any], count: int) -> list[str]:
    """Names of the first parameters; `input 0` has none in a function that C++ implements."""
    names = parameter_names(fn)[:count]
    return names + [f"x{place}" for place in range(len(names), count)]


def _argument_text(value: Any, name: str) -> str:
    """A literal as one writes it; anything else by its name."""
    literal = _literal_text(value)
    is_short = literal is not None and len(literal) <= LETTERS  # a longer one is left to its name
    if literal is not None and (is_short or _is_of_names(value)):
        return literal
    if isinstance(value, ByHand):
        return _function_text(value)
    if isinstance(value, Settings):
        plain = vars(Settings())
        chosen = {name: each for name, each in vars(value).items() if each != plain[name]}
        return f"gradproof.Settings({', '.join(_keywords(chosen))})"
    own = getattr(value, "__name__", "")
    return own if callable(value) and own.isidentifier() else name.replace(" ", "_")


def _is_of_names(value: Any) -> bool:
    return type(value) in (tuple, list) and all(isinstance(name, str) for name in value)


def _literal_text(value: Any) -> str | None:
    """The value as a literal of Python; None where it has none."""
    if type(value) is str:
        return json.dumps(value, ensure_ascii=False)
    if type(value) in (tuple, list):
        items = [_literal_text(item) for item in value]
        if None in items:
            return None
        inside = ", ".join(filter(None, items))
        alone = "," * (type(value) is tuple and len(items) == 1)
        return f"({inside}{alone})" if type(value) is tuple else f"[{inside}]"
    if type(value) is dict:
        pairs = [(_literal_text(key), _literal_text(item)) for key, item in value.items()]
        whole = all(key is not None and item is not None for key, item in pairs)
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}" if whole else None
    plain = value is None or isinstance(value, bool)
    plain = plain or (isinstance(value, int) and value.bit_length() <= BITS)
    plain = plain or (isinstance(value, float) and math.isfinite(value))
    return repr(value) if plain else None
