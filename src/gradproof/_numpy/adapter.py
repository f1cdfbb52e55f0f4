"""Functions of arrays whose derivative is written by hand: adjoints, Jacobians, operators.

The arrays are NumPy's, or those of PyTorch or JAX. For complex arrays
<a, b> = Re sum conj(a) b: `vjp` of v is J^H v, as `rmatvec` has it and PyTorch's gradients, and
`jac` is the matrix J that maps a change of the input to one of the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gradproof._adapters.arrays import (
    ArrayMap,
    Piece,
    chosen_names,
    name_at,
    read_pieces,
    to_numpy,
)
from gradproof._adapters.double import twin_in_double
from gradproof._adapters.handed_out import HandedOut
from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import name_of, parameter_names, selected_positions
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw_numbers, effect_on, source_of
from gradproof._maps.contract import Unsupported
from gradproof._numpy.call import (
    HandWrittenCall,
    as_array,
    as_tuple,
    double_precision_array,
    floating_outputs,
    require_gradients,
    single_or_tuple,
    value_and_derivative,
)
from gradproof._numpy.jacobian import blocks_of, is_operator, matrix_product
from gradproof._numpy.layouts import LAYOUTS, in_layout
from gradproof._numpy.samples import array_like as array_like
from gradproof._numpy.samples import values_of as values_of
from gradproof.errors import UsageError


def build(
    hand: ByHand,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    wrt: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    masked: bool = False,
) -> HandMap:
    """The map of a function at `inputs`, with its derivative that is written by hand.

    Inputs of real or complex floating numbers are differentiated, `hand.args` and `kwargs`, which
    every claim gets too, are not. UsageError where nothing can be differentiated, or the function
    returns no array.
    """
    if masked:
        raise UsageError("masked: not with a derivative written by hand")
    call = HandWrittenCall(hand, tuple(map(as_array, inputs)), dict(kwargs or {}))
    places = call.differentiable_positions()
    parameters = parameter_names(hand.fn)
    found = chosen_names([name_at(parameters, place) for place in places], names)
    picked = selected_positions(found, places, wrt)
    call = replace(call, places=tuple(places[k] for k in picked))
    return HandMap(call, [found[k] for k in picked])


class HandMap(ArrayMap):
    """A function with a derivative written by hand.

    Args:
        call: the function at its arguments.
        names: of the inputs that are differentiated.
        jacobian: what the user calls `jac`, for messages.
    """

    _own: list[Any] | None = None
    _moved: Array | None = None

    def __init__(self, call: HandWrittenCall, names: Sequence[str], jacobian: str = "jac") -> None:
        self._call, self._claims, self._gradients = call, call.hand, HandedOut()
        self._jacobian = jacobian
        claims = call.hand
        self._is_paired = claims.jac is True or claims.grad is True
        held = (*call.inputs, *claims.args, *call.kwargs.values())
        self._random = RandomState(filter(None, map(source_of, held)))
        values = [call.inputs[place] for place in call.places]
        pieces, point = read_pieces(names, values)
        super().__init__(name_of(claims.fn), pieces, point)
        outputs = self.run(self.arrays(self.point))
        self.start([(f"output {k}", output) for k, output in enumerate(outputs)])
        if claims.grad is not None and self.codomain.size != 1:
            raise UsageError(
                f"grad: {self.name} has {self.codomain.size} real values; a gradient belongs to "
                "one, pass vjp= or jac="
            )

    def close(self) -> None:
        """Restore the random states of when the map was built."""
        self._random.restore()

    # What the user wrote.

    def _point_arrays(self) -> list[Any]:
        """The arrays of the point, the same ones for every claim, with its numbers written anew."""
        fresh = self.arrays(self.point if self._moved is None else self._moved)
        own = self._own or fresh
        for place, values in enumerate(fresh):
            if type(values) is np.ndarray:
                own[place][...] = values
            else:
                own[place] = values
        self._own = own
        return list(own)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        result = self._call.claim(self._claims.fn, arrays)
        if self._is_paired:
            result = value_and_derivative(result)[0]
        return floating_outputs(result)

    def pull(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        claims, here = self._claims, self._point_arrays()
        if claims.vjp is not None:
            cotangent = single_or_tuple(cotangents)
            gradients = self._call.claim(claims.vjp, here, cotangent)
            return as_tuple("vjp", gradients, len(self.inputs))
        if claims.grad is not None:
            gradients = as_tuple("grad", self._claimed_derivative(claims.grad), len(self.inputs))
            factor = to_numpy(cotangents[0])
            require_gradients(gradients, self.inputs)
            return [factor * to_numpy(g).reshape(np.shape(g)) for g in gradients]
        if claims.jac is None:
            raise Unsupported("no backward: give vjp=, jac= or grad=")
        flats = [piece.vector(v) for piece, v in zip(self.outputs, cotangents, strict=True)]
        return self._by_blocks(flats, self.outputs, self.inputs, adjoint=True)

    def push(self, tangents: Sequence[Any]) -> Sequence[Any]:
        claims = self._claims
        if claims.jvp is not None:
            here, tangent = self._point_arrays(), single_or_tuple(tangents)
            return as_tuple("jvp", self._call.claim(claims.jvp, here, tangent), len(self.outputs))
        if claims.jac is None:
            raise Unsupported("no forward mode: give jvp= or jac=")
        flats = [piece.vector(u) for piece, u in zip(self.inputs, tangents, strict=True)]
        return self._by_blocks(flats, self.inputs, self.outputs, adjoint=False)

    def _claimed_derivative(self, claim: Any) -> Any:
        """A derivative at the point: the user's function of it, or what stands for itself."""
        if claim is True:
            return value_and_derivative(self._call.claim(self._claims.fn, self._point_arrays()))[1]
        if callable(claim) and not is_operator(claim):
            return self._call.claim(claim, self._point_arrays())
        return claim

    def _by_blocks(
        self, flats: list[Array], origin: list[Piece], target: list[Piece], *, adjoint: bool
    ) -> list[Any]:
        """The products with the matrices that the user gave, summed over what they start from."""
        jacobian = self._claimed_derivative(self._claims.jac)
        sizes = [math.prod(each.slot.shape) for each in target]  # complex numbers counted once
        pairs = zip(origin, flats, strict=True)
        vectors = [flat.view(np.complex128) if one.is_complex else flat for one, flat in pairs]
        outputs, inputs = ([p.slot.shape for p in some] for some in (self.outputs, self.inputs))
        name, is_single = self._jacobian, len(outputs) == len(inputs) == 1
        if hasattr(jacobian, "shape") and not is_single:  # one matrix of all outputs and inputs
            rows, columns = (sum(math.prod(shape) for shape in some) for some in (outputs, inputs))
            vector = np.concatenate(vectors)
            whole = matrix_product(name, jacobian, vector, (rows,), (columns,), adjoint=adjoint)
            parts = np.split(whole, np.cumsum(sizes)[:-1])
        else:
            blocks = blocks_of(name, jacobian, len(outputs), len(inputs))
            parts = [np.zeros(size) for size in sizes]
            for i, (row, output) in enumerate(zip(blocks, outputs, strict=True)):
                for k, (block, input_) in enumerate(zip(row, inputs, strict=True)):
                    start, end = (i, k) if adjoint else (k, i)
                    more = matrix_product(
                        name, block, vectors[start], output, input_, adjoint=adjoint
                    )
                    parts[end] = parts[end] + more
        pieces = zip(target, parts, strict=True)
        return [np.reshape(part, piece.slot.shape) for piece, part in pieces]

    # The rest of the contract.

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        if self._claims.vjp is not None or self._claims.jac is None:
            raise Unsupported("a backward written by hand gives projections only")
        return self.jvp(u), self.vjp(v)

    def products_in_reused_arrays(self, x: Array, v: Array) -> tuple[Array, Array, Array]:
        if not any(type(array) is np.ndarray for array in self._point_arrays()):
            raise Unsupported("its inputs are not written into")
        self.run(self.arrays(x))
        here = self.vjp(v)
        self._moved = x
        try:
            self.counts.add("function", 2)
            return here, self.codomain_vector(self.run(self._point_arrays())), self.vjp(v)
        finally:
            self._moved = None

    def vjp(self, v: Array) -> Array:
        self.counts.add("vjp")
        found = self.pull(self.cotangents(v))
        gradient = self.domain_vector(found)
        if self._gradients.pair is None:
            self._gradients.watch_gradients(v, found, gradient, self.domain_vector)
        return gradient

    def layouts(self) -> tuple[str, ...]:
        # Only a function of the cotangent can depend on how it lies in memory.
        if self._claims.vjp is None or not self.codomain.size:
            return ()
        given = self.cotangents(np.zeros(self.codomain.size))
        are_of_numpy = all(isinstance(v, (np.ndarray, np.generic)) for v in given)
        return LAYOUTS if are_of_numpy and any(v.ndim for v in given) else ()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self.domain_vector(
            self.pull([in_layout(array, layout) for array in self.cotangents(v)])
        )

    def gradient_traits(self, v: Array) -> Any:
        """Traits of what `vjp` or `grad` returned.

        As in SciPy a `grad` may return integers for floats, and a number for one entry.
        """
        if self._claims.vjp is not None:
            return super().gradient_traits(v)
        if self._claims.grad is None:
            return ()
        return [
            trait
            for trait in super().gradient_traits(v)
            if (trait.what == "shape" and {trait.claimed, trait.expected} != {"()", "(1,)"})
            or ("complex" in trait.claimed and "complex" not in trait.expected)
        ]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        arrays, cotangents = self.arrays(self.point), self.cotangents(v)
        constants = (*self._claims.args, *self._call.kwargs.values())
        pairs = zip(arrays, self.domain.slots, strict=True)
        handed_over = [
            *((array, "input", f"input {slot.name}") for array, slot in pairs),
            *((each, "cotangent", "cotangent, which others may use") for each in cotangents),
            *((each, "input", "argument that is not tested") for each in constants),
        ]
        watched = [(a, a.copy(), *words) for a, *words in handed_over if isinstance(a, np.ndarray)]
        found: list[tuple[str, str]] = []
        parts: dict[str, Callable[[], object]] = {"function": partial(self.run, arrays)}
        if (vjp := self._claims.vjp) is not None:
            cotangent = single_or_tuple(cotangents)
            parts["backward"] = partial(self._call.claim, vjp, arrays, cotangent)
        with restored(RandomState().restore):
            draw_numbers()  # earlier runs may have set a state
            begun = RandomState()
            for who, run in parts.items():
                run()
                for k, (array, kept, kind, what) in enumerate(watched):
                    if not np.array_equal(array, kept, equal_nan=kept.dtype.kind in "fc"):
                        found.append((kind, f"the {who} changed its {what}"))
                        watched[k] = array, array.copy(), kind, what
            found += effect_on("a run", begun, lambda: [run() for run in parts.values()])
        return [*found, *self._gradients.overwritten_gradients(self.domain)]

    def map_at(self, x: Array) -> HandMap:
        return self._map_of_call(
            replace(self._call, inputs=tuple(self._call.filled_inputs(self.arrays(x))))
        )

    def map_in_double(self, fn: Any = None) -> HandMap:
        inputs = tuple(map(double_precision_array, self._call.inputs))
        kwargs = {name: double_precision_array(value) for name, value in self._call.kwargs.items()}
        hand = self._claims if fn is None else fn
        hand = replace(hand, args=tuple(map(double_precision_array, hand.args)))

        def build_twin() -> HandMap:
            if fn is not None:
                return build(hand, inputs, kwargs, wrt=self._call.places)
            return self._map_of_call(replace(self._call, hand=hand, inputs=inputs, kwargs=kwargs))

        return twin_in_double(self, fn, build_twin)

    def _map_of_call(self, call: HandWrittenCall) -> HandMap:
        names = [slot.name for slot in self.domain.slots]
        return HandMap(call, names, self._jacobian).share_limits_of(self)

    def derivative(self, v: Array) -> HandMap:
        """The map x -> J(x)^T v, claiming `hess`; that it is linear in v is another check's."""
        hess, hessp = self._claims.hess, self._claims.hessp
        if hess is None and hessp is None:
            raise Unsupported("no second derivative: give hess= or hessp=")
        if len(self.inputs) > 1 or self.inputs[0].is_complex or self.outputs[0].is_complex:
            raise Unsupported("hess= belongs to a function of one real array with real values")
        if hessp is not None and self.codomain.size > 1:
            raise Unsupported("hessp= belongs to a function with one real value; give hess=")
        is_scalar = self.codomain.size == 1  # whose gradient and Hessian are asked for themselves
        call, (cotangent,) = self._call, self.cotangents(np.ones(1) if is_scalar else v)
        count, names = len(call.inputs), [slot.name for slot in self.domain.slots]

        def gradient(*values: Any, **options: Any) -> Any:
            there = replace(call, inputs=values[:count], kwargs=options)
            return HandMap(there, names).pull([cotangent])[0]

        def matrix(*values: Any, **options: Any) -> Any:
            assert hess is not None  # asked for only where it was given
            if not is_scalar:
                return hess(*values[:count], cotangent, *values[count:], **options)
            found = hess(*values, **options)
            return np.asarray(found) if isinstance(found, (list, tuple)) else found

        def times(*values: Any, **options: Any) -> Any:
            assert hessp is not None  # asked for only where it was given
            return to_numpy(hessp(*values, **options))

        gradient.__name__ = f"gradient of {self.name}"
        claims = {"jac": matrix} if hessp is None else {"vjp": times, "jvp": times}
        second = ByHand(gradient, args=self._claims.args, **claims)
        return HandMap(replace(call, hand=second), names, "hess").share_limits_of(self)
