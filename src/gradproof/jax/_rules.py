"""Asking JAX: where a function has no derivative of some kind, and what may be compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from gradproof._adapters import closure_values, parts_of
from gradproof._adapters.raised import is_raised_by_user
from gradproof._data.exceptions import first_line, text_of
from gradproof._maps.contract import Unsupported

# What JAX raises where a function asks for the value of an array that is traced.
UNTRACED = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)

# How JAX says that a function has no derivative of some kind: no rule, by design.
NO_RULE = (
    "(jvp) to a custom_vjp",
    "Reverse-mode differentiation does not work",
    "does not support reverse-mode",
    "do not support JVP",
    "does not support JVP",
    "Differentiation rule for",
    "Transpose rule",
    "not implemented",
    "must be linear",
)
_PACKAGES = frozenset({"jax", "jaxlib", "equinox", "flax"})  # which raise so by design
_JAX = frozenset({"jax", "jaxlib", "functools", "builtins", "numpy", "operator", "contextlib"})
# How XLA says that the device has no kernel for an operation, whoever asks for it.
_NO_KERNEL = ("UNIMPLEMENTED", "Unsupported element type")
# How JAX says that an array of one transform is found where it is unknown.
_LEAKED = "Encountered an unexpected tracer"


def transform_result(transform: Callable[..., Any], *arguments: Any) -> Any:
    """What a transform of JAX returns; Unsupported where JAX says that there is no such rule.

    A TypeError says what to do where a rule of custom_jvp or custom_vjp reads an array of the
    function around it, of which JAX says only that something had a side effect.
    """
    try:
        return jax.block_until_ready(transform(*arguments))  # what runs later raises here
    except jax.errors.JaxRuntimeError as error:
        if any(phrase in str(error) for phrase in _NO_KERNEL):
            raise Unsupported(first_line(error)) from error
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        if is_refusal(error):
            raise Unsupported(first_line(error)) from error
        if _LEAKED in text_of(error):
            raise TypeError(
                "a custom rule, or a cache, holds a differentiated array from outside: make it an "
                "argument"
            ) from error
        raise


def untraced_reason(error: Exception) -> str:
    """Why a capability is missing where a function cannot be traced."""
    return f"it cannot be traced: {first_line(error)}"


def is_refusal(error: Exception) -> bool:
    """Whether JAX says that there is no rule, by design; a rule that says so itself is wrong."""
    is_refused = isinstance(error, NotImplementedError) or any(
        phrase in text_of(error) for phrase in NO_RULE
    )
    return is_refused and not is_raised_by_user(error, _PACKAGES)


def equations_of(jaxpr: Any) -> Iterator[Any]:
    """All of a jaxpr, those inside of others too."""
    for equation in jaxpr.eqns:
        yield equation
        for option in equation.params.values():
            for inner in programs_in(option):
                yield from equations_of(getattr(inner, "jaxpr", inner))


def programs_in(option: Any) -> Iterator[Any]:
    """The jaxprs that a parameter of an equation is, or holds, with constants or without."""
    for each in option if isinstance(option, (tuple, list)) else (option,):
        if hasattr(getattr(each, "jaxpr", each), "eqns"):
            yield each


def unit_of_cast(equation: Any) -> float:
    """Unit round-off of what an equation makes of doubles in fewer bits; 0.0 of any other."""
    kinds = [
        [jnp.finfo(each.aval.dtype) for each in atoms if _is_inexact(each.aval)]
        for atoms in (equation.invars, equation.outvars)
    ]
    if not any(given.bits == 64 for given in kinds[0]):
        return 0.0
    return max((float(made.eps) / 2 for made in kinds[1] if made.bits < 64), default=0.0)


# Operations with rules that are parameters of theirs, in which they are found.
_RULED = frozenset({"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"})
_RULELESS = frozenset({"custom_linear_solve"})


def is_plain(equation: Any) -> bool:
    """Whether every rule of differentiation in an equation is known to be JAX's own.

    Then its derivatives are what JAX makes of these equations, compiled or not. A rule of the
    user's is Python, which may draw, count, or go by the numbers that it is handed. Nor are
    formats of 16 bits plain: compiled, XLA keeps more of them than it is asked to.
    """
    primitive = equation.primitive
    if primitive.name.startswith("custom_") and primitive.name not in _RULED | _RULELESS:
        return False
    if any(_is_narrow(atom.aval) for atom in (*equation.invars, *equation.outvars)):
        return False
    rules = ad.primitive_jvps.get(primitive), ad.primitive_transposes.get(primitive)
    return all(map(_known_of_jax, rules)) and _are_of_jax(functions_in(equation.params))


def _is_inexact(kind: Any) -> bool:
    return hasattr(kind, "dtype") and bool(jnp.issubdtype(kind.dtype, jnp.inexact))


def _is_narrow(kind: Any) -> bool:
    return _is_inexact(kind) and kind.dtype.itemsize < 4


@functools.lru_cache(maxsize=1024)
def _known_of_jax(rule: Any) -> bool:
    return _are_of_jax(functions_in(rule))


def _are_of_jax(functions: Iterable[Any]) -> bool:
    return all(str(each.__module__).partition(".")[0] in _JAX for each in functions)


_CONSTANTS = frozenset((bool, int, float, str, type(None)))


def functions_in(value: Any, seen: dict[int, Any] | None = None) -> Iterator[Any]:
    """Functions that a value is, wraps, or closes over; an object that can be called is one."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value
    inside: Sequence[Any] = ()
    if isinstance(value, (FunctionType, functools.partial)):
        yield value
    if isinstance(value, FunctionType):
        inside = closure_values(value)
    elif isinstance(value, (tuple, list, dict, MethodType, functools.partial)):
        inside = tuple(parts_of(value))
    elif hasattr(value, "transforms") and hasattr(value, "f"):  # JAX's wrapper of a function
        inside = value.f, value.transforms
    elif hasattr(value, "__wrapped__"):
        inside = (value.__wrapped__,)
    elif callable(value):
        yield value if hasattr(value, "__module__") else type(value)
    for each in inside:
        if type(each) not in _CONSTANTS:  # as most options are
            yield from functions_in(each, seen)
