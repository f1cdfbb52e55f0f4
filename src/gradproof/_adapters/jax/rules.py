"""Asking JAX: where a function has no derivative of some kind, and what may be compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from gradproof._adapters.arrays import first_line
from gradproof._adapters.raised import by_user
from gradproof._maps.contract import Unsupported

# JAX compiles these anew in every call that is not compiled itself.
_LOOPS = ("scan", "while", "cond", "checkpoint", "remat2", "shard_map", "pallas_call")
_RANDOM = ("random_", "threefry", "rng_")

# How JAX says that a function has no derivative of some kind: no rule, by design.
NO_RULE = (
    "(jvp) to a custom_vjp",
    "Reverse-mode differentiation does not work",
    "do not support JVP",
    "does not support JVP",
    "Differentiation rule for",
    "Transpose rule",
    "not implemented",
    "must be linear",
)
_PACKAGES = frozenset({"jax", "jaxlib", "equinox", "flax"})  # which raise so by design
# How JAX says that an array of one transform is found where it is unknown.
_LEAKED = "Encountered an unexpected tracer"


def asked(transform: Callable[..., Any], *arguments: Any) -> Any:
    """What a transform of JAX returns; Unsupported where JAX says that there is no such rule.

    A TypeError says what to do where a rule of custom_jvp or custom_vjp reads an array of the
    function around it, of which JAX says only that something had a side effect.
    """
    try:
        return transform(*arguments)
    except (TypeError, ValueError, NotImplementedError) as error:
        if is_refusal(error):
            raise Unsupported(first_line(error)) from error
        if _LEAKED in str(error):
            raise TypeError(
                "a custom rule, or a cache, holds a differentiated array from outside: make it an "
                "argument"
            ) from error
        raise


def is_refusal(error: Exception) -> bool:
    """Whether JAX says that there is no rule, by design; a rule that says so itself is wrong."""
    said = isinstance(error, NotImplementedError) or any(phrase in str(error) for phrase in NO_RULE)
    return said and not by_user(error, _PACKAGES)


Program = list[Any] | None


def program_of(fn: Callable[..., Any], arrays: Sequence[Any]) -> Program:
    """The equations of a function, those inside of others too; None where it cannot be traced."""
    try:
        return list(_equations(jax.make_jaxpr(fn)(*arrays).jaxpr))
    except Exception:  # of the user's, or JAX's about values that steer: nothing is known
        return None


def has_loops(program: Program) -> bool:
    """Whether it is known to hold loops, branches or recomputation."""
    return any(each.primitive.name in _LOOPS for each in program or ())


def draws(program: Program) -> bool:
    """Whether it is known to draw random numbers."""
    return any(each.primitive.name.startswith(_RANDOM) for each in program or ())


def tells_of_zeros(program: Program) -> bool:
    """Whether a rule in it is told which inputs are differentiated, or may be.

    Those with `symbolic_zeros=True` are; for all others JAX makes zeros.
    """
    return program is None or any(each.params.get("symbolic_zeros") for each in program)


def _equations(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        yield equation
        for parameter in equation.params.values():
            for each in parameter if isinstance(parameter, (tuple, list)) else (parameter,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)
