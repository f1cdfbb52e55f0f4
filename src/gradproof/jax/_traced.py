"""What JAX makes of a function: its equations, and the programs that are compiled of it.

Compiled is what has no rule but JAX's own (`CompiledDerivatives`), and what has loops, which JAX
compiles anew in every call that is not compiled itself. All else runs as JAX runs it: a rule of the
user's is Python, which may draw, count, or go by the numbers that it is handed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax

from gradproof.jax._call import JaxCall
from gradproof.jax._programs import CompiledDerivatives
from gradproof.jax._rules import UNTRACED, equations_of, is_plain, unit_of_cast
from gradproof.jax._tree import device_of

# JAX compiles these anew in every call that is not compiled itself.
_LOOPS = ("scan", "while", "cond", "checkpoint", "remat2", "shard_map", "pallas_call")


class TracedFunction:
    """A function, traced once for all points.

    Args:
        call: the function at its arguments.
        arrays: of the shapes and dtypes for which it is traced.

    Attributes:
        rounded: jaxprs of rounded runs by name (`Rounded`).
    """

    def __init__(self, call: JaxCall, arrays: Sequence[Any]) -> None:
        self._call = call
        self._kinds = [
            jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=device_of(each))
            for each in arrays
        ]
        self._loops: dict[str, Callable[..., Any]] = {}
        self.rounded: dict[Any, Any] = {}

    @cached_property
    def _jaxpr(self) -> Any:
        """The program; None where the function cannot be traced."""
        try:
            return jax.make_jaxpr(self._call.function)(*self._kinds)
        except Exception:  # of the user's, or JAX's about values that steer: nothing is known
            return None

    @cached_property
    def _equations(self) -> list[Any]:
        """Those inside of others too; [] where the function cannot be traced."""
        return [] if self._jaxpr is None else list(equations_of(self._jaxpr.jaxpr))

    @cached_property
    def has_loops(self) -> bool:
        return any(each.primitive.name in _LOOPS for each in self._equations)

    @cached_property
    def compiled(self) -> CompiledDerivatives | None:
        """Compiled derivatives of a function all of whose rules are JAX's own, on no device."""
        call, jaxpr = self._call, self._jaxpr
        if call.pull is not None or call.push is not None:
            return None
        if any(device_of(value) is not None for value in call.arguments.values):
            return None
        if jaxpr is None or jaxpr.effects or not all(map(is_plain, self._equations)):
            return None
        return CompiledDerivatives(jaxpr)

    @property
    def cast_unit(self) -> float:
        """As of `DifferentiableMap`."""
        return max(map(unit_of_cast, self._equations), default=0.0)

    def run(self, name: str, fn: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """fn(*arrays), a tuple of arrays, where fn is the function or a derivative of it.

        Compiled where the function has loops, and kept by its name: arrays have the same shapes
        and dtypes in every call of that name.
        """
        if not self.has_loops:
            return fn(*arrays)
        if name not in self._loops:
            self._loops[name] = jax.jit(fn)
        try:
            return self._loops[name](*arrays)
        except (TypeError, *UNTRACED):
            self._loops[name] = fn  # what steers by values cannot be traced
            return fn(*arrays)
