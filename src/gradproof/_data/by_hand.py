"""A function joined with its derivative, written by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradproof._data import options
from gradproof.errors import UsageError

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp")


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
    """Join a function and its derivative, written by hand, for `check` in place of a function.

    It can also be the `reference` of a function whose derivative is written by hand. No framework
    is needed: the arrays are NumPy's, or PyTorch's or JAX's.

    Args:
        fn: called as ``fn(*inputs, *args)``.
        vjp: the gradient J^T v of the inputs (of complex ones J^H v), called as
            ``vjp(*inputs, v, *args)``. Several inputs or outputs are tuples.
        jvp: the tangent J u, called as ``jvp(*inputs, u, *args)``.
        jac: the matrix J, dense, sparse or an operator with `matvec` and `rmatvec`, or a function
            of the inputs that returns it; True where `fn` returns its value and this.
        grad: the gradient of a function with one real value; True likewise.
        hess: the derivative of `grad`, ``hess(x, *args)``; of several values that of
            x -> J^T v, ``hess(x, v, *args)``. It is checked, so that the order is at least 2,
            against differences of the gradient, which `vjp`, `jac` or `grad` has to give.
        hessp: its product with a vector, ``hessp(x, p, *args)``, of a function with one value.
        args: further positional arguments of `fn` and of the functions above; not differentiated.

    Raises:
        UsageError: no derivative is given, one would not be asked beside the others, or one is no
            function.
    """
    options.function("fn", fn)
    functions = {"vjp": vjp, "jvp": jvp, "hess": hess, "hessp": hessp}
    for name, claim in functions.items():
        options.kind_or_none(options.function)(name, claim)
    more = options.container("args", options.sequence("args", args))
    made = ByHand(fn, vjp, jvp, jac, grad, hess, hessp, more)
    if not made.claims:
        raise UsageError(f"by_hand: expected at least one of {'=, '.join(CLAIMS)}=")
    backward = "vjp" if vjp is not None else "grad" if grad is not None else ""
    unasked = ""
    if backward == "vjp" and grad is not None:
        unasked, others = "grad", "vjp="
    elif backward and jvp is not None and jac is not None:
        unasked, others = "jac", f"jvp= and {backward}="
    elif hess is not None and hessp is not None:
        unasked, others = "hessp", "hess="
    if unasked:
        raise UsageError(
            f"{unasked}: beside {others} it would not be asked; check it in a call of its own"
        )
    if not made.claims.keys() - {"jvp", "hess", "hessp"} and (hess or hessp):
        raise UsageError(
            f"{'hess' if hess else 'hessp'}: it is the derivative of the gradient; give that as "
            "well, grad=, vjp= or jac="
        )
    return made
