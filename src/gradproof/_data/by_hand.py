"""A function joined with its derivative, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._data import options
from gradproof.errors import UsageError

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp")
# A claim that no check would ask for, and those because of which.
_UNASKED = (
    ("grad", ("vjp",)),
    ("jac", ("jvp", "vjp")),
    ("jac", ("jvp", "grad")),
    ("hessp", ("hess",)),
)


@dataclass(frozen=True, eq=False)
class ByHand:
    """A function and its derivative, as `by_hand` makes it. The attributes are its arguments."""

    fn: Callable[..., Any]
    vjp: Callable[..., Any] | None = None
    jvp: Callable[..., Any] | None = None
    jac: Any = None
    grad: Any = None
    hess: Callable[..., Any] | None = None
    hessp: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()

    @property
    def claims(self) -> dict[str, Any]:
        """The derivatives that were given, by name."""
        return {name: claim for name in CLAIMS if (claim := getattr(self, name)) is not None}


def by_hand(
    fn: Callable[..., Any],
    *,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    jac: Any = None,
    grad: Any = None,
    hess: Callable[..., Any] | None = None,
    hessp: Callable[..., Any] | None = None,
    args: Sequence[Any] = (),
) -> ByHand:
    """Join a function and its hand-written derivative, for `check` in place of a function.

    No framework is needed: arrays are NumPy's, or PyTorch's or JAX's. The gradient of a
    complex array follows <a, b> = Re sum conj(a) b.

    Args:
        fn: called as ``fn(*inputs, *args)``; returns an array or several.
        vjp: the product J^T v (J^H v for complex arrays), called as ``vjp(*inputs, v, *args)``,
            where v has the shape of the output and the result that of the input. Several inputs or
            outputs are tuples.
        jvp: the product J u, called as ``jvp(*inputs, u, *args)``, where u has the shape of the
            input and the result that of the output.
        jac: the matrix J with a row for each entry of the output and a column for each of the
            input: dense, sparse, or an operator with `matvec` and `rmatvec`; or a function of the
            inputs that returns it; or True if `fn` returns its value and J.
        grad: the gradient of a function with one real value, of the shape of the input, called as
            ``grad(*inputs, *args)``; or True if `fn` returns its value and the gradient.
        hess: the derivative of `grad`, called as ``hess(x, *args)``; for a function of several
            values that of J^T v, called as ``hess(x, v, *args)``. It implies ``order=2``.
        hessp: the product of `hess` with p, called as ``hessp(x, p, *args)``, for a function with
            one value. Both are checked against differences of the first derivative, which `vjp`,
            `jac` or `grad` has to give.
        args: further positional arguments of all these functions, which are not differentiated.

    Returns:
        An object that `check`, `compare`, `assert_derivatives` and `Case` take for a function.

    Raises:
        UsageError: no derivative is given, one is not a function, or one would not be checked
            because of another one.

    Example:
        >>> import numpy as np, gradproof
        >>> sine = gradproof.by_hand(np.sin, vjp=lambda x, v: v * np.cos(x))
        >>> str(gradproof.check(sine, np.linspace(0, 1, 4)).verdict)
        'passed'
    """
    options.parse_function("fn", fn)
    functions = {"vjp": vjp, "jvp": jvp, "hess": hess, "hessp": hessp}
    for name, claim in functions.items():
        options.parse_optional(options.parse_function, name, claim)
    if grad is not None and grad is not True:
        options.parse_function("grad", grad)
    more = options.parse_sequence("args", args)
    made = ByHand(fn, vjp, jvp, jac, grad, hess, hessp, more)
    if not made.claims:
        raise UsageError(f"by_hand: expected at least one of {'=, '.join(CLAIMS)}=")
    for unasked, others in _UNASKED:
        if {unasked, *others} <= made.claims.keys():
            beside = " and ".join(f"{name}=" for name in others)
            raise UsageError(
                f"{unasked}: beside {beside} it would not be asked; check it in a call of its own"
            )
    if not made.claims.keys() - {"jvp", "hess", "hessp"} and (hess or hessp):
        raise UsageError(
            f"{'hess' if hess else 'hessp'}: it is the derivative of the gradient; give that as "
            "well, grad=, vjp= or jac="
        )
    return made
