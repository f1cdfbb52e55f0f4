"""AD transforms of JAX: what they make of a function and its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gradproof._adapters.jax.call import Call
from gradproof._adapters.jax.rules import asked
from gradproof._adapters.raised import unsupported
from gradproof._data.frames import first_line
from gradproof._maps.contract import Transform

# What JAX raises where a function asks for the value of an array that is traced.
_STEERED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.JAXTypeError,
    jax.errors.JAXIndexError,
)

Arrays = Sequence[Any]


def available(call: Call) -> tuple[Transform, ...]:
    """Every transform there is; none of a derivative that was written by hand."""
    if call.pull is not None or call.push is not None:
        return ()
    linearized = Transform("linearized", "jax.linearize", forward=True)
    return (*(Transform(name, what) for name, (what, _) in _TRANSFORMS.items()), linearized)


def vjp(call: Call, here: Arrays, cotangents: Arrays, name: str) -> Arrays:
    """The VJP by the transform of that name. Unsupported where JAX refuses it this function."""
    return _traced(lambda: _TRANSFORMS[name][1](call, here, cotangents))  # type: ignore[no-any-return] # arrays


def jvp(call: Call, here: Arrays, tangents: Arrays) -> Arrays:
    """The JVP by jax.linearize."""
    return _traced(lambda: jax.linearize(call.function, *here)[1](*tangents))  # type: ignore[no-any-return] # arrays


def _traced(run: Callable[[], Any]) -> Any:
    """What a transform gives; Unsupported where it refuses what steers by values, and the like."""
    with unsupported(*_STEERED, why=lambda error: f"it cannot be traced: {first_line(error)}"):
        return asked(run)


def _by_grad(call: Call, here: Arrays, cotangents: Arrays) -> Any:
    """The gradient by `jax.grad` of the sum of Re v y, which is the VJP of v."""

    def paired(*arrays: Any) -> Any:
        pairs = zip(call.function(*arrays), cotangents, strict=True)
        return jnp.stack([jnp.sum(v * y).real.astype(wide) for y, v in pairs]).sum()

    wide = jnp.result_type(jnp.float32, *(array.real.dtype for array in (*here, *cotangents)))
    return jax.grad(paired, argnums=tuple(range(len(here))))(*here)


def _compiled(call: Call, here: Arrays, cotangents: Arrays) -> Any:
    return jax.jit(call.gradient)(*here, *cotangents)


def _checkpointed(call: Call, here: Arrays, cotangents: Arrays) -> Any:
    return jax.vjp(jax.checkpoint(call.function), *here)[1](tuple(cotangents))


def _mapped(call: Call, here: Arrays, cotangents: Arrays) -> Any:
    """The second of two points that one vmap takes together; the first is another one."""
    points = [jnp.stack([(0.75 * x).astype(x.dtype), x]) for x in here]
    both = [jnp.stack([-v, v]) for v in cotangents]
    return [gradient[1] for gradient in jax.vmap(call.gradient)(*points, *both)]


def _transposed(call: Call, here: Arrays, cotangents: Arrays) -> Any:
    push = jax.linearize(call.function, *here)[1]
    return jax.linear_transpose(push, *here)(tuple(cotangents))


_TRANSFORMS: dict[str, tuple[str, Callable[[Call, Arrays, Arrays], Any]]] = {
    "functional_grad": ("jax.grad", _by_grad),
    "compiled": ("jax.jit", _compiled),
    "checkpointed": ("jax.checkpoint", _checkpointed),
    "mapped": ("jax.vmap over two points", _mapped),
    "transposed": ("jax.linear_transpose of jax.linearize", _transposed),
}
