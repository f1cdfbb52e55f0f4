"""Stochastic arithmetic of fewer bits: a JAX program with the result of every operation rounded.

The program is the jaxpr of a function, of its VJP or of its JVP, rules written by users included.
It is run operation by operation in double precision, in NumPy where that has the operation. What
the program casts to fewer bits stays double.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from gradproof._adapters.raised import unsupported
from gradproof._adapters.rounding import round_at_random, round_to_nearest
from gradproof._data.exceptions import first_line
from gradproof._maps.contract import Unsupported
from gradproof.jax._compat import bind_equation
from gradproof.jax._constants import double_dtype
from gradproof.jax._hosted import PLAIN, numpy_result
from gradproof.jax._programs import allow_transfers
from gradproof.jax._rules import programs_in, untraced_reason

# Operations that move numbers or take one of them: nothing is rounded.
_EXACT_NAMES = """
    reshape transpose broadcast_in_dim slice dynamic_slice concatenate squeeze rev pad gather
    neg abs sign max min select_n copy copy_p stop_gradient reduce_max reduce_min real imag
    conj complex expand_dims sort iota dynamic_update_slice split convert_element_type pvary
    floor ceil round
"""
_EXACT = frozenset(_EXACT_NAMES.split())
# Factorisations are exact for a matrix that is off by rounding of its largest entry (Higham,
# Accuracy and Stability of Numerical Algorithms, 2002), not entry by entry.
_NORMWISE_NAMES = """
    cholesky triangular_solve lu geqrf qr eigh svd eig schur householder_product hessenberg
    tridiagonal tridiagonal_solve
"""
_NORMWISE = frozenset(_NORMWISE_NAMES.split())
_SUMS = ("reduce_sum", "scatter-add")
_PREFIXES = {"cumsum": jnp.add, "cumprod": jnp.multiply, "cumlogsumexp": jnp.logaddexp}
_LEADING = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
_WHOLE = ("shard_map", "pallas_call")  # not taken apart
_INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters in which an operation keeps a program


class Rounded:
    """Runs programs with random rounding, as `DifferentiableMap.rounded_map` says.

    With a unit round-off of zero nothing is rounded, as `map_without_casts` says. `programs` are
    jaxprs by name, shared by the runs of one map.
    """

    def __init__(self, unit: float, tiny: float, seed: int, programs: dict[Any, Any]) -> None:
        self._unit, self._tiny, self._programs, self._seed = unit, tiny, programs, seed
        self._draws = np.random.Generator(np.random.Philox(key=self._seed))
        self._start: Any = self._draws.bit_generator.state

    def run(self, name: Any, fn: Callable[..., Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
        """fn(*arrays), a tuple of arrays. Unsupported where it cannot be traced, or taken apart."""
        if name not in self._programs:
            # Of the user's, or JAX's about values that steer.
            with unsupported(why=untraced_reason):
                self._programs[name] = jax.make_jaxpr(fn)(*arrays)
        # What lives inside another only, as psum does in shard_map.
        why = "it cannot be run step by step: {}".format
        with allow_transfers(), unsupported(why=lambda e: why(first_line(e))):
            return tuple(
                self._run_program(self._programs[name], list(map(self._host_array, arrays)))
            )

    def _run_program(self, program: Any, arrays: Sequence[Any]) -> list[Any]:
        """What a jaxpr, with its constants or without any, makes of these arrays."""
        jaxpr, constants = getattr(program, "jaxpr", program), getattr(program, "consts", ())
        held = [self._rounded_constant(self._host_array(each)) for each in constants]
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, held, strict=True))
        known.update(zip(jaxpr.invars, arrays, strict=True))

        def read(atom: Any) -> Any:
            if isinstance(atom, core.Literal):
                literal = np.asarray(atom.val, atom.aval.dtype)
                return self._rounded_constant(self._host_array(literal))
            return known[atom]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, values: list[Any]) -> list[Any]:
        name, parameters = equation.primitive.name, equation.params
        if name == "cond":
            return self._run_program(parameters["branches"][int(values[0])], values[1:])
        if name == "while":
            return self._while(parameters, values)
        if name == "scan":
            return self._scan(parameters, values)
        if name in _PREFIXES:
            return self._cumulative(name, values[0], **parameters)
        if name in _WHOLE:
            raise Unsupported(f"it holds a {name}, which is one operation here")
        inside = next((parameters[key] for key in _INSIDE if key in parameters), None)
        if inside is not None and hasattr(getattr(inside, "jaxpr", inside), "eqns"):
            return self._run_program(inside, values)
        if name in _NORMWISE:
            values = [self._perturbed_matrix(value) for value in values]
        results = self._apply_equation(equation, values)
        if name in _SUMS:
            results = [self._sum_with_error(equation, results[0], *values)]
        return results if name in _EXACT else [self._round(result) for result in results]

    def _apply_equation(self, equation: Any, values: Sequence[Any]) -> list[Any]:
        """What an operation makes of these values."""
        if (result := numpy_result(equation, values)) is not None:
            return [result]
        results = bind_equation(_in_double(equation), values)
        found = results if equation.primitive.multiple_results else [results]
        return list(map(self._host_array, found))

    def _host_array(self, value: Any) -> Any:
        """An array in double precision, or of flags; NumPy's, where that may work on it."""
        dtype = getattr(value, "dtype", None)
        if dtype is not None and double_dtype(dtype) != dtype:
            value = np.asarray(value).astype(dtype := double_dtype(dtype))
        return np.asarray(value) if dtype in PLAIN else value

    def _sum_with_error(self, equation: Any, total: Any, *values: Any) -> Any:
        """A sum, off by what its partial sums are rounded by: XLA adds arrays of few bits in these.

        Pairwise, or in blocks, by the unit round-off times the norm of the terms and the root of
        the number of levels (Higham, section 4.2); to the entries of a scatter one after the other:
        of k terms the partial sums grow like the root of k and are rounded k times, together by
        nearly the sum of the sizes. What is a coarse number, as a single term is, is not rounded.
        """
        if getattr(total, "dtype", None) not in _LEADING or not total.size or not self._tiny:
            return total
        if len(values) == 1:
            levels = np.log2(values[0].size / total.size)
            sizes = np.sqrt(levels * self._apply_equation(equation, [np.abs(values[0]) ** 2])[0])
        else:
            parts = np.abs(values[0]), values[1], np.abs(values[2])
            (sizes,) = self._apply_equation(equation, parts)
        error = self._unit * sizes * self._signed_draws(total)
        return np.where(self._rounded_constant(total) == total, total, total + error)

    def _cumulative(self, name: str, value: Any, axis: int, reverse: bool) -> list[Any]:
        """Sums or products to each place. One operation to JAX, which rounds inside of it."""
        scan = partial(jax.lax.associative_scan, _PREFIXES[name], reverse=reverse, axis=axis)
        return list(self.run((name, value.shape, value.dtype, axis, reverse), scan, [value]))

    def _while(self, parameters: Any, values: list[Any]) -> list[Any]:
        first, second = parameters["cond_nconsts"], parameters["body_nconsts"]
        of_test, of_body = values[:first], values[first : first + second]
        carry = values[first + second :]
        test, body = parameters["cond_jaxpr"], parameters["body_jaxpr"]
        while (going := np.asarray(self._run_program(test, [*of_test, *carry])[0])).any():
            found = self._run_program(body, [*of_body, *carry])
            # Batched, each entry of the batch stops by itself.
            carry = [
                new
                if going.all()
                else jnp.where(np.expand_dims(going, tuple(range(going.ndim, old.ndim))), new, old)
                for new, old in zip(found, carry, strict=True)
            ]
        return carry

    def _scan(self, parameters: Any, values: list[Any]) -> list[Any]:
        constants, carried = parameters["num_consts"], parameters["num_carry"]
        fixed, carry = values[:constants], values[constants : constants + carried]
        sequences, length = values[constants + carried :], parameters["length"]
        steps: list[list[Any]] = [[]] * length
        for step in reversed(range(length)) if parameters["reverse"] else range(length):
            here = [sequence[step] for sequence in sequences]
            results = self._run_program(parameters["jaxpr"], [*fixed, *carry, *here])
            carry, steps[step] = results[:carried], results[carried:]
        if not length:
            raise Unsupported("a scan of no steps")
        return [*carry, *(jnp.stack(each) for each in zip(*steps, strict=True))]

    def _round(self, value: Any) -> Any:
        def at_random(array: Any) -> Any:
            return round_at_random(array, self._uniform_draws(array), self._unit, self._tiny)

        return self._on_grid(value, at_random)

    def _rounded_constant(self, value: Any) -> Any:
        return self._on_grid(value, partial(round_to_nearest, unit=self._unit, tiny=self._tiny))

    def _on_grid(self, value: Any, rounded: Callable[[Any], Any]) -> Any:
        kind = getattr(value, "dtype", None)
        if kind == np.complex128:
            parts = (self._on_grid(part, rounded) for part in (value.real, value.imag))
            return jax.lax.complex(*parts)
        is_rounded = kind == np.float64 and value.size and self._unit
        return rounded(np.asarray(value)) if is_rounded else value

    def _perturbed_matrix(self, value: Any) -> Any:
        """A matrix whose entries are off by roundings of its largest; other values as they are."""
        kind = getattr(value, "dtype", None)
        if kind not in (np.float64, np.complex128) or value.ndim < 2 or not value.size:
            return value
        size = self._unit * max(value.shape[-2:]) ** 0.5
        largest = np.max(np.abs(value), axis=(-2, -1), keepdims=True)
        return value + size * largest * self._signed_draws(value)

    def _signed_draws(self, value: Any) -> Any:
        """Numbers in [-1, 1), of complex arrays complex ones, one for each entry."""
        draws = 2 * self._uniform_draws(np.stack([value.real, value.imag])) - 1
        return draws[0] if value.dtype == np.float64 else draws[0] + 1j * draws[1]

    def _uniform_draws(self, value: Any) -> Any:
        """Numbers in [0, 1), one for each entry; the same for the same entries.

        Arithmetic repeats itself: what a backward keeps of the forward is rounded once, for all
        its cotangents, and what these have in common does not average out over them.
        """
        leading = np.asarray(value).astype(_LEADING[value.dtype])  # the last differ by machine
        seed = zlib.crc32(leading.tobytes(), self._seed)
        self._start["state"]["key"] = np.asarray([seed, self._seed], np.uint64)
        self._draws.bit_generator.state = self._start  # a new one takes longer than the draws
        return self._draws.random(value.shape)


@functools.lru_cache(maxsize=1024)
def _in_double(equation: Any) -> Any:
    """An equation with what it asks for in double precision: dtypes, and programs of its own.

    JAX compiles an operation anew for every program that it is handed: so these are kept.
    """
    if equation.primitive.name == "bitcast_convert_type":  # which reads bits
        return equation
    changed: dict[str, Any] = {}
    for key, option in equation.params.items():
        if isinstance(option, np.dtype) and double_dtype(option) != option:
            changed[key] = double_dtype(option)
        for program in programs_in(option):
            given = getattr(program, "jaxpr", program).invars
            kinds = [getattr(each.aval, "dtype", None) for each in given]
            if all(kind is None or double_dtype(kind) == kind for kind in kinds):
                continue
            if program is not option or program.eqns[1:]:  # unlike what a scatter does to entries
                raise Unsupported(f"{equation.primitive.name} holds a program of fewer bits")
            wide = [jax.ShapeDtypeStruct(v.aval.shape, double_dtype(v.aval.dtype)) for v in given]
            fn = core.jaxpr_as_fun(core.ClosedJaxpr(program, ()))
            changed[key] = jax.make_jaxpr(fn)(*wide).jaxpr
    return equation.replace(params=equation.params | changed) if changed else equation
