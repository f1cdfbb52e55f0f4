"""Compiled JAX programs, kept from one check to the next.

A program is kept by what it does, not by the function that it was made of: every map traces its
function anew, and what it closes over counts as it is then. Two traces that are equal, equation by
equation, run the same compiled program, and the arrays closed over are arguments of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend import core

_KEPT = 64  # compiled programs; a check makes up to five
_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_INSIDE = ("call_jaxpr", "fun_jaxpr", "jaxpr")

Programs = dict[str, Callable[..., Any]]


def compiled_call(
    programs: Programs | None, name: str, fn: Callable[..., Any], arrays: Sequence[Any]
) -> Any:
    """fn(*arrays), a tuple of arrays; compiled where there are programs to keep it among.

    Args:
        programs: of one function by name; "value" is never differentiated. None compiles nothing.
        name: of the program.
        fn: a function of arrays, or what calls it, such as its VJP.
        arrays: of the same shapes and dtypes in every call.
    """
    if programs is None:
        return fn(*arrays)
    try:
        if name not in programs:
            programs[name] = _shared(fn, arrays, ruled=name != "value")
        return programs[name](*arrays)
    except (TypeError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        programs[name] = fn  # what steers by values cannot be traced
        return fn(*arrays)


def _shared(fn: Callable[..., Any], arrays: Sequence[Any], *, ruled: bool) -> Callable[..., Any]:
    """The compiled program of a function; unless it is `ruled`, its custom rules do not count."""
    traced = jax.make_jaxpr(fn)(*arrays)
    if traced.effects:  # such as a callback: its order is JAX's matter
        return jax.jit(fn)  # type: ignore[no-any-return]  # JAX's
    compiled = _compiled(_Program(_identity(traced.jaxpr, ruled), traced.jaxpr))
    return lambda *arrays: tuple(compiled(traced.consts, *arrays))


@dataclass(frozen=True)
class _Program:
    """A program without its constants, equal to every other that does the same."""

    identity: Hashable
    jaxpr: Any = field(compare=False)


@functools.lru_cache(maxsize=_KEPT)
def _compiled(program: _Program) -> Callable[..., Any]:
    def run(constants: Sequence[Any], *arrays: Any) -> Any:
        return core.jaxpr_as_fun(core.ClosedJaxpr(program.jaxpr, constants))(*arrays)

    return jax.jit(run)  # type: ignore[no-any-return]  # JAX's


def _identity(jaxpr: Any, ruled: bool) -> Hashable:
    """Equal for two programs that do the same: operations, options, shapes, dtypes, numbers.

    A custom rule is a Python function, made anew in every trace: two programs with one are equal
    only where it does not count.
    """
    numbers: dict[Any, int] = {}

    def place(atom: Any) -> Hashable:
        if isinstance(atom, core.Literal):
            return (atom.aval, _option(atom.val, ruled))
        return numbers.setdefault(atom, len(numbers)), atom.aval

    def options(equation: Any) -> Hashable:
        counts = equation.params.items()
        if not ruled and equation.primitive.name in _RULES:
            counts = [(name, each) for name, each in counts if name in _INSIDE]
        return tuple((name, _option(each, ruled)) for name, each in counts)

    return (
        tuple(map(place, (*jaxpr.constvars, *jaxpr.invars))),
        tuple(
            (
                each.primitive,
                each.ctx,
                options(each),
                tuple(map(place, each.invars)),
                tuple(map(place, each.outvars)),
            )
            for each in jaxpr.eqns
        ),
        tuple(map(place, jaxpr.outvars)),
    )


def _option(value: Any, ruled: bool) -> Hashable:
    """A parameter or number, as what it is equal to; by itself where nothing can tell."""
    if isinstance(value, (tuple, list)):
        return tuple(_option(each, ruled) for each in value)
    if isinstance(value, core.ClosedJaxpr):
        return _identity(value.jaxpr, ruled), _option(value.consts, ruled)
    if isinstance(value, core.Jaxpr):
        return _identity(value, ruled)
    if isinstance(value, (bool, int, float, complex, np.number, np.ndarray)):
        array = np.asarray(value)  # 0.0 and -0.0, 1 and True are not the same
        return type(value), array.dtype, array.shape, array.tobytes()
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return value  # type: ignore[no-any-return]  # it has a hash


@dataclass(frozen=True, eq=False)
class _Itself:
    """What is equal to nothing but itself; held, so that no other has its identity."""

    value: Any
