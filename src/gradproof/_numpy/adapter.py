"""Functions of arrays whose derivative is written by hand: adjoints, Jacobians, operators.

The arrays are NumPy's, or of any library of the array API standard. For complex arrays
<a, b> = Re sum conj(a) b: `vjp` of v is J^H v, as `rmatvec` has it and PyTorch's gradients, and
`jac` is the matrix J that maps a change of the input to one of the output.
"""

from __future__ import annotations

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
from gradproof._data.inputs import (
    EVERY,
    UNSAID,
    Derivative,
    Reference,
    Variables,
    chosen,
    is_matrix,
    is_operator,
    parameter_names,
)
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
    fn: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    variables: Variables = EVERY,
    derivative: Derivative = UNSAID,
) -> HandMap:
    """The map of `fn` at `inputs`, with the derivative that is said.

    With `jac=True` or `grad=True` the function returns a pair, its value and that derivative. A
    linear operator stands for its `matvec`, and claims its `rmatvec`. Inputs of real or complex
    floating numbers are differentiated, `args` and `kwargs`, which every claim gets too, are not.
    UsageError where nothing can be differentiated, nothing is claimed, or fn returns no array.
    """
    if variables.masked:
        raise UsageError("masked: not with a derivative written by hand")
    given = dict(derivative.claims)
    if is_operator(fn) and not given:
        operator = fn
        fn, given = operator.matvec, {"jac": operator}
    if is_matrix(fn):
        given = given or {"jac": fn}
        fn = _times(fn)
    call = Call(fn, tuple(map(as_array, inputs)), tuple(derivative.args), dict(kwargs or {}))
    places = call.differentiable()
    parameters = parameter_names(fn)
    found = chosen_names([name_at(parameters, place) for place in places], variables.names)
    picked = chosen(found, places, variables.wrt)
    call = replace(call, places=tuple(places[k] for k in picked))
    for name in ("jac", "grad"):
        if given.get(name) is True:
            given[name] = second_of(fn)
            call = replace(call, paired=True)
    if not given:
        raise UsageError(
            "inputs: arrays of a library without automatic differentiation; say what the "
            "derivative is with vjp=, jvp=, jac= or grad="
        )
    claimed = Derivative(**given)
    claimed.require_asked()
    return HandMap(call, claimed, [found[k] for k in picked])


def _times(matrix: Any) -> Callable[[Any], Any]:
    def product(x: Any, *more: Any, **others: Any) -> Any:
        if more or others:
            raise UsageError("inputs: a matrix is multiplied by one vector, and takes nothing else")
        try:
            return matrix @ x
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"inputs: expected an array that a matrix of shape {tuple(matrix.shape)} can be "
                f"multiplied by, got one of shape {np.shape(x)}"
            ) from error

    return product


class HandMap(ArrayMap):
    """A function with a derivative written by hand."""

    _own: list[Any] | None = None
    _moved: Array | None = None

    def __init__(self, call: Call, claims: Derivative, names: Sequence[str]) -> None:
        self._call, self._claims, self._gradients = call, claims, HandedOut()
        held = (*call.inputs, *call.args, *call.kwargs.values())
        self._random = RandomState(filter(None, map(source_of, held)))
        values = [call.inputs[place] for place in call.places]
        pieces, point = read(names, values, lambda value: getattr(value, "device", None))
        super().__init__(str(getattr(call.fn, "__name__", type(call.fn).__name__)), pieces, point)
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
        result = self._call.claim(self._call.fn, arrays)
        if self._call.paired:
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
        shape = sum(sizes), sum(vector.size for vector in vectors)
        parts: Sequence[Any]
        if is_matrix(said) and tuple(said.shape) == (shape[::-1] if adjoint else shape):
            whole = product(said, np.concatenate(vectors), shape[0], adjoint=adjoint)
            parts = np.split(whole, np.cumsum(sizes)[:-1])
        else:
            count = len(self.inputs)
            rows = [as_tuple(row, count) for row in as_tuple(said, len(self.outputs))]
            columns = rows if not adjoint else list(zip(*rows, strict=True))
            parts = [
                sum(product(m, v, size, adjoint=adjoint) for m, v in zip(row, vectors, strict=True))
                for row, size in zip(columns, sizes, strict=True)
            ]
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

        given = [*self._call.args, *self._call.kwargs.values()]
        found = changes(lambda: self.run(arrays), backward, names, arrays, cotangents, given)
        return [*found, *self._gradients.overwritten(self.domain)]

    def at(self, x: Array) -> HandMap:
        return self._alike(replace(self._call, inputs=tuple(self._call.filled(self.arrays(x)))))

    def in_double(self, fn: Any = None) -> DifferentiableMap:
        call = self._call
        inputs, args = ([widened(value) for value in some] for some in (call.inputs, call.args))
        kwargs = {name: widened(value) for name, value in call.kwargs.items()}

        def made() -> HandMap:
            if isinstance(fn, Reference):
                varied = Variables(wrt=call.places)
                return build(fn.fn, (*inputs, *args), kwargs, varied, fn)
            wide = replace(call, inputs=tuple(inputs), args=tuple(args), kwargs=kwargs)
            return self._alike(wide)

        return twin_in_double(self, fn, made)

    def _alike(self, call: Call) -> HandMap:
        names = [slot.name for slot in self.domain.slots]
        return HandMap(call, self._claims, names).made_from(self)

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

        measured = None if self._claims.first else measured_gradient(self, v)

        def gradient(*values: Any, **options: Any) -> Any:
            there = replace(call, inputs=values[: len(call.inputs)], kwargs=options)
            if measured is not None:
                (piece,), (place,) = self.inputs, call.places
                return piece.array(measured(piece.vector(values[place])))
            return HandMap(there, self._claims, names).pull([cotangent])[0]

        def matrix(*values: Any, **options: Any) -> Any:
            inputs, more = values[: len(call.inputs)], values[len(call.inputs) :]
            if not scalar:
                return hess(*inputs, cotangent, *more, **options)
            return float(to_numpy(cotangent).ravel()[0]) * hess(*inputs, *more, **options)

        def times(*values: Any, **options: Any) -> Any:
            assert hessp is not None  # asked for only where it was given
            return float(to_numpy(cotangent).ravel()[0]) * to_numpy(hessp(*values, **options))

        gradient.__name__ = f"gradient of {self.name}"
        claims = Derivative(jac=matrix) if hessp is None else Derivative(vjp=times, jvp=times)
        made = HandMap(replace(call, fn=gradient, paired=False), claims, names)
        made.keep_limits(made.domain.limited_as(self.domain))
        return made


# What the user wrote by hand: a function with its arguments, and what its derivative says.


@dataclass(frozen=True)
class Call:
    """A function and its arguments."""

    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    places: tuple[int, ...] = ()  # positions of the inputs that are differentiated
    paired: bool = False  # the function returns its value and its derivative

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
        return function(*self.filled(arrays), *more, *self.args, **self.kwargs)


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


def second_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values, **options: pair(fn(*values, **options))[1]


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


def product(matrix: Any, vector: Array, size: int, *, adjoint: bool) -> Array:
    """Matrix or its conjugate transpose times a flat vector; `size` entries long."""
    if is_operator(matrix):
        try:
            return (matrix.rmatvec if adjoint else matrix.matvec)(vector)
        except NotImplementedError as error:  # as SciPy's where none was given
            raise Unsupported(first_line(error)) from error
    want = (vector.size, size) if adjoint else (size, vector.size)
    if not hasattr(matrix, "tocsr"):  # dense: the shapes of output and input in a row will do
        matrix = _dense(matrix, want)
        if matrix.size == vector.size * size:
            matrix = matrix.reshape(want)
    if tuple(matrix.shape) != want:
        raise ValueError(f"jac: expected a matrix of shape {want}, got {tuple(matrix.shape)}")
    return np.asarray((matrix.conj().T if adjoint else matrix) @ vector)


def _dense(said: Any, want: tuple[int, int]) -> np.ndarray[Any, Any]:
    try:
        matrix = to_numpy(said)
    except Exception:  # ragged lists; whatever an object does that is no array
        matrix = np.asarray(None)
    if matrix.dtype.kind in "OSUMm" or matrix.dtype.names:  # objects, words, dates, records
        raise ValueError(f"jac: expected a matrix of shape {want}, got {shown(said)}")
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
