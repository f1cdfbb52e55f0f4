"""Compiled JAX programs, kept from one check to the next.

A program is kept by what it does, not by the function that it was made of: every map traces its
function anew, and what it closes over counts as it is then. Two traces that are equal, equation by
equation, run the same compiled program, and the arrays closed over are arguments of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gradproof._data.space import Array
from gradproof.jax._rules import functions_in, is_of_jax

_KEPT = 64  # compiled programs; a check makes up to ten
_RULES = ("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
_INSIDE = ("call_jaxpr", "fun_jaxpr", "jaxpr")

Programs = dict[str, Callable[..., Any]]


def compiled_call(
    programs: Programs | None, name: str, fn: Callable[..., Any], arrays: Sequence[Any]
) -> Any:
    """fn(*arrays), a tuple of arrays; compiled where there are programs to keep it among, by name.

    Arrays are of the same shapes and dtypes in every call; "value" is never differentiated.
    """
    if programs is None:
        return fn(*arrays)
    try:
        if name not in programs:
            programs[name] = _shared_program(fn, arrays, ruled=name != "value")
        return programs[name](*arrays)
    except (TypeError, jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        programs[name] = fn  # what steers by values cannot be traced
        return fn(*arrays)


def _shared_program(
    fn: Callable[..., Any], arrays: Sequence[Any], *, ruled: bool
) -> Callable[..., Any]:
    """The compiled program of a function; unless it is `ruled`, its custom rules do not count."""
    traced = jax.make_jaxpr(fn)(*arrays)
    if traced.effects:  # such as a callback: its order is JAX's matter
        return jax.jit(fn)  # type: ignore[no-any-return]  # JAX's
    compiled = _compiled_program(_Program(_identity(traced.jaxpr, ruled), traced.jaxpr))
    return lambda *arrays: tuple(compiled(traced.consts, *arrays))


class Flat:
    """Derivatives of a traced function whose rules are JAX's own, between flat real vectors.

    Each way to ask is one program, into which a vector goes as a whole and which hands back one:
    no transfer of each array, and nothing is traced again. Complex entries are two coordinates;
    cotangents and gradients are conjugated (J^T v = conj(vjp(conj(v)))).

    Attributes:
        jaxprs: of its derivatives, by name; shared by functions that are equal and hold no arrays.
    """

    def __init__(self, traced: Any) -> None:
        self._constants = traced.consts
        self._program = _Program(_identity(traced.jaxpr, ruled=True), traced.jaxpr)
        self.jaxprs: dict[Any, Any] = {} if traced.consts else _companions(self._program)
        self._ways: Programs = {}  # those used: to find one among all the program is hashed

    def run(self, way: str, *vectors: Array) -> list[Array]:
        """The vectors that a way of `_WAYS` makes of these."""
        if way not in self._ways:
            self._ways[way] = _flat(self._program, way)
        with allow_transfers():
            found = self._ways[way](self._constants, *vectors)
            return [np.array(each, dtype=np.float64) for each in found]


def allow_transfers() -> AbstractContextManager[Any]:
    """Where vectors may go to the device and back: a user's guard is for the user's transfers."""
    config = jax.config
    guards = config.jax_transfer_guard_host_to_device, config.jax_transfer_guard_device_to_host
    return jax.transfer_guard("allow") if any(guards) else nullcontext()


@functools.lru_cache(maxsize=_KEPT)
def _flat(program: _Program, way: str) -> Callable[..., Any]:
    """The compiled program of (constants, flat vectors) -> flat vectors."""
    jaxpr = program.jaxpr
    domain = [each.aval for each in jaxpr.invars]
    codomain = [each.aval for each in jaxpr.outvars]

    def run(constants: Sequence[Any], *vectors: Any) -> list[Any]:
        fn = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, constants))
        return _WAYS[way](fn, domain, codomain, *vectors)

    return jax.jit(run)  # type: ignore[no-any-return]  # JAX's


def _arrays(kinds: Sequence[Any], vector: Any, *, dual: bool = False) -> tuple[Any, ...]:
    """Arrays of these shapes and dtypes, conjugated where they are `dual`."""
    found, start = [], 0
    for kind in kinds:
        is_complex = jnp.issubdtype(kind.dtype, jnp.complexfloating)
        stop = start + math.prod(kind.shape) * (1 + is_complex)
        part, start = vector[start:stop], stop
        if is_complex:
            part = jax.lax.complex(part[0::2], -part[1::2] if dual else part[1::2])
        found.append(part.astype(kind.dtype).reshape(kind.shape))
    return tuple(found)


def _vector(arrays: Sequence[Any], *, dual: bool = False) -> Any:
    """The flat coordinates of arrays, in the widest format there is."""
    wide, parts = jax.dtypes.canonicalize_dtype(np.float64), []
    for array in arrays:
        each = jnp.ravel(array)
        if jnp.issubdtype(each.dtype, jnp.complexfloating):
            each = jnp.ravel(jnp.stack([each.real, -each.imag if dual else each.imag], axis=1))
        parts.append(each.astype(wide))
    return jnp.concatenate(parts)


def _value(fn: Any, domain: Any, _: Any, x: Any) -> list[Any]:
    return [_vector(fn(*_arrays(domain, x)))]


def _vjp(fn: Any, domain: Any, codomain: Any, x: Any, v: Any) -> list[Any]:
    back = jax.vjp(lambda *x: tuple(fn(*x)), *_arrays(domain, x))[1]
    return [_vector(back(_arrays(codomain, v, dual=True)), dual=True)]


def _vjps(fn: Any, domain: Any, codomain: Any, x: Any, vs: Any) -> list[Any]:
    return jax.vmap(lambda v: _vjp(fn, domain, codomain, x, v))(vs)  # type: ignore[no-any-return]  # a list


def _jvp(fn: Any, domain: Any, _: Any, x: Any, u: Any) -> list[Any]:
    return [_vector(jax.jvp(fn, _arrays(domain, x), _arrays(domain, u))[1])]


def _jvps(fn: Any, domain: Any, _: Any, x: Any, us: Any) -> list[Any]:
    push = jax.linearize(fn, *_arrays(domain, x))[1]
    return [jax.vmap(lambda u: _vector(push(*_arrays(domain, u))))(us)]


def _transposed_products(fn: Any, domain: Any, codomain: Any, x: Any, u: Any, v: Any) -> list[Any]:
    """J u from the transpose of v -> J^T v, and J^T v."""
    (gradient,), back = jax.vjp(lambda v: _vjp(fn, domain, codomain, x, v), v)
    return [*back([u.astype(gradient.dtype)]), gradient]


_WAYS: dict[str, Callable[..., list[Any]]] = {
    "value": _value,
    "vjp": _vjp,
    "vjps": _vjps,
    "jvp": _jvp,
    "jvps": _jvps,
    "transposed": _transposed_products,
}


@dataclass(frozen=True)
class _Program:
    """A program without its constants, equal to every other that does the same."""

    identity: Hashable
    jaxpr: Any = field(compare=False)


@functools.lru_cache(maxsize=_KEPT)
def _companions(_: _Program) -> dict[Any, Any]:
    """What is kept with a program."""
    return {}


@functools.lru_cache(maxsize=_KEPT)
def _compiled_program(program: _Program) -> Callable[..., Any]:
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
    if hasattr(value, "transforms") and is_of_jax(value):  # a rule, wrapped in every trace
        seen: dict[int, Any] = {}
        codes = tuple(getattr(each, "__code__", None) for each in functions_in(value, seen))
        # What is not differentiated goes with the rule: the solver of `custom_root` is such.
        held = tuple(_option(_wrapped_constant(each), ruled) for each in seen.values())
        # Objects hold what nothing here compares.
        return (codes, held) if all(codes) else _Itself(value)
    try:
        hash(value)
    except TypeError:
        return _Itself(value)
    return value  # type: ignore[no-any-return]  # it has a hash


def _wrapped_constant(value: Any) -> tuple[Any, ...]:
    """What is not differentiated, in JAX's wrapper of such an argument; empty of all else."""
    return (value.val,) if "val" in getattr(type(value), "__slots__", ()) else ()


@dataclass(frozen=True, eq=False)
class _Itself:
    """What is equal to nothing but itself; held, so that no other has its identity."""

    value: Any
