"""References of another framework: asked at the point of a map, in their own arrays.

The framework under test tells what its function was called with in arrays of NumPy, which every
adapter can turn into its own; what comes of it is a map like any other.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from gradproof._adapters import FRAMEWORKS, enclosed, find, globals_of, walk
from gradproof._adapters.raised import unsupported
from gradproof._data.frames import first_line, raised
from gradproof._data.inputs import Reference, Variables
from gradproof._data.space import Array, Space, namespace, on_host
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._maps.wrapped import Wrapped
from gradproof.errors import UsageError

Values = np.ndarray[Any, Any]
Lift = Callable[[Values], Any]

TAKES_NUMPY = ("jax",)  # frameworks whose functions make arrays of NumPy their own
_DEEP = 3  # functions that call functions: so far their code is looked at
_FAMILY = {"jaxlib": "jax", "equinox": "jax", "flax": "jax"}  # package -> framework it belongs to


@dataclass(frozen=True)
class Told:
    """What a function was called with, in no framework's terms."""

    names: Sequence[str]  # of the differentiated arrays, in the order of the domain
    # (arrays in their places, lift) -> positional and keyword arguments; `lift` makes what stands
    # in them of every other array.
    filled: Callable[[Sequence[Any], Lift], tuple[Sequence[Any], Mapping[str, Any]]]
    # What a function returned -> its arrays, in the order of the codomain.
    leaves: Callable[[Any], Sequence[Any]]
    # Positions of the differentiated arrays; None where one is inside a container.
    places: Sequence[int] | None = None


def in_double(values: Values) -> Values:
    """An array with these numbers in double precision; integers and flags stay as they are."""
    kind = values.dtype.kind
    if kind in "iub":
        return values
    return values.astype(np.complex128 if kind == "c" else np.float64)


def arrays_at(space: Space, point: Array) -> list[Values]:
    """The arrays at a point, in double precision. Unsupported where one is not all of its slot."""
    found = []
    for k, slot in enumerate(space.slots):
        if slot.entries is not None:
            raise Unsupported(f"{slot.name} is no plain array, which another framework could take")
        values: Values = np.array(on_host(point)[space.span(k)], dtype=np.float64)
        if len(slot.parts) == 2:
            values = values.view(np.complex128)
        found.append(values.reshape(slot.shape))
    return found


def reference_for(reference: Any, adapter: ModuleType) -> Any:
    """A reference as the checks take it: itself where it is of the adapter's framework.

    UsageError where it cannot be one.
    """
    given = reference if isinstance(reference, Reference) else Reference(reference)
    claims, own = given.claims, adapter.__name__.rpartition(".")[2]
    name = given.framework or ("numpy" if claims else framework_of(given.fn))
    if name not in ("", "numpy", *FRAMEWORKS):
        known = ", ".join(map(repr, ("numpy", *FRAMEWORKS)))
        raise UsageError(f"reference: framework is one of {known}, got {name!r}")
    if name == "numpy" and not claims:
        raise UsageError(
            "reference: a function of NumPy has no derivative of its own; say what it is, "
            "gradproof.Reference(fn, vjp=...)"
        )
    if claims and name != "numpy":
        raise UsageError(
            f"reference: a derivative written by hand belongs to a function of NumPy, not of {name}"
        )
    if not claims and name in ("", own):
        return given.fn
    try:
        other = importlib.import_module(f"gradproof._adapters.{name}")
    except ModuleNotFoundError as error:
        raise UsageError(f"reference: it takes arrays of {name}, which is not installed") from error
    return Foreign(given, name, other)


def framework_of(fn: Any) -> str:
    """The framework that a function's type, or else its code, names; "" where none or several."""
    held = find((), None, fn)
    if held is not None:
        return held.__name__.rpartition(".")[2]
    found = [name for name in FRAMEWORKS if name in sys.modules and name in roots_of(fn)]
    return found[0] if len(found) == 1 else ""


def adapter_of_code(fn: Any, tree: Any) -> ModuleType | None:
    """The adapter for a function that makes the arrays of NumPy in `tree` its own, else None."""
    name = framework_of(fn)
    if name not in TAKES_NUMPY or not any(
        isinstance(v, (np.ndarray, np.generic)) for v in walk(tree)
    ):
        return None
    return importlib.import_module(f"gradproof._adapters.{name}")


def twin_in_double(
    target: DifferentiableMap,
    fn: Callable[..., Any] | None,
    told: Callable[[], Told],
    made: Callable[[], DifferentiableMap],
) -> DifferentiableMap:
    """A map in double precision beside the target: what is `made`, or a foreign `fn`, asked so.

    Unsupported where the function does not run in double precision, or returns other shapes.
    """
    if isinstance(fn, Foreign):
        return fn.beside(target, told())
    with unsupported(why=partial(_refusal, fn)):
        found = made()
    if [slot.size for slot in found.codomain.slots] != [s.size for s in target.codomain.slots]:
        found.close()
        name = getattr(found, "name", "it")
        raise Unsupported(f"{name} returns outputs of another shape in double precision")
    return found


def inside_partial(value: Any, change: Callable[[Any], Any]) -> Any:
    """A partial application with its function and arguments changed; what is none, as it is."""
    if not isinstance(value, functools.partial):
        return value
    options = {name: change(option) for name, option in value.keywords.items()}
    return functools.partial(change(value.func), *map(change, value.args), **options)


def _refusal(reference: Any, error: Exception) -> str:
    """What is said of a function that raised in double precision, or of a reference that did."""
    if isinstance(error, UsageError):
        return first_line(error)
    said = f"in double precision it raised {raised(error)}"
    if reference is None:
        return said
    return (
        f"{said}; if it takes arrays of another framework, "
        "gradproof.Reference(fn, framework=...) says so"
    )


class Foreign:
    """A function of another framework than that under test, as a reference."""

    def __init__(self, given: Reference, framework: str, adapter: ModuleType) -> None:
        self.fn, self.framework, self._adapter, self._given = given.fn, framework, adapter, given
        self._made: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def beside(self, target: DifferentiableMap, told: Told) -> DifferentiableMap:
        """The reference's map at the target's point. Unsupported where it takes other arguments."""

        def why(error: Exception) -> str:
            if isinstance(error, UsageError):
                return first_line(error)
            return f"given arrays of {self.framework} it raised {raised(error)}"

        with unsupported(why=why):
            found = self._built(arrays_at(target.domain, target.given), told)
        self._made.append(found)
        for name in ("domain", "codomain"):
            ours, theirs = (
                [slot.size for slot in getattr(each, name).slots] for each in (target, found)
            )
            if ours != theirs:
                what = "takes inputs" if name == "domain" else "returns outputs"
                raise Unsupported(f"it {what} of {theirs} numbers, not of {ours}")
        return found if _alike(found.point, target.point) else Moved(found, target.point)

    def _built(self, arrays: Sequence[Values], told: Told) -> DifferentiableMap:
        lift, fn = self._adapter.from_numpy, self.fn
        varied = [lift(values, differentiated=True) for values in arrays]
        if self._given.claims:
            if told.places is None:
                raise Unsupported("a derivative written by hand takes no containers of arrays")
            inputs, kwargs = told.filled(varied, lift)
            varying = Variables(wrt=tuple(told.places))
            return self._adapter.build(fn, inputs, kwargs, varying, self._given)  # type: ignore[no-any-return] # a map

        def flat(*arrays: Any) -> tuple[Any, ...]:
            inputs, kwargs = told.filled(arrays, lift)
            return tuple(told.leaves(fn(*inputs, **kwargs)))

        flat.__name__ = str(getattr(fn, "__name__", type(fn).__name__))
        return self._adapter.build(flat, varied, None, Variables(names=told.names))  # type: ignore[no-any-return] # a map

    def close(self) -> None:
        """Put back what its maps have touched."""
        while self._made:
            self._made.pop().close()


def _alike(one: Array, other: Array) -> bool:
    """Whether two vectors are of one library, and on one device."""
    return type(one) is type(other) and namespace(one) is namespace(other)


class Moved(Wrapped):
    """Another map, its vectors where those of `like` are: each crosses over the host, whole."""

    def __init__(self, inner: DifferentiableMap, like: Array) -> None:
        self._like = like
        super().__init__(inner)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        return Moved(inner, self._like)

    def into_domain(self, u: Array) -> Array:
        return namespace(self.inner.point).asarray(on_host(u))

    def into_codomain(self, v: Array) -> Array:
        return self.into_domain(v)

    def from_domain(self, gradient: Array) -> Array:
        return namespace(self._like).asarray(on_host(gradient).copy())

    def from_codomain(self, y: Array) -> Array:
        return self.from_domain(y)


def roots_of(fn: Any, deep: int = _DEEP) -> set[str]:
    """The top packages that a function belongs to or names in its code."""
    owner = getattr(fn, "__self__", None)
    kind = owner if isinstance(owner, type) else type(owner)
    owned = () if isinstance(owner, ModuleType) else kind.__mro__
    modules = [getattr(each, "__module__", None) for each in (fn, *type(fn).__mro__, *owned)]
    found = {_belongs(module) for module in modules if isinstance(module, str)}
    if not deep:
        return found
    plain = getattr(fn, "__func__", fn)
    inner = getattr(fn, "func", None), getattr(fn, "__wrapped__", None)
    for value in (*inner, *enclosed(plain), *globals_of(plain)):
        if isinstance(value, ModuleType):
            found.add(_belongs(value.__name__))
        elif callable(value):
            found |= roots_of(value, deep - 1)
    return found


def _belongs(module: str) -> str:
    top = module.partition(".")[0]
    return _FAMILY.get(top, top)
