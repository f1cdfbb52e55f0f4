"""A function to hold another against, with what must be said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reference:
    """A second opinion for `check(..., reference=)`, where a plain function does not say enough.

    It gets the arguments of the function under test at the same numbers, as arrays of its own
    framework in double precision, and returns the same value in the same order.

    Attributes:
        fn: function with the arguments of the one under test.
        framework: whose arrays it takes: "torch", "jax" or "numpy". Where it is "", the one that
            the code of `fn` names, else that of the function under test; with a derivative
            written by hand, NumPy.
        args, vjp, jvp, jac, grad, hess, hessp: as for `check`, for a function of NumPy.
    """

    fn: Callable[..., Any]
    framework: str = ""
    args: Sequence[Any] = ()
    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    jac: Any = None
    grad: Any = None
    hess: Any = None
    hessp: Callable[..., Any] | None = None

    @property
    def claims(self) -> Mapping[str, Any]:
        """The derivatives written by hand; {} where there are none."""
        names = ("vjp", "jvp", "jac", "grad", "hess", "hessp")
        found = {name: getattr(self, name) for name in names}
        return {name: claim for name, claim in found.items() if claim is not None}
