"""Compiled JAX programs, kept from one check to the next.

A program is kept by what it does, not by the function that it was made of: every map traces its
function anew, and what it closes over counts as it is then. Two traces that read alike, equation by
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
from gradproof.jax._rules import equations_of, functions_in, programs_in

_KEPT = 64  # compiled programs; a check makes up to ten


@dataclass(frozen=True)
class _Program:
    """A program without its constants, equal to every other that does the same."""

    identity: Hashable
    jaxpr: Any = field(compare=False)


def _identity_of(jaxpr: Any) -> Hashable:
    """What a jaxpr does, equal to that of every other that does the same.

    Of each equation the operation, its operands and results by their number, type and, of numbers,
    bytes; and its parameters: text, the identities of jaxprs, and of the rules that JAX brings
    along for some functions the code, and what they hold. Jaxprs in these are equal to themselves
    alone.
    """
    places: dict[Any, int] = {}

    def operand(atom: Any) -> Hashable:
        if isinstance(atom, core.Literal):
            return atom.aval, np.asarray(atom.val).tobytes()
        return atom.aval, places.setdefault(atom, len(places))

    def operands(atoms: Sequence[Any]) -> Hashable:
        return tuple([operand(each) for each in atoms])

    given = operands(jaxpr.constvars), operands(jaxpr.invars)
    steps = [
        (each.primitive, operands(each.invars), operands(each.outvars), _identity_of_options(each))
        for each in jaxpr.eqns
    ]
    return given, *steps, operands(jaxpr.outvars)


def _identity_of_options(equation: Any) -> Hashable:
    parts: list[Hashable] = []
    seen: dict[int, Any] = {}
    for key, option in equation.params.items():
        programs = list(programs_in(option))
        rules = functions_in(option, seen)
        parts += key, "" if programs else str(option), *map(_identity_of_inner, programs)
        parts += [getattr(rule, "__code__", rule) for rule in rules]
    # What is not differentiated goes with the rule: the solver of `custom_root` is such.
    held = [each.val for each in seen.values() if "val" in getattr(type(each), "__slots__", ())]
    return *parts, *map(_itself_or_unique, held)


@functools.lru_cache(maxsize=1024)
def _identity_of_inner(program: Any) -> Hashable:
    """That of a jaxpr inside of another, of which JAX keeps many from one trace to the next."""
    constants = [np.asarray(each).tobytes() for each in getattr(program, "consts", ())]
    return _identity_of(getattr(program, "jaxpr", program)), *constants


def _itself_or_unique(value: Any) -> Hashable:
    """The value where it has a hash; else what is equal to nothing."""
    try:
        hash(value)
    except TypeError:
        return object()
    return value  # type: ignore[no-any-return]  # it has a hash


class CompiledDerivatives:
    """Value and derivatives of a traced function, as programs between flat real vectors.

    Each way to ask is one program, into which a vector goes as a whole and which hands back one:
    no transfer of each array, and nothing is traced again. Complex entries are two coordinates;
    cotangents and gradients are conjugated (J^T v = conj(vjp(conj(v)))).
    """

    def __init__(self, traced: Any) -> None:
        self._constants, self.outputs = traced.consts, traced.out_avals
        self._program = _Program(_identity_of(traced.jaxpr), traced.jaxpr)
        # Jaxprs of its rounded runs, for the next check too where they hold no arrays of the user.
        self.rounded = {} if traced.consts else _rounded_programs(self._program)
        # Those used: to find one among all, the program is hashed.
        self._ways: dict[str, Callable[..., Any]] = {}

    def run(self, way: str, *vectors: Array) -> list[Array]:
        """The vectors that a way of `_WAYS` makes of these."""
        if way not in self._ways:
            self._ways[way] = _compiled_way(self._program, way)
        with allow_transfers():
            found = self._ways[way](self._constants, *vectors)
            return [np.array(each, dtype=np.float64) for each in found]


def allow_transfers() -> AbstractContextManager[Any]:
    """Where vectors may go to the device and back: a user's guard is for the user's transfers."""
    config = jax.config
    guards = config.jax_transfer_guard_host_to_device, config.jax_transfer_guard_device_to_host
    return jax.transfer_guard("allow") if any(guards) else nullcontext()


@functools.lru_cache(maxsize=_KEPT)
def _rounded_programs(_: _Program) -> dict[Any, Any]:
    """Where the jaxprs of rounded runs of a program are kept, by name."""
    return {}


@functools.lru_cache(maxsize=_KEPT)
def _compiled_way(program: _Program, way: str) -> Callable[..., Any]:
    """The compiled program of (constants, flat vectors) -> flat vectors."""
    jaxpr = program.jaxpr
    domain = [each.aval for each in jaxpr.invars]
    codomain = [each.aval for each in jaxpr.outvars]

    def run(constants: Sequence[Any], *vectors: Any) -> list[Any]:
        fn = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, constants))
        return _WAYS[way](fn, domain, codomain, *vectors)

    kinds = [*domain, *(atom.aval for each in equations_of(jaxpr) for atom in each.outvars)]
    is_fast = jax.default_backend() == "cpu" and all(_is_cheap(kind, way) for kind in kinds)
    options = {"xla_backend_optimization_level": 0} if is_fast else None
    return jax.jit(run, compiler_options=options)  # type: ignore[no-any-return]  # JAX's


def _is_cheap(kind: Any, way: str) -> bool:
    """Whether an array needs no optimised program.

    Optimising takes half of the time to compile, and saves time on longer arrays only. In fewer
    bits than 64 it changes the rounding, which is then not that of the user's compiled function:
    that matters where the result is judged, not where it is compared with what was judged.
    """
    dtype = getattr(kind, "dtype", np.dtype(bool))
    is_wide = not jnp.issubdtype(dtype, jnp.inexact) or jnp.finfo(dtype).bits == 64
    return (is_wide or way in _COMPARED) and math.prod(getattr(kind, "shape", ())) <= 2**14


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


def _jvps(fn: Any, domain: Any, codomain: Any, x: Any, us: Any) -> list[Any]:
    return jax.vmap(lambda u: _jvp(fn, domain, codomain, x, u))(us)  # type: ignore[no-any-return]  # a list


def _transposed_products(fn: Any, domain: Any, codomain: Any, x: Any, u: Any, v: Any) -> list[Any]:
    """J u from the transpose of v -> J^T v, and J^T v."""
    (gradient,), back = jax.vjp(lambda v: _vjp(fn, domain, codomain, x, v), v)
    return [*back([u.astype(gradient.dtype)]), gradient]


_COMPARED = frozenset({"vjps", "jvps", "transposed"})  # ways whose results agree to half the digits
_WAYS: dict[str, Callable[..., list[Any]]] = {
    "value": _value,
    "vjp": _vjp,
    "vjps": _vjps,
    "jvp": _jvp,
    "jvps": _jvps,
    "transposed": _transposed_products,
}
