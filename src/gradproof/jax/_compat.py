"""JAX's private API, and what has another form in other versions: each use with its reason.

Tried with JAX 0.10.2. Nothing of `jax._src` is needed: where a version lacks it, or has it
elsewhere, what it mends is not mended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax


def constant_handlers() -> tuple[Any, Any, Any, Any] | None:
    """The two canonicalisations, the registration of another, and JAX's constants; None without.

    With these an array of NumPy in a program is kept apart for 32 and for 64 bits. JAX remembers it
    by its identity, whatever `jax.enable_x64` says, and has no public way to say otherwise
    (docs/defects/jax.md).
    """
    try:
        from jax._src.dtypes import canonicalize_dtype, canonicalize_value
        from jax._src.dtypes import register_canonicalize_value_handler as register
        from jax._src.literals import TypedNdArray
    except ImportError:
        return None
    return canonicalize_dtype, canonicalize_value, register, TypedNdArray


def enabled_64_bits() -> AbstractContextManager[Any]:
    """A context in which arrays may have 64 bits: in `jax.experimental` before JAX 0.8."""
    if callable(getattr(jax, "enable_x64", None)):
        return jax.enable_x64(True)  # type: ignore[no-any-return]  # JAX's
    from jax.experimental import enable_x64

    return enable_x64()  # type: ignore[no-any-return]  # JAX's


def bind_equation(equation: Any, values: Sequence[Any]) -> Any:
    """What the operation of an equation makes of these values.

    As `jax.core.eval_jaxpr` does for a whole program: publicly no single equation is run. Before
    JAX 0.8 parameters that are functions are handed over apart from the others.
    """
    bound = equation.primitive.get_bind_params(equation.params)
    functions, bound = bound if isinstance(bound, tuple) else ((), bound)
    return equation.primitive.bind(*functions, *values, **bound)
