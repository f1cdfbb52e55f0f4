"""The arguments of a check: which inputs are meant, what a function takes, names in reports."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from gradproof._data import options
from gradproof._data.by_hand import ByHand
from gradproof._data.options import short_repr
from gradproof.errors import UsageError


def input_selection(wrt: Any) -> tuple[Any, ...] | None:
    """The `wrt` of `gradproof.check` as a tuple; UsageError where it is none."""
    if wrt is None:
        return None
    kinds = "names, patterns or positions"
    several = not isinstance(wrt, (str, Integral))
    found = options.parse_sequence("wrt", wrt, kinds) if several else (wrt,)
    for one in found:
        if not isinstance(one, (str, Integral)):
            raise UsageError(f"wrt: expected {kinds}, got {short_repr(one)}")
    return found


def require_reference(fn: Any, reference: Any) -> None:
    """UsageError where the reference is none that a function can be held against."""
    by_hand = isinstance(fn, ByHand)
    if not (callable(reference) or isinstance(reference, ByHand)):
        raise UsageError(f"reference: expected a function, got {type(reference).__name__}")
    if isinstance(reference, ByHand) != by_hand:
        raise UsageError(
            "reference: beside a derivative written by hand it is one as well, "
            "gradproof.by_hand(fn, vjp=...), and else a function of the framework under test"
        )
    if not by_hand and _bare_function(reference) == _bare_function(fn):
        raise UsageError(
            f"reference: {name_of(reference)} is the function under test, which would confirm "
            "itself; pass an independent one in plain operations, or none"
        )


def _bare_function(fn: Any) -> Any:
    """A function without partial application and decorators."""
    while inner := getattr(fn, "func", None) or getattr(fn, "__wrapped__", None):
        fn = inner
    return fn


def positional_arguments(fn: Callable[..., Any] | ByHand, inputs: Any) -> tuple[Any, ...]:
    """The positional arguments in what the user handed over.

    A dict is one argument. So is a named tuple where the function takes no more.
    Numbers for a function of one argument are that argument, a vector, where the derivative is
    written by hand; a framework's function would have to guess of which dtype.
    """
    function = fn.fn if isinstance(fn, ByHand) else fn
    if not isinstance(inputs, (tuple, list)):
        return (inputs,)
    are_numbers = all(isinstance(value, (int, float, complex)) for value in inputs)
    is_named = hasattr(inputs, "_fields")
    if not (are_numbers or is_named) or not _takes_one(function, len(inputs)):
        return tuple(inputs)
    if is_named:
        return (inputs,)
    if isinstance(fn, ByHand):
        return ([1.0 * value for value in inputs],)
    raise UsageError(
        f"inputs: expected the one argument of {name_of(function)}, got {len(inputs)}; hand a "
        "vector over as an array, np.array(...)"
    )


def _takes_one(fn: Callable[..., Any], given: int) -> bool:
    return given > 1 and len(parameters_of(fn)) == len(parameter_names(fn)) == 1


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function; of a layer, those of its `forward`. [] where unknown."""
    try:
        found = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # builtins have none
        return []
    forward = getattr(fn, "forward", None)
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if callable(forward) and all(parameter.kind in anything for parameter in found):
        return parameters_of(forward)
    return found


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Names of the parameters that take one positional argument each; [] where unknown."""
    if type(fn) is types.FunctionType and not vars(fn):  # its code tells the same, sooner
        return list(fn.__code__.co_varnames[: fn.__code__.co_argcount])
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters_of(fn) if parameter.kind in single]


def selected_positions(
    names: Sequence[str], arguments: Sequence[int | None], wrt: Any
) -> list[int]:
    """Which of the differentiable inputs `wrt` selects, in their order; None selects all.

    It holds names, patterns with `*` and `?`, names of what contains inputs, and positions of
    arguments; UsageError where one of these selects nothing.
    """
    if wrt is None:
        return list(range(len(names)))
    found: set[int] = set()
    for one in wrt:
        fits = {k for k, name in enumerate(names) if is_selected(one, name, arguments[k])}
        if not fits:
            raise UsageError(
                f"wrt: {short_repr(one)} selects no differentiable input; "
                f"there are {', '.join(names)}"
            )
        found |= fits
    if not found:
        raise UsageError("wrt: expected at least one name, pattern or position")
    return sorted(found)


def is_selected(one: Any, name: str, argument: int | None = None) -> bool:
    """Whether a name, pattern or position is that of an array, or of what contains it."""
    if not isinstance(one, str):
        return bool(one == argument)
    pattern = one.replace("[", "[[]")  # a bracket is an index, no set of letters
    return any(fnmatch.fnmatchcase(name, pattern + end) for end in ("", ".*", "[[]*"))


def name_of(fn: Callable[..., Any] | ByHand) -> str:
    """How a report calls a function."""
    if isinstance(fn, ByHand):
        return name_of(fn.fn)
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and getattr(fn, "__name__", "") == "apply":  # a custom function's
        return f"{owner.__name__}.{getattr(fn, '__name__', '')}"
    if inspect.isbuiltin(fn):  # its qualified name may hold a class that nobody knows
        return fn.__name__
    registered = getattr(fn, "_qualified_op_name", None) or getattr(fn, "_qualname", None)
    if isinstance(registered, str):  # a registered operator's: mylib::op
        return registered
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)  # NumPy 1's ufuncs
    name = name if isinstance(name, str) else type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def output_name(path: Sequence[Any], written: Callable[[Any], str]) -> str:
    """How a user would write the output at a path of the result; `written` writes a path."""
    if not path:
        return "output 0"
    if len(path) == 1 and hasattr(path[0], "idx"):
        return f"output {path[0].idx}"
    return f"output{written(tuple(path))}"
