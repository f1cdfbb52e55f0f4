"""The check of the check: mistakes planted in the user's own backward, and who catches them."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from gradproof._adapters import parts_of
from gradproof._data import checks
from gradproof._data.inputs import Derivative, Variables
from gradproof._data.options import chosen
from gradproof._data.records import Planted, Strength, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace, on_host
from gradproof._data.vectors import finite
from gradproof._engine._question import Asked, Question
from gradproof._engine._run import one_result
from gradproof._guard import guarded
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof._maps.metered import Metered
from gradproof._maps.wrapped import Wrapped
from gradproof.errors import UsageError

_SCALE = 1.01
_ENTRY = 1.1
_LARGE = 10.0
_SINGLE = "every output is a single number; check the function before it is summed up"
_PLAIN = (bool, int, float, complex, str, bytes, type, ModuleType)
_BINDING = (FunctionType, MethodType, BuiltinFunctionType, partial)
_KNOWN = (*_PLAIN, *_BINDING, dict, tuple, list, type(None))  # what is inside of which is known
_ZERO = "its gradient is zero here; choose a point where it is not"


def strength_of(asked: Asked, target: str) -> Callable[[], Strength]:
    """What tries the check that was asked: it holds neither the function nor an array of it."""
    records = map(chosen, (asked.derivative, asked.variables, asked.settings))
    return partial(_tried_again, held((asked.fn, asked.inputs, asked.kwargs, *records)), target)


@guarded
def _tried_again(again: Held, target: str) -> Strength:
    try:
        fn, inputs, kwargs, derivative, variables, settings = again()
        records = Derivative(**derivative), Variables(**variables), Settings(**settings)
        question = Question(Asked(fn, inputs, kwargs, *records))
    except GoneError as gone:
        raise UsageError(
            f"report: strength() tries the function again, and {gone} that it was given is no "
            "more: a report holds nothing of the user's; keep the function and its inputs in "
            "variables until then"
        ) from None
    with question.open():
        return strength(question.map, question.settings, target)


def strength(
    build: Callable[[], DifferentiableMap],
    settings: Callable[[DifferentiableMap], Settings],
    target: str,
) -> Strength:
    """Plant every mistake that there is for this map, and see which check of the run fails."""
    map_ = build()
    try:
        asked = settings(map_)
        with np.errstate(all="ignore"):
            planted = tuple(_tried(map_, one, asked) for one in _mistakes(map_))
            return Strength(target, planted, tuple(_unseen(map_)))
    finally:
        map_.close()


def _tried(map_: DifferentiableMap, mistake: Mistake, settings: Settings) -> Planted:
    metered = Metered(Mistaken(map_, mistake), settings.budget, settings.budget_seconds)
    rows = [row for row in checks.TABLE if row.planted and row.name in settings.checks]
    for row in sorted(rows, key=lambda row: row.derivative):  # the cheap ones first
        if one_result(row, metered, settings).verdict is Verdict.FAILED:
            return Planted(mistake.name, mistake.what, row.name)
    return Planted(
        mistake.name, mistake.what, "", mistake.why or "no check that was asked for fails"
    )


def _mistakes(map_: DifferentiableMap) -> Iterator[Mistake]:
    gradient = finite(map_.vjp(_dense(map_.codomain.size, map_.point)))
    xp = namespace(gradient)
    empty = "" if bool(xp.any(gradient != 0)) else _ZERO
    yield _by_factor("scale", f"multiplies the gradient by {_SCALE}", _SCALE, empty)
    yield _by_factor("sign", "has the wrong sign", -1.0, empty)
    yield _of_one_entry(map_, gradient, empty)
    if rolled := _roll(map_, gradient):
        yield rolled
    index = xp.arange(gradient.shape[0])
    for position, slot in enumerate(map_.domain.slots):
        span = map_.domain.span(position)
        kept = xp.where((index < span.start) | (index >= span.stop), 1.0, 0.0)
        why = "" if bool(xp.any(gradient[span] != 0)) else _ZERO
        yield _by_factor(f"detach {slot.name}", f"has no gradient for {slot.name}", kept, why)
    yield _of_first_cotangent(map_)
    if map_.layouts() and any(slot.size > len(slot.parts) for slot in map_.codomain.slots):
        what = "reads a cotangent in another memory layout in the wrong order"
        why = "every gradient is the same for a reversed cotangent"
        flipped = Linear(lambda v: namespace(v).flip(v))
        yield Mistake("layout", what, why, before=flipped, layouts=True)


def _by_factor(name: str, what: str, factor: Any, why: str) -> Mistake:
    """Every entry of the gradient is multiplied by a number, or each by its own."""
    return Mistake(name, what, why, after=Linear(*2 * [lambda g: g * factor]))


def _of_one_entry(map_: DifferentiableMap, gradient: Array, why: str) -> Mistake:
    """An entry of the typical size, not the largest."""
    xp = namespace(gradient)
    order = xp.argsort(xp.abs(gradient))
    nonzero = int(xp.sum(xp.astype(gradient != 0, xp.int64)))
    place = int(order[gradient.shape[0] - 1 - nonzero // 2]) if gradient.shape[0] else 0
    factor = xp.where(xp.arange(gradient.shape[0]) == place, _ENTRY, 1.0)
    where = str(map_.domain.locate(place)) if gradient.shape[0] else "nothing"
    return _by_factor("entry", f"multiplies the gradient of {where} by {_ENTRY}", factor, why)


def _roll(map_: DifferentiableMap, gradient: Array) -> Mistake | None:
    """The gradient of the longest input, moved by one entry."""
    slots, xp = map_.domain.slots, namespace(gradient)
    position = max(range(len(slots)), key=lambda k: slots[k].size)
    span, step = map_.domain.span(position), len(slots[position].parts)
    if slots[position].size < 2 * step:
        return None

    def moved(vector: Array, by: int = step) -> Array:
        part = xp.roll(vector[span], by)
        return xp.concat([vector[: span.start], part, vector[span.stop :]])

    same = not bool(xp.any(moved(gradient) != gradient))
    why = "all entries of the gradient are the same here" if same else ""
    what = f"moves the gradient of {slots[position].name} by one entry"
    return Mistake("roll", what, why, after=Linear(moved, partial(moved, by=-step)))


def _of_first_cotangent(map_: DifferentiableMap) -> Mistake:
    """Every entry of an output treated as if its cotangent were the first one's."""
    spans = [map_.codomain.span(k) for k in range(len(map_.codomain.slots))]

    def spread(v: Array) -> Array:
        xp = namespace(v)
        return xp.concat(
            [xp.zeros_like(v[s]) + (v[s][0] if s.stop > s.start else 0.0) for s in spans]
        )

    def gathered(y: Array) -> Array:
        xp = namespace(y)
        pieces = [xp.where(xp.arange(s.stop - s.start) == 0, xp.sum(y[s]), 0.0) for s in spans]
        return xp.concat(pieces)

    single = all(slot.size <= len(slot.parts) for slot in map_.codomain.slots)
    what = "takes the first entry of the cotangent for all of them"
    why = _SINGLE if single else ""
    return Mistake("cotangent", what, why, before=Linear(spread, gathered))


def _unseen(map_: DifferentiableMap) -> Iterator[str]:
    """Kinds of inputs that the point has none of."""
    point = on_host(map_.given)
    shapes = [slot.shape for slot in map_.domain.slots]
    seen = {
        "negative entries": bool((point < 0).any()),
        "positive entries": bool((point > 0).any()),
        "zeros": bool((point == 0).any()),
        "equal entries": len(np.unique(point)) < len(point),
        f"entries above {_LARGE:g}": bool((np.abs(point) > _LARGE).any()),
        "a batch of more than one": any(len(shape) > 1 and shape[0] > 1 for shape in shapes)
        or not any(len(shape) > 1 for shape in shapes),
    }
    yield from (kind for kind, found in seen.items() if not found)


def _dense(size: int, like: Any) -> Array:
    xp = namespace(like)
    index = xp.arange(size, dtype=xp.float64)
    return 1.0 + 0.5 * xp.sin(1.7 * index)


# A map whose backward is wrong on purpose.


Change = Callable[[Array], Array]


class Linear(NamedTuple):
    """A linear map of vectors, and its transpose."""

    of: Change = lambda vector: vector
    transposed: Change = lambda vector: vector


_NOTHING = Linear()


@dataclass(frozen=True)
class Mistake:
    """What a wrong backward does instead of v -> J^T v: v -> after(J^T before(v))."""

    name: str
    what: str  # it does, in words
    why: str  # it cannot show where it does not
    after: Linear = _NOTHING
    before: Linear = _NOTHING
    layouts: bool = False  # it happens only where the cotangent comes in another memory layout


class Mistaken(Wrapped):
    """Another map, its backward wrong in one way; forward mode, where it has one, stays right."""

    def __init__(self, inner: DifferentiableMap, mistake: Mistake) -> None:
        self.mistake = mistake
        self._plain = Mistake("", "", "") if mistake.layouts else mistake  # in the usual layout
        super().__init__(inner)

    def again(self, inner: DifferentiableMap) -> DifferentiableMap:
        if inner.domain.size != self.domain.size or inner.codomain.size != self.codomain.size:
            raise Unsupported("another number of inputs or outputs")
        return Mistaken(inner, self.mistake)

    def from_point(self, x: Array) -> Array:
        return x

    def into_codomain(self, v: Array) -> Array:
        return self._plain.before.of(v)

    def from_domain(self, gradient: Array) -> Array:
        return self._plain.after.of(gradient)

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        one = self._plain
        image, gradient = self.inner.transposed_vjp(one.after.transposed(u), one.before.of(v))
        return one.before.transposed(image), one.after.of(gradient)

    def vjp_layout(self, v: Array, layout: str) -> Array:
        wrong = self.mistake
        return wrong.after.of(self.inner.vjp_layout(wrong.before.of(v), layout))

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        made = self.inner.in_double(fn)
        return made if fn is not None else self.again(made)  # a reference is not the function


# Values to come back to, held without keeping any array of the user's alive.


Held = Callable[[], Any]


class GoneError(LookupError):
    """What was held exists no more."""


def held(value: Any) -> Held:
    """What gives the value back, or raises `GoneError` once nobody else holds it.

    Containers and partial applications are made anew; their contents, and whatever may hold an
    array, is held by weak references.
    """
    if not isinstance(value, _KNOWN):
        return _object(value)
    if type(value) not in (dict, tuple, list) and holds_nothing(value):
        return lambda: value
    if type(value) is dict:
        items = {key: held(item) for key, item in value.items()}
        return lambda: {key: item() for key, item in items.items()}
    if isinstance(value, (tuple, list)):
        several, kind = [held(part) for part in value], type(value)
        make = getattr(kind, "_make", kind)  # a named tuple's
        return lambda: make(part() for part in several)
    if isinstance(value, partial):
        fn, args, options = map(held, (value.func, value.args, value.keywords))
        return lambda: partial(fn(), *args(), **options())
    owner = getattr(value, "__self__", None)
    if isinstance(value, (MethodType, BuiltinFunctionType)) and owner is not None:
        method, name = held(owner), value.__name__
        return lambda: getattr(method(), name)
    return _object(value)


def _object(value: Any) -> Held:
    try:
        reference = weakref.ref(value)
    except TypeError:  # of a class with slots, or of C
        if is_dataclass(value):
            return _with_slots(value)
        return lambda: value

    def found() -> Any:
        if (alive := reference()) is None:
            raise GoneError(f"an object of type {kind}")
        return alive

    kind = type(value).__name__
    return found


def _with_slots(value: Any) -> Held:
    kind, names = type(value), [field.name for field in fields(value)]
    parts = {name: held(getattr(value, name)) for name in names}

    def made() -> Any:
        found = object.__new__(kind)
        for name, part in parts.items():
            object.__setattr__(found, name, part())
        return copy.copy(found)

    return made


def holds_nothing(value: Any, seen: frozenset[int] = frozenset()) -> bool:
    """Whether a value is a number, a text, a class, a module, or a function of such alone."""
    if value is None or isinstance(value, _PLAIN) or id(value) in seen:
        return True
    seen |= {id(value)}
    if type(value) not in (dict, tuple, list) and not isinstance(value, _BINDING):
        return False
    return all(holds_nothing(part, seen) for part in parts_of(value))
