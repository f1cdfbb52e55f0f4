"""JAX functions as differentiable maps: values, and the VJP and JVP that JAX claims."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradproof._adapters.arrays import ROUNDINGS, ArrayMap, Piece
from gradproof._adapters.double import twin_in_double
from gradproof._adapters.raised import unsupported
from gradproof._data.held import finite_point
from gradproof._data.space import Array, Space, norm
from gradproof._maps.contract import Trait, Transform, Unsupported
from gradproof.errors import UsageError
from gradproof.jax._call import JaxCall
from gradproof.jax._constants import double_precision
from gradproof.jax._rounding import Rounded
from gradproof.jax._rules import UNTRACED, transform_result, untraced_reason
from gradproof.jax._samples import array_like as array_like
from gradproof.jax._samples import values_of as values_of
from gradproof.jax._traced import TracedFunction
from gradproof.jax._tree import JaxArguments, double_precision_value, named_outputs


def build(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrt: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    masked: bool = False,
) -> JaxMap:
    """The map of `fn` at `inputs`, differentiable in every array of floating numbers.

    A callable pytree, such as a layer of Equinox or Flax NNX, brings its parameters along. Python
    numbers, integers, keys and the like stay as they are. UsageError where nothing can be
    differentiated, an entry is NaN, or fn returns no array.
    """
    if masked:
        raise UsageError("masked: JAX's sparse arrays are not supported")
    return JaxMap(JaxCall(JaxArguments(fn, inputs, kwargs or {}, names, wrt)))


_FINEST = 2.0**-50  # unit round-off of a run that shows whether tracing changes the rules
_ANOTHER = 0.1  # part of a gradient by which another one differs


class JaxMap(ArrayMap):
    """A JAX function at a point.

    JAX's VJP goes by another convention than the contract, whose inner product is
    Re sum conj(a) b: J^T v = conj(vjp(conj(v))).

    What JAX makes of the function, `_traced`, is shared with the maps of the function at other
    points, and so is its map in double precision, `_twin`. Of the point are `_here`, `_value` and
    `_linearized`, each made when it is first asked for.

    Args:
        call: the function at its arguments.
        output_names: of a function in double precision that is compiled in fewer bits. It is not
            called then, which would compile each of its operations.
    """

    def __init__(self, call: JaxCall, output_names: Sequence[str] | None = None) -> None:
        self.call, self.precision_context = call, call.arguments.precision_context
        self._rounding: Rounded | None = None  # with which every operation is rounded
        self._twin: JaxMap | None = None
        self._here: Sequence[Any] = ()  # arrays at the point; nothing writes there, or keeps them
        self._value: Array | None = None  # F at the point
        self._linearized: tuple[Any, Callable[..., Any]] | None = None  # value, and backward
        with self.precision_context():
            super().__init__(call.name, *call.arguments.pieces_and_point())
            self._traced = TracedFunction(call, self.arrays_here())
            compiled = None if output_names is None else self._traced.compiled
            self._is_called = compiled is None  # F at the point is a call of the function
            if output_names is None or compiled is None:
                outputs = named_outputs(call.result(self.arrays_here()))
            else:
                zeros = [np.zeros(each.shape, each.dtype) for each in compiled.outputs]
                outputs = list(zip(output_names, zeros, strict=True))
            self.start(outputs)
            # Its derivatives as compiled programs. None where it has none, or they are another's.
            self._compiled = self._traced.compiled
            if self._is_called:
                self._keep_value(self.codomain_vector([array for _, array in outputs]))

    @property
    def is_compiled(self) -> bool:
        """Whether derivatives are of the compiled program: their value is the function's own."""
        return self._compiled is not None

    def another_value(self, *, forward: bool = False) -> str:
        """That what comes with a derivative is not the function's value; "" where it is.

        A rule returns both. It may compute the value in its own way: half of the digits agree.
        """
        if self.is_compiled or self.call.pull is not None:
            return ""
        with self.precision_context():
            here = self.arrays_here()
            zeros = list(map(jnp.zeros_like, here))
            found = jax.jvp(self.call.function, here, zeros) if forward else self._linearize()
        ours, theirs = self.kept_value(), self.codomain_vector(found[0])
        if is_near(ours, theirs, self.resolution**0.5):
            return ""
        at = int(np.argmax(np.nan_to_num(np.abs(ours - theirs), nan=np.inf)))
        return (
            f"with its derivative the function returns another value: {self.codomain.locate(at)} "
            f"is {theirs[at]:.6g}, and {ours[at]:.6g} without"
        )

    def _compiled_result(self, way: str, *vectors: Array) -> list[Array] | None:
        """What a compiled derivative gives, which counts as a call; None where there is none."""
        if self._compiled is None:
            return None
        self.counts.add("jvp" if way.startswith("jvp") else "vjp")
        with self.precision_context():
            return transform_result(self._compiled.run, way, self.given_point, *vectors)  # type: ignore[no-any-return] # a list

    def value(self, x: Array) -> Array:
        """F(x); at the point by a call of a called function, which shows whether it repeats."""
        self.counts.add("function")
        with self.precision_context():
            return self._value_at(x)

    def _value_at(self, x: Array) -> Array:
        is_here = self._is_called and np.array_equal(x, self.point)
        if is_here or self._compiled is None:
            return self.codomain_vector(self.run(self.arrays_here() if is_here else self.arrays(x)))
        return self._compiled.run("value", self.whole_point(x))[0]

    def vjp(self, v: Array) -> Array:
        if (found := self._compiled_result("vjp", v)) is None:
            return super().vjp(v)
        return self.domain.zero_still_entries(found[0])

    def jvp(self, u: Array) -> Array:
        if (found := self._compiled_result("jvp", u)) is None:
            return super().jvp(u)
        return found[0]

    def arrays_here(self) -> Sequence[Any]:
        """Arrays at the point; new ones where the user's function has donated some of them."""
        donated = any(isinstance(each, jax.Array) and each.is_deleted() for each in self._here)
        if donated or not self._here:
            self._here = self.arrays(self.point)
        return self._here

    def kept_value(self) -> Array:
        if self._value is None:
            with self.precision_context():
                self._keep_value(self._value_at(self.point))
        assert self._value is not None
        return self._value

    def _keep_value(self, value: Array) -> None:
        """Keep F at the point, and compiled derivatives only where they are of the same function.

        One that goes by how often it is called returns something else than its compiled program.
        """
        self._value = value
        if self._compiled is not None:
            again = self._compiled.run("value", self.given_point)[0]
            if not is_near(value, again, ROUNDINGS * self.resolution):
                self._compiled = None

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        return list(self._call_result("value", self.call.function, arrays))

    def _call_result(self, name: str, fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """fn(*arrays), a tuple: rounded, compiled, or as JAX runs it."""
        if self._rounding is not None:
            return self._rounding.run(name, fn, arrays)
        return self._traced.run(name, fn, arrays)

    def cotangents(self, v: Array) -> list[Any]:
        """By JAX's convention, as are gradients on the way inward."""
        return _conjugates(super().cotangents(v), self.outputs)

    def domain_vector(self, gradients: Sequence[Any]) -> Array:
        return super().domain_vector(_conjugates(gradients, self.inputs))

    def pull(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        if self._rounding is None and not self._traced.has_loops and self.call.pull is None:
            return tuple(transform_result(self._linearize()[1], tuple(cotangents)))
        given = [*self.arrays_here(), *cotangents]
        return tuple(transform_result(self._call_result, "vjp", self.call.gradient, given))

    def push(self, tangents: Sequence[Any]) -> Sequence[Any]:
        given = [*self.arrays_here(), *tangents]
        return self._call_result("jvp", self.call.tangent, given)  # type: ignore[no-any-return] # a tuple

    # The rest of the contract.

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        """J u from the transpose of v -> J^T v, which JAX takes in v."""
        if (found := self._compiled_result("transposed", u, v)) is not None:
            return found[0], self.domain.zero_still_entries(found[1])
        with self.precision_context():
            given = [*self.arrays_here(), *self.directions(u), *self.cotangents(v)]
            with unsupported():  # whatever a rule does that is not made to be differentiated
                products = self._call_result("transposed", self.call.transposed_products, given)
            self.counts.add("vjp")
            count = len(self.outputs)
            return self.codomain_vector(products[:count]), self.domain_vector(products[count:])

    def vjp_batch(self, vs: Array, batching: str) -> Array:  # noqa: ARG002  # there is one
        return self._batched_products(vs, forward=False)

    def jvp_batch(self, us: Array) -> Array:
        return self._batched_products(us, forward=True)

    def products(self, probes: Array, *, forward: bool) -> Array:
        """One rounded run of all probes, where the function can be batched."""
        if self._rounding is not None:
            with contextlib.suppress(Unsupported):
                return self._batched_products(probes, forward=forward)
        return super().products(probes, forward=forward)

    def _batched_products(self, probes: Array, *, forward: bool) -> Array:
        """J^T v, or J u, for every row of `probes` by one call under vmap."""
        name = "jvp" if forward else "vjp"
        if (compiled := self._compiled_result(f"{name}s", probes)) is not None:
            return compiled[0] if forward else self.domain.zero_still_entries(compiled[0])
        fn = self.call.tangent if forward else self.call.gradient
        arrays_of = self.directions if forward else self.cotangents
        vector_of = self.codomain_vector if forward else self.domain_vector
        stack = jnp.stack if self._rounding is None else np.stack
        with self.precision_context():
            here, rows = self.arrays_here(), map(arrays_of, probes)
            columns = list(map(stack, zip(*rows, strict=True)))
            batched = jax.vmap(fn, [None] * len(here) + [0] * len(columns))
            label, given = f"{name} of {len(probes)}", [*here, *columns]
            found = transform_result(self._call_result, label, batched, given)
            self.counts.add(name)
            return np.stack([vector_of(row) for row in zip(*map(np.asarray, found), strict=True)])

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        """Traits of gradients; none where JAX makes them, which sees to dtypes and shapes."""
        return () if self.is_compiled else super().gradient_traits(v)

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:  # noqa: ARG002  # JAX's arrays cannot change
        """That a function that repeats comes with another value where it is differentiated."""
        with self.precision_context(), contextlib.suppress(Unsupported):
            if difference := self.another_value():
                again = self.codomain_vector(self.call.function(*self.arrays_here()))
                if is_near(self.kept_value(), again, ROUNDINGS * self.resolution):
                    return [("primal", difference)]
        return ()

    def _linearize(self) -> tuple[Any, Callable[..., Any]]:
        """Value and backward of a call that has its own arrays. Unsupported where it has none."""
        if self._linearized is None:
            arrays = self.arrays(self.point)
            self._linearized = transform_result(jax.vjp, self.call.function, *arrays)
        return self._linearized

    def transforms(self) -> Sequence[Transform]:
        """Transforms other than those of AD; none of a derivative that was written by hand."""
        if self.call.pull is not None or self.call.push is not None:
            return ()
        return [Transform("compiled", "jax.jit"), Transform("checkpointed", "jax.checkpoint")]

    def transformed_product(self, probe: Array, transform: Transform) -> Array:
        def checkpointed(*arrays: Any) -> Any:
            count = len(self.inputs)
            back = jax.vjp(jax.checkpoint(self.call.function), *arrays[:count])[1]
            return back(arrays[count:])

        gradient = checkpointed if transform.name == "checkpointed" else jax.jit(self.call.gradient)
        with self.precision_context(), unsupported(*UNTRACED, why=untraced_reason):
            arguments = (*self.arrays_here(), *self.cotangents(probe))
            return self.domain_vector(transform_result(gradient, *arguments))

    # Maps made of this one.

    def map_at(self, x: Array) -> JaxMap:
        """The map of this function at x, which is called there only when its value is asked for."""
        made = copy.copy(self)
        with self.precision_context():
            made._here = self.arrays(x)
        pairs = zip(self.inputs, made._here, strict=True)
        rounded = np.concatenate([piece.vector(array) for piece, array in pairs])
        made.point, made.held = finite_point(self.domain, rounded)
        made._linearized = made._value = None
        return made

    def map_in_double(self, fn: Callable[..., Any] | None = None) -> JaxMap:
        """The same function, or `fn`, in double precision; the own one is traced only once.

        What draws random numbers in the default dtype, or in that of the inputs, draws others
        there: its value is another one, so that it is no reference.
        """
        if fn is None and self._twin is not None:
            is_here = np.array_equal(self._twin.point, self.point)
            return self._twin if is_here else self._twin.map_at(self.point)

        is_same = fn is None and self.is_compiled
        output_names = [slot.name for slot in self.codomain.slots] if is_same else None

        def build_twin() -> JaxMap:
            with double_precision():
                arrays = [double_precision_value(array) for array in self.arrays_here()]
                changed = self.call.arguments.with_changes(
                    arrays, double_precision_value, double_precision_value(fn)
                )
                made = JaxMap(replace(self.call, arguments=changed), output_names)
                return made.share_limits_of(self)

        found = twin_in_double(self, fn, build_twin)
        found = found.map_without_casts() or found
        if fn is None:
            self._twin = found
        return found

    @property
    def cast_unit(self) -> float:
        return self._traced.cast_unit

    def map_without_casts(self) -> JaxMap | None:
        if not self.cast_unit or self._rounding is not None or not self._has_same_rules_traced:
            return None
        found = self._map_of_rounding(0.0, 0.0, 0)
        try:
            found.vjp(np.ones(self.codomain.size))
        except Unsupported:
            return None
        return found

    def rounded_map(self, unit: float, tiny: float, seed: int) -> JaxMap:
        """Arrays of double precision go to it, and come back, as those of NumPy."""
        if not self._has_same_rules_traced:
            raise Unsupported("it has another derivative where it is traced")
        return self._map_of_rounding(unit, tiny, seed)

    @cached_property
    def _has_same_rules_traced(self) -> bool:
        """Whether the rules claim the same where they are traced, as in rounded runs."""
        if self._compiled is not None:
            return True
        v = np.ones(self.codomain.size)
        try:
            known = self.vjp(v)
            gap = self._map_of_rounding(_FINEST, 0.0, 0).vjp(v) - known
        except Unsupported:  # the run itself says why
            return True
        return not norm(gap) > _ANOTHER * norm(known)

    def _map_of_rounding(self, unit: float, tiny: float, seed: int) -> JaxMap:
        jaxprs = self._traced.rounded if self._compiled is None else self._compiled.rounded
        made = copy.copy(self)
        made._rounding = Rounded(unit, tiny, seed, jaxprs)
        made._compiled, made._value, made._here = None, None, ()
        made.inputs = [each.numpy_piece() for each in self.inputs]
        made.outputs = [each.numpy_piece() for each in self.outputs]
        if not unit:  # an output that the function casts by name is not cast either
            made.use_outputs([each.in_double() for each in self.outputs])
        return made

    def derivative(self, v: Array) -> JaxMap:
        count = len(self.inputs)

        def gradient(*arrays: Any) -> tuple[Any, ...]:
            cotangents = map(jnp.conj, arrays[count:])
            return tuple(map(jnp.conj, self.call.gradient(*arrays[:count], *cotangents)))

        with self.precision_context():
            cotangents = list(map(jnp.conj, self.cotangents(v)))
            found = self._derivative_map(gradient, "cotangent", cotangents, self.codomain)
        found.vjp(np.ones(found.codomain.size))  # Unsupported where the gradient has none
        return found

    def forward_derivative(self, u: Array) -> JaxMap:
        def tangent(*arrays: Any) -> tuple[Any, ...]:
            return tuple(self.call.tangent(*arrays))

        with self.precision_context():
            return self._derivative_map(tangent, "tangent", self.directions(u), self.domain)

    def _derivative_map(
        self, fn: Callable[..., Any], kind: str, arrays: Sequence[Any], space: Space
    ) -> JaxMap:
        """The map of a derivative in the point and in `arrays` of a space, which have this kind."""
        names = [slot.name for slot in self.domain.slots]
        names += [f"{kind} of {slot.name}" for slot in space.slots]
        fn.__name__ += f" of {self.name}"
        with unsupported(UsageError):
            made = JaxMap(JaxCall(JaxArguments(fn, (*self.arrays(self.point), *arrays), {}, names)))
        return made.share_limits_of(self)


def is_near(ours: Array, theirs: Array, part: float) -> bool:
    """Whether values are the same but for a part of each, and of their usual size."""
    if ours.shape != theirs.shape:
        return False
    finite = np.abs(ours[np.isfinite(ours)])
    size = np.abs(ours) + (np.sqrt(np.mean(finite**2)) if finite.size else 0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - theirs) <= part * size
    return bool(np.all(near | (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))))


def _conjugates(arrays: Sequence[Any], pieces: Sequence[Piece]) -> list[Any]:
    pairs = zip(arrays, pieces, strict=True)
    return [array.conj() if piece.is_complex else array for array, piece in pairs]
