"""Functions of arrays whose derivative is written by hand: adjoints, Jacobians, operators.

The arrays are NumPy's, or of any library of the array API standard. For complex arrays
<a, b> = Re sum conj(a) b: `vjp` of v is J^H v, as `rmatvec` has it and PyTorch's gradients, and
`jac` is the matrix J that maps a change of the input to one of the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import array_api_compat
import numpy as np

from gradproof._adapters.arrays import (
    ArrayMap,
    Piece,
    chosen_names,
    kind_of,
    name_at,
    read,
    shape_of,
    to_numpy,
)
from gradproof._adapters.double import twin_in_double
from gradproof._adapters.handed_out import HandedOut
from gradproof._data.frames import first_line
from gradproof._data.inputs import ByHand, chosen, name_of, parameter_names
from gradproof._data.options import shown
from gradproof._data.settings import DOUBLE
from gradproof._data.space import Array
from gradproof._guard import restored
from gradproof._guard.random import RandomState, draw, effect_on, source_of
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._numdiff.steps import coordinate_scales
from gradproof._numpy.samples import made_like as made_like
from gradproof._numpy.samples import values_of as values_of
from gradproof.errors import UsageError

# Weights of F(x + k h) - F(x - k h), k from 1, in differences of the sixth and fourth order.
_SIXTH, _FOURTH = (45 / 60, -9 / 60, 1 / 60), (8 / 12, -1 / 12)
_STEPS, _APART = (2.0**-10, 2.0**-12, 2.0**-14), 1e-9
_COARSE, _COARSE_APART = (2.0**-4, 2.0**-6), 1e-3  # in single precision and below


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
    call = Call(hand, tuple(map(as_array, inputs)), dict(kwargs or {}))
    places = call.differentiable()
    parameters = parameter_names(hand.fn)
    found = chosen_names([name_at(parameters, place) for place in places], names)
    picked = chosen(found, places, wrt)
    call = replace(call, places=tuple(places[k] for k in picked))
    return HandMap(call, [found[k] for k in picked])


def is_operator(value: Any) -> bool:
    """Whether a value is a linear operator with an adjoint."""
    return callable(getattr(value, "matvec", None)) and callable(getattr(value, "rmatvec", None))


class HandMap(ArrayMap):
    """A function with a derivative written by hand.

    Args:
        call: the function at its arguments.
        names: of the inputs that are differentiated.
        jacobian: what the user calls `jac`, for messages.
    """

    _own: list[Any] | None = None
    _moved: Array | None = None

    def __init__(self, call: Call, names: Sequence[str], jacobian: str = "jac") -> None:
        self._call, self._claims, self._gradients = call, call.hand, HandedOut()
        self._jacobian = jacobian
        claims = call.hand
        self._is_paired = claims.jac is True or claims.grad is True
        held = (*call.inputs, *claims.args, *call.kwargs.values())
        self._random = RandomState(filter(None, map(source_of, held)))
        values = [call.inputs[place] for place in call.places]
        pieces, point = read(names, values, lambda value: getattr(value, "device", None))
        super().__init__(name_of(claims.fn), pieces, point)
        outputs = self.run(self.arrays(self.point))
        if not outputs:
            raise UsageError(
                f"{self.name} returned no array of floating numbers; return an array, a number, "
                "or a tuple or list of them"
            )
        self.start(Piece.of(f"output {k}", output) for k, output in enumerate(outputs))
        if claims.grad is not None and self.codomain.size != 1:
            raise UsageError(
                f"grad: {self.name} has {self.codomain.size} real values; a gradient belongs to "
                "one, pass vjp= or jac="
            )

    def close(self) -> None:
        """Restore the random states of when the map was built."""
        self._random.restore()

    # What the user wrote.

    def _here(self) -> list[Any]:
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
            result = pair(result)[0]
        return [output for output in as_list(result) if kind_of(output)]

    def pull(self, cotangents: Sequence[Any]) -> Sequence[Any]:
        claims, here = self._claims, self._here()
        if claims.vjp is not None:
            cotangent = one(cotangents)
            return as_tuple(self._call.claim(claims.vjp, here, cotangent), len(self.inputs))
        if claims.grad is not None:
            gradients = as_tuple(self._said(claims.grad), len(self.inputs))
            factor = to_numpy(cotangents[0])
            require_gradients(gradients, self.inputs)
            return [factor * to_numpy(g).reshape(shape_of(g)) for g in gradients]
        if claims.jac is None:
            raise Unsupported("no backward: give vjp=, jac= or grad=")
        flats = [piece.vector(v) for piece, v in zip(self.outputs, cotangents, strict=True)]
        return self._by_blocks(flats, self.outputs, self.inputs, adjoint=True)

    def push(self, tangents: Sequence[Any]) -> Sequence[Any]:
        claims = self._claims
        if claims.jvp is not None:
            said = self._call.claim(claims.jvp, self._here(), one(tangents))
            return as_tuple(said, len(self.outputs))
        if claims.jac is None:
            raise Unsupported("no forward mode: give jvp= or jac=")
        flats = [piece.vector(u) for piece, u in zip(self.inputs, tangents, strict=True)]
        return self._by_blocks(flats, self.inputs, self.outputs, adjoint=False)

    def _said(self, claim: Any) -> Any:
        """A derivative at the point: the user's function of it, or what stands for itself."""
        if claim is True:
            return pair(self._call.claim(self._claims.fn, self._here()))[1]
        if callable(claim) and not is_operator(claim):
            return self._call.claim(claim, self._here())
        return claim

    def _by_blocks(
        self, flats: list[Array], origin: list[Piece], target: list[Piece], *, adjoint: bool
    ) -> list[Any]:
        """The products with the matrices that the user gave, summed over what they start from."""
        said, sizes = self._said(self._claims.jac), [each.extent for each in target]
        pairs = zip(origin, flats, strict=True)
        vectors = [flat.view(np.complex128) if one.is_complex else flat for one, flat in pairs]
        outputs, inputs = ([p.slot.shape for p in some] for some in (self.outputs, self.inputs))
        name, is_single = self._jacobian, len(outputs) == len(inputs) == 1
        if hasattr(said, "shape") and not is_single:  # one matrix of all outputs and inputs
            rows, columns = (sum(math.prod(shape) for shape in some) for some in (outputs, inputs))
            vector = np.concatenate(vectors)
            whole = product(name, said, vector, (rows,), (columns,), adjoint=adjoint)
            parts = np.split(whole, np.cumsum(sizes)[:-1])
        else:
            blocks = blocks_of(name, said, len(outputs), len(inputs))
            parts = [np.zeros(size) for size in sizes]
            for i, (row, output) in enumerate(zip(blocks, outputs, strict=True)):
                for k, (block, input_) in enumerate(zip(row, inputs, strict=True)):
                    start, end = (i, k) if adjoint else (k, i)
                    more = product(name, block, vectors[start], output, input_, adjoint=adjoint)
                    parts[end] = parts[end] + more
        pieces = zip(target, parts, strict=True)
        return [np.reshape(part, piece.slot.shape) for piece, part in pieces]

    # The rest of the contract.

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        if self._claims.vjp is not None or self._claims.jac is None:
            raise Unsupported("a backward written by hand gives projections only")
        return self.jvp(u), self.vjp(v)

    def reused(self, x: Array, v: Array) -> tuple[Array, Array, Array]:
        if not any(type(array) is np.ndarray for array in self._here()):
            raise Unsupported("its inputs are not written into")
        self.run(self.arrays(x))
        here = self.vjp(v)
        self._moved = x
        try:
            self.counts.add("function", 2)
            return here, self.outward(self.run(self._here())), self.vjp(v)
        finally:
            self._moved = None

    def vjp(self, v: Array) -> Array:
        self.counts.add("vjp")
        found = self.pull(self.cotangents(v))
        gradient = self.inward(found)
        if self._gradients.pair is None:
            self._gradients.watch(v, found, gradient, self.inward)
        return gradient

    def layouts(self) -> tuple[str, ...]:
        # Only a function of the cotangent can depend on how it lies in memory.
        lifted = self.cotangents(np.zeros(self.codomain.size))
        if self._claims.vjp is None or not all(isinstance(p, np.ndarray) for p in lifted):
            return ()
        return layouts_for([piece.slot.shape for piece in self.outputs])

    def vjp_layout(self, v: Array, layout: str) -> Array:
        return self.inward(self.pull([in_layout(array, layout) for array in self.cotangents(v)]))

    def gradient_traits(self, v: Array) -> Any:
        """Traits of what `vjp` or `grad` returned.

        As in SciPy a `grad` may return integers for floats, and a number for one entry.
        """
        if self._claims.vjp is None and self._claims.grad is None:
            return ()
        found = super().gradient_traits(v)
        if self._claims.grad is None:
            return found
        real = [not piece.is_complex for piece in self.inputs]
        return [
            trait
            for trait in found
            if (trait.what == "shape" and {trait.claimed, trait.expected} != {"()", "(1,)"})
            or (trait.what == "dtype" and real[trait.slot] and "complex" in trait.claimed)
        ]

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        arrays, cotangents = self.arrays(self.point), self.cotangents(v)
        names = [slot.name for slot in self.domain.slots]

        def backward() -> None:
            if self._claims.vjp is not None:
                self._call.claim(self._claims.vjp, arrays, one(cotangents))

        given = [*self._claims.args, *self._call.kwargs.values()]
        found = changes(lambda: self.run(arrays), backward, names, arrays, cotangents, given)
        return [*found, *self._gradients.overwritten(self.domain)]

    def at(self, x: Array) -> HandMap:
        return self._alike(replace(self._call, inputs=tuple(self._call.filled(self.arrays(x)))))

    def in_double(self, fn: Any = None) -> DifferentiableMap:
        inputs = tuple(map(widened, self._call.inputs))
        kwargs = {name: widened(value) for name, value in self._call.kwargs.items()}
        hand = self._claims if fn is None else fn
        hand = replace(hand, args=tuple(map(widened, hand.args)))

        def made() -> HandMap:
            if fn is not None:
                return build(hand, inputs, kwargs, wrt=self._call.places)
            return self._alike(replace(self._call, hand=hand, inputs=inputs, kwargs=kwargs))

        return twin_in_double(self, fn, made)

    def _alike(self, call: Call) -> HandMap:
        names = [slot.name for slot in self.domain.slots]
        return HandMap(call, names, self._jacobian).made_from(self)

    def derivative(self, v: Array) -> HandMap:
        """The map x -> J(x)^T v, claiming `hess`; that it is linear in v is another check's."""
        hess, hessp = self._claims.hess, self._claims.hessp
        if hess is None and hessp is None:
            raise Unsupported("no second derivative: give hess= or hessp=")
        if len(self.inputs) > 1 or self.inputs[0].is_complex or self.outputs[0].is_complex:
            raise Unsupported("hess= belongs to a function of one real array with real values")
        if hessp is not None and self.codomain.size > 1:
            raise Unsupported("hessp= belongs to a function with one real value; give hess=")
        call, (cotangent,) = self._call, self.cotangents(v)
        scalar, names = self.codomain.size == 1, [slot.name for slot in self.domain.slots]

        is_given = any(each in self._claims.claims for each in ("vjp", "jac", "grad"))
        measured = None if is_given else measured_gradient(self, v)

        def gradient(*values: Any, **options: Any) -> Any:
            there = replace(call, inputs=values[: len(call.inputs)], kwargs=options)
            if measured is not None:
                (piece,), (place,) = self.inputs, call.places
                return piece.array(measured(piece.vector(values[place])))
            return HandMap(there, names).pull([cotangent])[0]

        def matrix(*values: Any, **options: Any) -> Any:
            inputs, more = values[: len(call.inputs)], values[len(call.inputs) :]
            assert hess is not None  # asked for only where it was given
            if not scalar:
                return hess(*inputs, cotangent, *more, **options)
            return float(to_numpy(cotangent).ravel()[0]) * hess(*inputs, *more, **options)

        def times(*values: Any, **options: Any) -> Any:
            assert hessp is not None  # asked for only where it was given
            return float(to_numpy(cotangent).ravel()[0]) * to_numpy(hessp(*values, **options))

        gradient.__name__ = f"gradient of {self.name}"
        args = self._claims.args
        if hessp is None:
            second = ByHand(gradient, jac=matrix, args=args)
        else:
            second = ByHand(gradient, vjp=times, jvp=times, args=args)
        made = HandMap(replace(call, hand=second), names, "hess")
        made.keep_limits(made.domain.limited_as(self.domain))
        return made


# What the user wrote by hand: a function with its arguments, and what its derivative says.


@dataclass(frozen=True)
class Call:
    """A function with its derivative, and its arguments."""

    hand: ByHand
    inputs: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    places: tuple[int, ...] = ()  # positions of the inputs that are differentiated

    def differentiable(self) -> list[int]:
        """Positions of the inputs that can be differentiated. UsageError where there is none."""
        places = [place for place, value in enumerate(self.inputs) if kind_of(value)]
        if not places:
            raise UsageError(
                "inputs: expected at least one array of real or complex floating numbers"
                + " by position; keyword arguments are not differentiated here" * bool(self.kwargs)
                + "; arrays in a container are not differentiated here: pass each by position"
                * any(isinstance(value, (Mapping, list, tuple)) for value in self.inputs)
            )
        return places

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """The inputs, other arrays in the place of the differentiable ones."""
        values = list(self.inputs)
        for place, array in zip(self.places, arrays, strict=True):
            values[place] = array
        return values

    def claim(self, function: Callable[..., Any], arrays: Sequence[Any], *more: Any) -> Any:
        """What one of the user's functions says at these arrays."""
        return function(*self.filled(arrays), *more, *self.hand.args, **self.kwargs)


def as_list(result: Any) -> list[Any]:
    """What a function returned, one by one."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def pair(result: Any) -> Any:
    """A value and its derivative. UsageError where the user's function returned something else."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise UsageError(
            "fn: with jac=True or grad=True it returns a pair, its value and that derivative; "
            f"got {shown(result)}"
        )
    return result


def one(arrays: Sequence[Any]) -> Any:
    """What the user's function takes: the array where there is one, a tuple where several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def as_tuple(said: Any, count: int) -> tuple[Any, ...]:
    """What the user's function returned, as one array per slot."""
    if count == 1 and not (isinstance(said, tuple) and len(said) == 1):
        return (said,)
    if not isinstance(said, (tuple, list)) or len(said) != count:
        got = len(said) if isinstance(said, (tuple, list)) else type(said).__name__
        raise ValueError(f"expected a tuple of {count} arrays, got {got}")
    return tuple(said)


def as_array(value: Any) -> Any:
    """A list of numbers, or of such lists, as an array where they are floating; else itself."""
    if not isinstance(value, (list, tuple)):
        return value
    try:
        array = np.asarray(value)
    except Exception:  # not of one length, or of another framework, which refuses in its own way
        return value
    return array if array.dtype.kind in "fc" else value


def require_gradients(gradients: Sequence[Any], inputs: Sequence[Piece]) -> None:
    """TypeError where the gradient of a real function is missing, or not real in a real input."""
    for gradient, piece in zip(gradients, inputs, strict=True):
        if gradient is None:
            raise TypeError("grad: expected an array per input, got None")
        far = 0.0 if piece.is_complex else np.abs(np.imag(to_numpy(gradient))).max(initial=0.0)
        if far:
            raise TypeError(
                f"grad: expected real numbers for {piece.slot.name}, got an imaginary part of up "
                f"to {far:.2g}"
            )


def measured_gradient(map_: DifferentiableMap, v: Array) -> Callable[[Array], Array]:
    """The function x -> J(x)^T v by differences of the sixth order, where no derivative is claimed.

    Their own differences are second derivatives, with what rounding does to these rungs as noise.
    That asks for one formula everywhere, whose truncation is smaller still: of steps in parts of
    each coordinate the largest is taken at which the fourth order differs by no more than `_APART`
    from it. In units of the length over which F bends that step is below (30 `_APART`)^(1/4), and
    the sixth order is off by its sixth power over 140. Without such a step all is NaN.
    """
    scales = coordinate_scales(map_.domain, map_.point)
    steps, most = (_STEPS, _APART) if map_.resolution < DOUBLE else (_COARSE, _COARSE_APART)

    def differences(x: Array, step: float, weights: Sequence[float]) -> Array:
        found = np.zeros(x.size)
        for j, size in enumerate(step * scales):
            move = np.zeros(x.size)
            for k, weight in enumerate(weights, 1):
                move[j] = k * size
                found[j] += weight * float(v @ (map_.value(x + move) - map_.value(x - move)))
        return found / (step * scales)

    here = abs(float(v @ map_.value(map_.point))) / scales
    for step in steps:
        best = differences(map_.point, step, _SIXTH)
        apart = abs(best - differences(map_.point, step, _FOURTH))
        if bool(np.all(apart <= most * np.maximum(np.max(abs(best)), here))):
            return partial(differences, step=step, weights=_SIXTH)
    return lambda x: np.full(x.size, np.nan)


def blocks_of(name: str, said: Any, outputs: int, inputs: int) -> list[tuple[Any, ...]]:
    """The blocks of a Jacobian, row by row: a tuple per output, in it one per input."""
    try:
        return [as_tuple(row, inputs) for row in as_tuple(said, outputs)]
    except ValueError as error:
        raise UsageError(
            f"{name}: expected one matrix, or blocks, {outputs} outputs by {inputs} inputs: {error}"
        ) from error


def product(
    name: str,
    matrix: Any,
    vector: Array,
    output: tuple[int, ...],
    input_: tuple[int, ...],
    *,
    adjoint: bool,
) -> Array:
    """Matrix or its conjugate transpose times a flat vector.

    Args:
        name: of the argument that the user gave, for messages.
        matrix: dense, also of the shapes of output and input in a row; sparse; an operator.
        vector: of the output where `adjoint`, else of the input.
        output, input_: shapes.
        adjoint: for the conjugate transpose.

    Raises:
        UsageError: the matrix has another shape, or holds no numbers.
    """
    want = math.prod(output), math.prod(input_)
    if is_operator(matrix):
        _require_shape(name, getattr(matrix, "shape", want), want)
        try:
            return (matrix.rmatvec if adjoint else matrix.matvec)(vector)
        except NotImplementedError as error:  # as SciPy's where none was given
            raise Unsupported(first_line(error)) from error
    if not hasattr(matrix, "tocsr"):
        matrix = _dense(name, matrix, want)
        # Lengths of one say nothing: the gradient of a scalar is a row, a column or a vector.
        if _long(matrix.shape) in (_long(want), _long((*output, *input_))):
            matrix = matrix.reshape(want)
    _require_shape(name, matrix.shape, want)
    return np.asarray((matrix.conj().T if adjoint else matrix) @ vector)


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _require_shape(name: str, got: Any, want: tuple[int, int]) -> None:
    if tuple(got) != want:
        raise UsageError(
            f"{name}: expected a matrix of shape {want}, got one of shape {tuple(got)}"
        )


def _dense(name: str, said: Any, want: tuple[int, int]) -> np.ndarray[Any, Any]:
    try:
        matrix = to_numpy(said)
    except Exception:  # ragged lists; whatever an object does that is no array
        matrix = np.asarray(None)
    if matrix.dtype.kind in "OSUMm" or matrix.dtype.names:  # objects, words, dates, records
        raise UsageError(f"{name}: expected a matrix of shape {want}, got {shown(said)}")
    return matrix


def widened(value: Any) -> Any:
    """An array of the same library with these numbers in double precision."""
    kind = kind_of(value)
    if not kind or isinstance(value, (float, complex)):
        return value
    numbers = to_numpy(value).astype(np.complex128 if kind == "complex" else np.float64)
    if isinstance(value, (np.ndarray, np.generic)):
        return numbers if isinstance(value, np.ndarray) else numbers[()]
    xp = array_api_compat.array_namespace(value)
    return xp.asarray(numbers, device=getattr(value, "device", None))


# Arrays in memory: how cotangents lie in it, and who writes where he should not.

_LAYOUTS = ("transposed", "gaps", "offset", "expanded")


def layouts_for(shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """The layouts that change how a cotangent of one of these shapes lies in memory."""
    sizes = [np.prod(shape, dtype=int) for shape in shapes]
    if not any(sizes) or not all(shapes):
        return ()
    many = any(size > 1 for size in sizes)
    square = any(sum(extent > 1 for extent in shape) > 1 for shape in shapes)
    fits = {"transposed": square, "gaps": many, "offset": True, "expanded": many}
    return tuple(layout for layout in _LAYOUTS if fits[layout])


def in_layout(array: Any, layout: str) -> Any:
    """The values of a contiguous array in another memory layout.

    "expanded" has stride 0 where entries are equal. What lies between or before them is NaN.
    """
    if not array.size or not array.ndim:
        return array
    if layout == "transposed":
        return np.asfortranarray(array)
    if layout == "expanded":
        fewer = array
        for axis in range(array.ndim):
            first = fewer.take([0], axis)
            fewer = first if (first == fewer).all() else fewer
        return np.broadcast_to(fewer, array.shape)
    step, start = (2, 4) if layout == "gaps" else (1, 3)
    wide = np.full(start + step * array.size, np.nan, dtype=array.dtype)[start:]
    view = wide.reshape(*array.shape[:-1], step * array.shape[-1])[..., ::step]
    view[...] = array
    return view


def changes(
    forward: Callable[[], Any],
    backward: Callable[[], Any],
    names: Sequence[str],
    arrays: Sequence[Any],
    cotangents: Sequence[Any],
    constants: Sequence[Any],
) -> list[tuple[str, str]]:
    """What a run of the function and its backward changed, each as (kind, sentence).

    The global random states are put back.
    """
    random = RandomState()
    told = [
        *((each, "input", f"input {name}") for each, name in zip(arrays, names, strict=True)),
        *((each, "cotangent", "cotangent, which others may use") for each in cotangents),
        *((each, "input", "argument that is not tested") for each in constants),
    ]
    watched = [(each, each.copy(), *said) for each, *said in told if isinstance(each, np.ndarray)]
    found: list[tuple[str, str]] = []

    def run() -> None:
        forward()
        backward()

    with restored(random.restore):
        draw()  # earlier runs may have set a state
        begun = RandomState()
        for who, part in (("function", forward), ("backward", backward)):
            part()
            for k, (array, kept, kind, what) in enumerate(watched):
                if not np.array_equal(array, kept, equal_nan=kept.dtype.kind in "fc"):
                    found.append((kind, f"the {who} changed its {what}"))
                    watched[k] = array, array.copy(), kind, what
        found += effect_on("a run", begun, run)
    return found
