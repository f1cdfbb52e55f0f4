"""Derivatives that the user writes down: of the function under test, and of a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._data import options
from gradproof.errors import UsageError

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp")


def _arguments(name: str, value: Any) -> Any:
    return options.container(name, options.sequence(name, value))


_KINDS: dict[str, options.Kind] = {
    **dict.fromkeys(("vjp", "jvp", "hess", "hessp"), options.optional(options.function)),
    "args": _arguments,
}


@dataclass(frozen=True, kw_only=True)
class Derivative:
    """What the user says the derivative of a function is: functions, or its matrix.

    Attributes:
        vjp, jvp, jac, grad, hess, hessp, args: as for `gradproof.check`.

    Raises:
        UsageError: one of them is nothing that could be called.
    """

    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    jac: Any = None
    grad: Any = None
    hess: Any = None
    hessp: Callable[..., Any] | None = None
    args: Sequence[Any] = ()

    def __post_init__(self) -> None:
        options.settle(self, _KINDS)

    @property
    def claims(self) -> Mapping[str, Any]:
        """What is said, by name; {} where nothing is."""
        return {name: claim for name in CLAIMS if (claim := getattr(self, name)) is not None}

    @property
    def first(self) -> bool:
        """Whether a backward is claimed, by any of them."""
        return any(claim is not None for claim in (self.vjp, self.jac, self.grad))

    def require_asked(self) -> None:
        """UsageError where one says what another is asked for, and would itself not be checked."""
        backward = "vjp" if self.vjp is not None else "grad" if self.grad is not None else ""
        unasked = ""
        if backward == "vjp" and self.grad is not None:
            unasked, others = "grad", "vjp="
        elif backward and self.jvp is not None and self.jac is not None:
            unasked, others = "jac", f"jvp= and {backward}="
        elif self.hess is not None and self.hessp is not None:
            unasked, others = "hessp", "hess="
        if unasked:
            raise UsageError(
                f"{unasked}: beside {others} it would not be asked; check it in a call of its own"
            )


UNSAID = Derivative()


@dataclass(frozen=True)
class Reference(Derivative):
    """A second opinion for `check(..., reference=)`, where a plain function does not say enough.

    It gets the arguments of the function under test at the same numbers, as arrays of its own
    framework in double precision, and returns the same value in the same order.

    Attributes:
        fn: function with the arguments of the one under test.
        framework: whose arrays it takes: "torch", "jax" or "numpy". Where it is "", the one that
            the code of `fn` names, else that of the function under test; with a derivative
            written by hand, NumPy.
        args, vjp, jvp, jac, grad, hess, hessp: as of `Derivative`, for a function of NumPy.
    """

    fn: Callable[..., Any]
    framework: str = ""
