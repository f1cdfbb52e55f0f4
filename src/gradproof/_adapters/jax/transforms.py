"""AD transforms of JAX: what they make of a function and its rules.

Cotangents and gradients go by JAX's convention here, as `JaxMap.gradient` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from gradproof._adapters.arrays import first_line
from gradproof._adapters.jax.rules import asked
from gradproof._data.space import Array
from gradproof._maps.contract import Transform, Unsupported

if TYPE_CHECKING:
    from gradproof._adapters.jax import JaxMap

# What JAX raises where a function asks for the value of an array that is traced.
_STEERED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.JAXTypeError,
    jax.errors.JAXIndexError,
)

Taken = Callable[["JaxMap", Sequence[Any]], Sequence[Any]]


def available(target: JaxMap) -> tuple[Transform, ...]:
    """Every transform there is; none of a derivative that was written by hand."""
    if target.own_pull is not None or target.own_push is not None:
        return ()
    linearized = Transform("linearized", "jax.linearize", forward=True)
    return (*(Transform(name, what) for name, (what, _) in _TRANSFORMS.items()), linearized)


def vjp(target: JaxMap, v: Array, name: str) -> Array:
    """J^T v by the transform of that name. Unsupported where JAX has none for this function."""
    with target.around():
        return target.inward(_traced(lambda: _TRANSFORMS[name][1](target, target.cotangents(v))))


def jvp(target: JaxMap, u: Array) -> Array:
    """J u by jax.linearize."""
    with target.around():
        here, tangents = target.here(), target.directions(u)
        return target.outward(_traced(lambda: jax.linearize(target.function, *here)[1](*tangents)))


def _traced(run: Callable[[], Any]) -> Any:
    """What a transform gives; Unsupported where it refuses what steers by values, and the like."""
    try:
        return asked(run)
    except _STEERED as error:
        raise Unsupported(f"it cannot be traced: {first_line(error)}") from error


def _by_grad(target: JaxMap, cotangents: Sequence[Any]) -> Sequence[Any]:
    """Of sum Re v y: JAX's gradient of it is the VJP of v."""

    def paired(*arrays: Any) -> Any:
        pairs = zip(target.function(*arrays), cotangents, strict=True)
        return jnp.stack([jnp.sum(v * y).real.astype(wide) for y, v in pairs]).sum()

    here = target.here()
    wide = jnp.result_type(jnp.float32, *(array.real.dtype for array in (*here, *cotangents)))
    return jax.grad(paired, argnums=tuple(range(len(here))))(*here)  # type: ignore[no-any-return] # a tuple


def _compiled(target: JaxMap, cotangents: Sequence[Any]) -> Sequence[Any]:
    return jax.jit(target.gradient)(*target.here(), *cotangents)  # type: ignore[no-any-return] # a tuple


def _checkpointed(target: JaxMap, cotangents: Sequence[Any]) -> Sequence[Any]:
    again = jax.checkpoint(target.function)
    return jax.vjp(again, *target.here())[1](tuple(cotangents))  # type: ignore[no-any-return] # a tuple


def _mapped(target: JaxMap, cotangents: Sequence[Any]) -> Sequence[Any]:
    """The second of two points that one vmap takes together; the first is another one."""
    here = target.here()
    points = [jnp.stack([(0.75 * x).astype(x.dtype), x]) for x in here]
    both = [jnp.stack([-v, v]) for v in cotangents]
    found = jax.vmap(target.gradient)(*points, *both)
    return [gradient[1] for gradient in found]


def _transposed(target: JaxMap, cotangents: Sequence[Any]) -> Sequence[Any]:
    here = target.here()
    push = jax.linearize(target.function, *here)[1]
    return jax.linear_transpose(push, *here)(tuple(cotangents))  # type: ignore[no-any-return] # a tuple


_TRANSFORMS: dict[str, tuple[str, Taken]] = {
    "functional_grad": ("jax.grad", _by_grad),
    "compiled": ("jax.jit", _compiled),
    "checkpointed": ("jax.checkpoint", _checkpointed),
    "mapped": ("jax.vmap over two points", _mapped),
    "transposed": ("jax.linear_transpose of jax.linearize", _transposed),
}
