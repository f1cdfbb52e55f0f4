"""Maps made of a given one: at another point, in double precision, rounded, differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from gradproof._adapters.arrays import first_line
from gradproof._adapters.foreign import Foreign, twin_in_double
from gradproof._adapters.jax.constants import double_precision
from gradproof._adapters.jax.rounding import Rounded
from gradproof._adapters.jax.rules import draws, is_refusal
from gradproof._adapters.jax.tree import Arguments, doubled
from gradproof._data.space import Array
from gradproof._maps.contract import DifferentiableMap, Unsupported
from gradproof.errors import UsageError

if TYPE_CHECKING:
    from gradproof._adapters.jax import JaxMap

_ROUNDINGS = 2.0**10  # of its size by which rounding may move a value


def at(target: JaxMap, x: Array) -> JaxMap:
    """The same function at another point."""
    with target.around():
        return _made(target, target.arguments.changed(target.arrays(x), lambda leaf: leaf, None))


def in_double(target: JaxMap, fn: Callable[..., Any] | None) -> DifferentiableMap:
    """The same function, or `fn`, on the same numbers in double precision."""

    def made() -> JaxMap:
        with double_precision():
            arrays = [doubled(array) for array in target.here()]
            arguments = target.arguments.changed(arrays, doubled, doubled(fn))
            return _made(target, arguments, programs={})

    if isinstance(fn, Foreign) and target.project:
        raise Unsupported("project= is written for arrays of another framework")
    found = twin_in_double(target, fn, target.arguments.told, made)
    if not isinstance(fn, Foreign):
        _require_same_draws(target, found)
    return found


def _require_same_draws(target: JaxMap, found: DifferentiableMap) -> None:
    """Unsupported where the function draws other random numbers in double precision.

    `jax.random.bernoulli(key, 0.5)`, for one, draws by the default dtype, which the context
    changes: another mask, with a value that may be near enough where other terms are large.
    """
    with target.around():
        if not draws(target.program):
            return
    ours, theirs = target.value(target.point), found.value(found.point)
    size = np.abs(ours) + float(np.sqrt(np.mean(ours**2)))
    if not bool(np.all(np.abs(ours - theirs) <= _ROUNDINGS * target.resolution * size)):
        raise Unsupported("it draws other random numbers; draw in the dtype of the input")


def rounded(target: JaxMap, unit: float, tiny: float, seed: int) -> JaxMap:
    """The same function with the result of every operation rounded at random."""
    programs = target.memo.setdefault(("programs",), {})
    return _made(target, target.arguments, rounding=Rounded(unit, tiny, seed, programs))


def derivative(target: JaxMap, v: Array) -> JaxMap:
    """The map (x, v) -> J(x)^T v."""
    count = len(target.inputs)

    def gradient(*arrays: Any) -> tuple[Any, ...]:
        cotangents = map(jnp.conj, arrays[count:])
        return tuple(map(jnp.conj, target.gradient(*arrays[:count], *cotangents)))

    gradient.__name__ = f"gradient of {target.name}"
    names = [f"cotangent of {slot.name}" for slot in target.codomain.slots]
    with target.around():
        found = _derived(target, gradient, list(map(jnp.conj, target.cotangents(v))), names)
    _require_differentiable(found)
    return found


def forward_derivative(target: JaxMap, u: Array) -> JaxMap:
    """The map (x, u) -> J(x) u."""

    def tangent(*arrays: Any) -> tuple[Any, ...]:
        return tuple(target.tangent(*arrays))

    tangent.__name__ = f"tangent of {target.name}"
    names = [f"tangent of {slot.name}" for slot in target.domain.slots]
    with target.around():
        return _derived(target, tangent, target.directions(u), names)


def _made(target: JaxMap, arguments: Arguments, **options: Any) -> JaxMap:
    """A map of other arguments, counting with the target."""
    claims = {"pull": target.own_pull, "push": target.own_push, "programs": target.programs}
    made = type(target)(arguments, target.project, **{**claims, **options})
    return made.counting_with(target)


def _derived(
    target: JaxMap, fn: Callable[..., Any], arrays: Sequence[Any], names: Sequence[str]
) -> JaxMap:
    """The map of a derivative, in the point and what it is applied to."""
    names = [*(slot.name for slot in target.domain.slots), *names]
    try:
        arguments = Arguments(fn, (*target.here(), *arrays), {}, names)
        programs: dict[str, Any] | None = None if target.programs is None else {}
        made = type(target)(arguments, programs=programs)
    except UsageError as error:
        raise Unsupported(first_line(error)) from error
    return made.counting_with(target)


def _require_differentiable(found: DifferentiableMap) -> None:
    """Unsupported where the gradient refuses to be differentiated, in its own words."""
    try:
        found.vjp(np.ones(found.codomain.size))
    except Exception as error:
        if is_refusal(error):
            raise Unsupported(first_line(error)) from error
        if isinstance(error, Unsupported):
            raise
