"""What the user handed over, in the forms in which the engine needs it."""

from __future__ import annotations

import fnmatch
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from gradproof._data import options
from gradproof._data.options import shown
from gradproof.errors import UsageError


def _selection(name: str, value: Any) -> tuple[Any, ...]:
    """A name, a position or a sequence of these."""
    several = not isinstance(value, (str, Integral))
    kinds = "names, patterns or positions"
    found = options.sequence(name, value, kinds) if several else (value,)
    for one in found:
        if not isinstance(one, (str, Integral)):
            raise UsageError(f"{name}: expected {kinds}, got {shown(one)}")
    return found


@dataclass(kw_only=True)
class Variables:
    """Which inputs of a function are varied, and within what.

    Attributes:
        wrt, domain, names, masked: as for `gradproof.check`.

    Raises:
        UsageError: one of them is not of its kind.
    """

    wrt: Any = None
    domain: Any = None
    names: Sequence[str] | None = None
    masked: bool = False

    def __post_init__(self) -> None:
        if self.wrt is not None:
            self.wrt = _selection("wrt", self.wrt)
        if self.names is not None:
            self.names = options.strings("names", self.names)
        self.masked = options.flag("masked", self.masked)


EVERY = Variables()  # input that can be differentiated


# Derivatives that the user writes down: of the function under test, and of a reference.

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp")


@dataclass(eq=False, kw_only=True)
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
        for name in ("vjp", "jvp", "hess", "hessp"):
            if (claim := getattr(self, name)) is not None:
                options.function(name, claim)
        self.args = options.container("args", options.sequence("args", self.args))

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


@dataclass(eq=False)
class Reference(Derivative):
    """A second opinion for `check(..., reference=)`, where a plain function does not say enough.

    It gets the arguments of the function under test at the same numbers in double precision, and
    returns the same value in the same order.

    Attributes:
        fn: function with the arguments of the one under test.
        args, vjp, jvp, jac, grad, hess, hessp: as for `gradproof.check`, where the
            derivative of the function under test is written by hand too.
    """

    fn: Callable[..., Any]


def is_operator(value: Any) -> bool:
    """Whether a value is a linear operator with an adjoint."""
    return callable(getattr(value, "matvec", None)) and callable(getattr(value, "rmatvec", None))


def is_matrix(value: Any) -> bool:
    """Whether a value is a matrix, dense or sparse, and no function."""
    return getattr(value, "ndim", 0) == 2 and hasattr(value, "__matmul__") and not callable(value)


def refuse_reference(fn: object, reference: object) -> None:
    """UsageError where the reference is no function, or the function under test itself."""
    if not callable(reference):
        raise UsageError(f"reference: expected a function, got {type(reference).__name__}")
    if _bare(reference) == _bare(fn):
        raise UsageError(
            f"reference: {name_of(reference)} is the function under test, which would confirm "
            "itself; pass an independent one in plain operations, or none"
        )


def _bare(fn: Any) -> Any:
    """A function without partial application and decorators."""
    while inner := getattr(fn, "func", None) or getattr(fn, "__wrapped__", None):
        fn = inner
    return fn


def split_arguments(
    fn: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None,
    *,
    by_hand: bool = False,
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """Positional and keyword arguments from what the user handed over.

    A dict is one argument. So is a named tuple where the function takes no more.
    Numbers for a function of one argument are that argument, a vector, where the derivative is
    written by hand; a framework's function would have to guess of which dtype.
    """
    if isinstance(inputs, tuple) and hasattr(inputs, "_fields") and _takes_one(fn, len(inputs)):
        return (inputs,), kwargs
    if isinstance(inputs, (tuple, list)):
        if all(isinstance(value, (int, float, complex)) for value in inputs) and _takes_one(
            fn, len(inputs)
        ):
            if by_hand:
                return ([1.0 * value for value in inputs],), kwargs
            raise UsageError(
                f"inputs: expected the one argument of {name_of(fn)}, got {len(inputs)}; hand a "
                "vector over as an array, np.array(...)"
            )
        return tuple(inputs), kwargs
    return (inputs,), kwargs


def _takes_one(fn: Callable[..., Any], given: int) -> bool:
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kinds = [parameter.kind for parameter in parameters_of(fn)]
    if is_matrix(fn) or is_operator(fn):
        return True
    return given > 1 and len(kinds) == 1 and kinds[0] in single


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function; of a layer, those of its `forward`. [] where unknown.

    Of a class they are those of its own `__init__`, which a metaclass may hide.
    """
    if _is_silent(_unwrapped(fn)):
        return []
    made = vars(fn).get("__init__") if isinstance(fn, type) else None
    try:
        found = list(inspect.signature(made or fn).parameters.values())
    except (TypeError, ValueError):  # builtins have none
        return []
    if made is not None:
        return found[1:]
    forward = getattr(fn, "forward", None)
    anything = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if callable(forward) and all(parameter.kind in anything for parameter in found):
        return parameters_of(forward)
    return found


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Names of the parameters that take one positional argument each; [] where unknown."""
    plain = _unwrapped(fn)
    if type(plain) is types.FunctionType and not vars(plain):
        return list(plain.__code__.co_varnames[: plain.__code__.co_argcount])
    if _is_silent(plain):
        return []
    single = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters_of(fn) if parameter.kind in single]


def _unwrapped(fn: Callable[..., Any]) -> Any:
    """What a wrapper wraps, where it says nothing else of its parameters; else the function."""
    inside = getattr(fn, "__dict__", {})
    return fn if "__signature__" in inside else inside.get("__wrapped__", fn)


def _is_silent(fn: Callable[..., Any]) -> bool:
    """Whether a function of C says nothing of its parameters, as PyTorch's."""
    return type(fn) is types.BuiltinFunctionType and getattr(fn, "__text_signature__", "") is None


def chosen(names: Sequence[str], arguments: Sequence[int | None], wrt: Any) -> list[int]:
    """Which of the differentiable inputs `wrt` selects, in their order; None selects all.

    It holds names, patterns with `*` and `?`, names of what contains inputs, and positions of
    arguments; UsageError where one of these selects nothing.
    """
    if wrt is None:
        return list(range(len(names)))
    found: set[int] = set()
    for one in wrt:
        fits = {k for k, name in enumerate(names) if _selects(one, name, arguments[k])}
        if not fits:
            raise UsageError(
                f"wrt: {shown(one)} selects no differentiable input; there are {', '.join(names)}"
            )
        found |= fits
    if not found:
        raise UsageError("wrt: expected at least one name, pattern or position")
    return sorted(found)


def _selects(one: Any, name: str, argument: int | None) -> bool:
    if not isinstance(one, str):
        return bool(one == argument)
    pattern = one.replace("[", "[[]")  # a bracket is an index, no set of letters
    return any(fnmatch.fnmatchcase(name, pattern + end) for end in ("", ".*", "[[]*"))


def name_of(fn: Callable[..., Any]) -> str:
    """How a report calls a function."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and getattr(fn, "__name__", "") == "apply":  # a custom function's
        return f"{owner.__name__}.{getattr(fn, '__name__', '')}"
    if inspect.isbuiltin(fn):  # its qualified name may hold a class that nobody knows
        return fn.__name__
    registered = getattr(fn, "_qualified_op_name", None) or getattr(fn, "_qualname", None)
    if isinstance(registered, str):  # a registered operator's: mylib::op
        return registered
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)  # NumPy 1's ufuncs
    name = name if isinstance(name, str) else type(fn).__qualname__
    return name.rpartition("<locals>.")[2]


def output_name(path: Sequence[Any], written: Callable[[Any], str]) -> str:
    """How a user would write the output at a path of the result; `written` writes a path."""
    if not path:
        return "output 0"
    if len(path) == 1 and hasattr(path[0], "idx"):
        return f"output {path[0].idx}"
    return f"output{written(tuple(path))}"
