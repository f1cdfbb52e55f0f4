"""What `check` was asked, parsed once, in the forms in which the engine needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from numbers import Integral
from types import ModuleType
from typing import Any

from gradproof import _adapters
from gradproof._adapters.foreign import Foreign, adapter_of_code, reference_for
from gradproof._data import options
from gradproof._data.inputs import (
    is_matrix,
    is_operator,
    name_of,
    refuse_functions,
    split_arguments,
)
from gradproof._data.reference import Reference
from gradproof._data.settings import KINDS, TRANSFORM_NAMES, Settings
from gradproof._maps.contract import DifferentiableMap
from gradproof._maps.limited import limited
from gradproof._measure.probes import fresh_seed
from gradproof.errors import UsageError

CLAIMS = ("vjp", "jvp", "jac", "grad", "hess", "hessp")  # a derivative written by hand


def _transforms(name: str, value: Any) -> Any:
    """True, or the names of some; False is none of them."""
    if isinstance(value, (str, Sequence)) or not hasattr(value, "__bool__"):
        return KINDS[name](name, value)
    return options.flag(name, value) or ()


def _selection(name: str, value: Any) -> Any:
    """A name, a position or a sequence of these."""
    several = not isinstance(value, (str, Integral))
    kinds = "names, patterns or positions"
    found = options.sequence(name, value, kinds) if several else (value,)
    for one in found:
        if not isinstance(one, (str, Integral)):
            raise UsageError(f"{name}: expected {kinds}, got {options.shown(one)}")
    return found


# Option -> what it may be; those of `Settings` beside these, and None where `check` says so.
_KINDS: dict[str, options.Kind] = {
    "inputs": options.container,
    "kwargs": options.optional(options.mapping),
    **KINDS,
    "checks": options.optional(KINDS["checks"]),
    "rtol": options.optional(KINDS["rtol"]),
    "budget": options.optional(KINDS["budget"]),
    "transforms": _transforms,
    "masked": options.flag,
    "sweep": options.flag,
    "names": options.optional(options.strings),
    "wrt": options.optional(_selection),
    "args": options.sequence,
    "vjp": options.optional(options.function),
    "jvp": options.optional(options.function),
    "hess": options.optional(options.function),
    "hessp": options.optional(options.function),
}


def parsed(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `check`, each of its kind. UsageError, one sentence, where one is not."""
    kwargs = asked["kwargs"]
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(
            f"kwargs: expected a dict of keyword arguments, got {options.shown(kwargs)}; "
            f"positional arguments go together in a tuple: check({_called(asked['fn'])}, (x, y))"
        )
    found = options.parsed(_KINDS, asked)
    options.container("kwargs", kwargs)
    options.container("args", found["args"])
    if found["seed"] is None:
        found["seed"] = fresh_seed()
    return found


def _called(fn: Any) -> str:
    return name_of(fn) if callable(fn) else "fn"


class Question:
    """A function at its arguments, and what is asked about it.

    Args:
        asked: the arguments of `check`, parsed.

    Attributes:
        fn: the function under test.
        arguments: positional arguments.
        kwargs: keyword arguments.
        adapter: of the framework.

    Raises:
        UsageError: the check cannot start with these arguments.
    """

    def __init__(self, asked: Mapping[str, Any]) -> None:
        fn, reference = asked["fn"], asked["reference"]
        self.fn = _adapters.operator(fn) if isinstance(fn, str) else fn
        refuse_functions(self.fn, _plain(reference))
        self._claims = {name: asked[name] for name in CLAIMS}
        self._by_hand = (
            any(claim is not None for claim in self._claims.values())
            or is_operator(self.fn)
            or is_matrix(self.fn)
        )
        self.arguments, self.kwargs = split_arguments(
            self.fn, asked["inputs"], asked["kwargs"], by_hand=self._by_hand
        )
        self.adapter, self._more = self._adapter(asked["args"])
        self._reference = None if reference is None else reference_for(reference, self.adapter)
        self._options = {name: asked[name] for name in ("masked", "names", "project", "wrt")}
        self._asked, self._domain = asked, asked["domain"]

    def build(self, arguments: Any, kwargs: Any) -> DifferentiableMap:
        """The map of the function at these arguments."""
        made: DifferentiableMap = self.adapter.build(
            self.fn, arguments, kwargs, **self._options, **self._more
        )
        return made if self._domain is None else limited(made, self._domain)

    def map(self) -> DifferentiableMap:
        """That at the arguments given."""
        return self.build(self.arguments, self.kwargs)

    def settings(self, map_: DifferentiableMap) -> Settings:
        """What is asked of such a map."""
        asked = self._asked
        chosen = {name: asked[name] for name in KINDS if asked.get(name) is not None}
        second = any(self._claims[name] is not None for name in ("hess", "hessp"))
        chosen["order"] = max(asked["order"], 2 if second else 1)
        if chosen["transforms"] is True:
            there = {transform.name for transform in map_.transforms()}
            chosen["transforms"] = tuple(name for name in TRANSFORM_NAMES if name in there)
        chosen |= {"reference": self._reference, "derived": asked["rtol"] is None}
        made = Settings(**chosen, every_input=bool(asked["sweep"]))
        return made.at_precision(map_.resolution)

    def open(self) -> AbstractContextManager[Any]:
        """While it is asked: what a reference of another framework touches is then put back."""
        other = self._reference
        return closing(other) if isinstance(other, Foreign) else nullcontext()

    def _adapter(self, args: Sequence[Any]) -> tuple[ModuleType, dict[str, Any]]:
        """The adapter for the arguments, and what it needs to know.

        A derivative written by hand needs no framework.
        """
        if self._by_hand:
            return _adapters.by_hand(), {"claims": self._claims, "args": tuple(args)}
        if len(args):
            raise UsageError(
                "args: belongs to vjp=, jvp=, jac= or grad=; else add it to the inputs"
            )
        adapter = _adapters.find(self.arguments, self.kwargs, self.fn) or adapter_of_code(
            self.fn, (self.arguments, self.kwargs)
        )
        if adapter is None:
            kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in self.arguments))
            raise UsageError(
                f"inputs: expected at least one array of a supported framework, got "
                f"{kinds or 'nothing'}; pass torch tensors with requires_grad=True or jax arrays, "
                "or say what the derivative is with vjp=, jvp=, jac= or grad="
            )
        return adapter, {}


def _plain(reference: Callable[..., Any] | Reference | None) -> Callable[..., Any] | None:
    """The function to compare with that under test: the same one may have another derivative."""
    if not isinstance(reference, Reference):
        return reference
    return None if reference.claims else reference.fn
