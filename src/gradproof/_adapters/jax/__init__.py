"""JAX functions as differentiable maps: values, and the VJP and JVP that JAX claims.

JAX's VJP is the bilinear transpose: Re sum(v * Df[t]) = Re sum(vjp(v) * t). The contract's inner
product is Re sum conj(a) b, so that J^T v = conj(vjp(conj(v))).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradproof._adapters.arrays import ArrayMap, first_line
from gradproof._adapters.jax import siblings, transforms
from gradproof._adapters.jax.constants import double_precision
from gradproof._adapters.jax.rounding import Rounded
from gradproof._adapters.jax.rules import (
    Program,
    asked,
    compiled_call,
    has_loops,
    program_of,
    tells_of_zeros,
)
from gradproof._adapters.jax.samples import Samples as Samples
from gradproof._adapters.jax.tree import (
    Arguments,
    named_outputs,
    outputs_of,
    projectable,
    wide_numbers,
)
from gradproof._adapters.project import projections
from gradproof._data.options import container
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._guard.random import RandomState
from gradproof._maps.contract import DifferentiableMap, Transform, Unsupported
from gradproof.errors import UsageError


def build(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    masked: bool = False,
    names: Sequence[str] | None = None,
    project: Any = None,
    wrt: Any = None,
) -> JaxMap:
    """The map of `fn` at `inputs`, differentiable in every array of floating numbers.

    Args:
        fn: takes `*inputs, **kwargs`, pytrees; returns one. A callable pytree, such as a layer of
            Equinox or Flax NNX, brings its parameters along.
        inputs: positional arguments. Python numbers, integers, keys and the like stay as they are.
        kwargs: keyword arguments, likewise.
        masked: must be False.
        names: of the differentiable inputs, instead of the parameters' names.
        project: makes an input valid; a function of one array, or a dict from names to functions.
        wrt: which inputs are differentiated; all where None.

    Raises:
        UsageError: nothing can be differentiated, an entry is NaN, fn returns no array.
    """
    if masked:
        raise UsageError("masked: JAX's sparse arrays are not supported")
    arguments = Arguments(fn, inputs, kwargs or {}, names, wrt)
    with wide_numbers(arguments.values):
        given = map(projectable, arguments.names, arguments.values)
        return JaxMap(arguments, projections(project, list(given)))


def from_numpy(values: np.ndarray[Any, Any], *, differentiated: bool = False) -> jax.Array:  # noqa: ARG001  # all of JAX's are
    """An array of JAX with the numbers and the dtype of one of NumPy."""
    with double_precision():
        return jnp.asarray(values)


class JaxMap(ArrayMap):
    """A JAX function at a point.

    Args:
        arguments: the function and what it is called with.
        project: name of an input -> function that it goes through first.
        pull: (arguments, arrays, cotangents) -> gradients, claimed instead of what `jax.vjp`
            says; by its convention.
        push: (arguments, arrays, tangents) -> tangents, likewise of `jax.jvp`.
        rounding: with which every operation is rounded; None rounds none.
        programs: compiled functions by name, which maps of one function at several points share;
            None compiles nothing. Claims under test are never compiled by us.
    """

    def __init__(
        self,
        arguments: Arguments,
        project: Mapping[str, Callable[[Any], Any]] | None = None,
        *,
        pull: Callable[..., Any] | None = None,
        push: Callable[..., Any] | None = None,
        rounding: Rounded | None = None,
        programs: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.arguments, self.project = arguments, dict(project or {})
        self.own_pull, self.own_push, self._rounding = pull, push, rounding
        self._kept: Callable[..., Any] | None = None
        self.programs = programs
        with self.around():
            pieces, point = arguments.read()
            fn = arguments.fn
            super().__init__(str(getattr(fn, "__name__", type(fn).__name__)), pieces, point)
            here = self.here()
            outputs = named_outputs(container(f"the result of {self.name}", self._called(here)))
            # JAX compiles a loop anew in every call that is not compiled itself.
            compiled = {} if programs is None and has_loops(self.program) else programs
            self._measured: dict[str, Callable[..., Any]] | None = compiled
        if not outputs:
            raise UsageError(
                f"{self.name} returned no array of floating numbers; return an array or a pytree "
                "of arrays"
            )
        self.start(outputs)
        self._returned = [array for _, array in outputs]

    def kept_value(self) -> Array:
        with self.around():
            return self.outward(self._returned)

    @cached_property
    def program(self) -> Program:
        """What JAX makes of the function."""
        return program_of(self.function, self.here())

    def around(self) -> AbstractContextManager[Any]:
        return wide_numbers(self.arguments.values)

    def _called(self, arrays: Sequence[Any]) -> Any:
        names = self.arguments.names
        arrays = [
            self.project[name](array) if name in self.project else array
            for name, array in zip(names, arrays, strict=True)
        ]
        with restored(RandomState().restore):
            return self.arguments.call(arrays)

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        """The user's function of its exchangeable arrays; a tuple of its floating outputs."""
        return outputs_of(self._called(arrays))

    def here(self) -> list[Any]:
        return self.arrays(self.point)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        if self._rounding is not None:
            return list(self._rounding.run("value", self.function, arrays))
        return list(compiled_call(self._measured, "value", self.function, arrays))

    def cotangents(self, v: Array) -> list[Any]:
        """By JAX's convention, as are gradients on the way inward."""
        return list(map(jnp.conj, super().cotangents(v)))

    def inward(self, gradients: Sequence[Any]) -> Array:
        return super().inward([gradient.conjugate() for gradient in gradients])

    def pull(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        if self._rounding is not None:
            return self._rounding.run("vjp", self.gradient, [*self.here(), *cotangents])
        if self.programs is not None:
            given = [*self.here(), *cotangents]
            return tuple(asked(compiled_call, self.programs, "vjp", self.gradient, given))
        if self.own_pull is not None:
            return tuple(asked(self.gradient, *self.here(), *cotangents))
        if self._kept is None:
            self._kept = asked(jax.vjp, self.function, *self.here())[1]
        return tuple(asked(self._kept, tuple(cotangents)))

    def gradient(self, *arrays: Any) -> tuple[Any, ...]:
        """(x, v) -> the VJP of v at x, by JAX's convention."""
        count = len(self.inputs)
        if self.own_pull is not None:
            return tuple(self.own_pull(self.arguments, arrays[:count], arrays[count:]))
        return jax.vjp(self.function, *arrays[:count])[1](tuple(arrays[count:]))  # type: ignore[no-any-return] # a tuple

    def push(self, tangents: Sequence[Any]) -> Sequence[Any]:
        if self._rounding is not None:
            return self._rounding.run("jvp", self.tangent, [*self.here(), *tangents])
        return compiled_call(self.programs, "jvp", self.tangent, [*self.here(), *tangents])  # type: ignore[no-any-return] # a tuple

    def tangent(self, *arrays: Any) -> Any:
        """(x, u) -> the JVP of u at x."""
        count = len(self.inputs)
        if self.own_push is not None:
            return tuple(self.own_push(self.arguments, arrays[:count], arrays[count:]))
        return asked(jax.jvp, self.function, arrays[:count], arrays[count:])[1]

    # The rest of the contract.

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        """J u from the transpose of v -> J^T v, which JAX takes in v."""
        with self.around():
            try:
                gradients, back = jax.vjp(lambda *v: tuple(self.pull(v)), *self.cotangents(v))
                image = back(tuple(self.directions(u)))
            except Unsupported:
                raise
            except Exception as error:  # whatever a rule does that is not made to be differentiated
                raise Unsupported(first_line(error)) from error
            self.counts["vjp"] += 1
            return self.outward(image), self.inward(gradients)

    def vjp_batch(self, vs: Array, batching: str) -> Array:  # noqa: ARG002  # there is one
        with self.around():
            stacked = [jnp.stack(column) for column in zip(*map(self.cotangents, vs), strict=True)]
            self.counts["vjp"] += 1
            return self._rows(jax.vmap(lambda *v: tuple(self.pull(v))), stacked, self.inward)

    def jvp_batch(self, us: Array) -> Array:
        """By vmap over what `jax.linearize` returns, where it has no push of its own."""
        with self.around():
            stacked = [jnp.stack(column) for column in zip(*map(self.directions, us), strict=True)]
            if self.own_push is None:
                push = asked(jax.linearize, self.function, *self.here())[1]
            else:
                push = partial(self.tangent, *self.here())
            return self._rows(jax.vmap(lambda *u: tuple(push(*u))), stacked, self.outward)

    @staticmethod
    def _rows(
        batched: Callable[..., Any], stacked: list[Any], flat: Callable[[list[Any]], Array]
    ) -> Array:
        columns = [np.asarray(column) for column in asked(batched, *stacked)]
        return np.stack([flat([column[k] for column in columns]) for k in range(len(stacked[0]))])

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        """The VJP of the other outputs alone: a rule is handed a symbolic zero for these."""
        kept = [k for k in range(len(self.outputs)) if k not in missing]
        if self.own_pull is not None:
            raise Unsupported("no undefined cotangents")
        if not kept:
            return np.zeros(self.domain.size)  # nothing is pulled back, no rule is asked

        def some(*arrays: Any) -> list[Any]:
            outputs = self.function(*arrays)
            return [outputs[k] for k in kept]

        with self.around():
            cotangents = self.cotangents(v)
            back = asked(jax.vjp, some, *self.here())[1]
            self.counts["vjp"] += 1
            return self.inward(back([cotangents[k] for k in kept]))

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        """The JVP in the other inputs alone: a rule is handed a symbolic zero for these."""
        kept = [k for k in range(len(self.inputs)) if k not in missing]
        if self.own_push is not None or not kept:
            raise Unsupported("no undefined tangents")
        with self.around():
            tangents = self.directions(u)
            some, primals = self._of(kept)
            return self.outward(asked(jax.jvp, some, primals, [tangents[k] for k in kept])[1])

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        """The VJP in some inputs alone: a rule may be told that the others are not perturbed."""
        kept = sorted(slots)
        with self.around():
            told = self.own_pull is None and tells_of_zeros(self.program)
        if not told:
            raise Unsupported("no rule of this function is told which inputs are differentiated")
        with self.around(), jax.disable_jit(not self.compiles_subsets()):
            some, primals = self._of(kept)
            back = asked(jax.vjp, some, *primals)[1]
            self.counts["vjp"] += 1
            gradients = list(map(jnp.zeros_like, self.here()))
            for place, gradient in zip(kept, asked(back, tuple(self.cotangents(v))), strict=True):
                gradients[place] = gradient
            return self.inward(gradients)

    def compiles_subsets(self) -> bool:
        """Only loops are: each subset is another program, and all else can do without."""
        with self.around():
            return has_loops(self.program)

    def _of(self, kept: Sequence[int]) -> tuple[Callable[..., tuple[Any, ...]], list[Any]]:
        """The function of some of its arrays alone, and these at the point."""
        here = self.here()

        def some(*arrays: Any) -> tuple[Any, ...]:
            whole = dict(enumerate(here)) | dict(zip(kept, arrays, strict=True))
            return self.function(*(whole[k] for k in range(len(here))))

        return some, [here[k] for k in kept]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:  # noqa: ARG002  # JAX's arrays cannot change
        with restored(RandomState().restore), self.around():
            np.random.rand()  # noqa: NPY002  # refills the state, which a few draws then only walk
            state = np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
            self.arguments.call(self.here())
            seeded = not np.array_equal(state, np.random.get_state()[1])  # type: ignore[index] # noqa: NPY002
        return [("random", "the function set NumPy's global random state")] * seeded

    def unreached(self) -> Sequence[int]:
        """Inputs whose gradient is zero throughout, for a cotangent that has no zero."""
        gradient = self.vjp(1.0 + np.arange(self.codomain.size) % 7)
        return [k for k in range(len(self.inputs)) if not gradient[self.domain.span(k)].any()]

    # Maps made of this one.

    def at(self, x: Array) -> JaxMap:
        return siblings.at(self, x)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        return siblings.in_double(self, fn)

    def rounded(self, unit: float, tiny: float, seed: int) -> JaxMap:
        return siblings.rounded(self, unit, tiny, seed)

    def derivative(self, v: Array) -> JaxMap:
        return siblings.derivative(self, v)

    def forward_derivative(self, u: Array) -> JaxMap:
        return siblings.forward_derivative(self, u)

    def transforms(self) -> Sequence[Transform]:
        return transforms.available(self)

    def vjp_transform(self, v: Array, name: str) -> Array:
        return transforms.vjp(self, v, name)

    def jvp_transform(self, u: Array, name: str) -> Array:  # noqa: ARG002  # there is one
        return transforms.jvp(self, u)
