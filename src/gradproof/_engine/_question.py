"""What `check` was asked, parsed once, in the forms in which the engine needs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from gradproof import _adapters
from gradproof._data import checks, options
from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import input_selection, name_of, positional_arguments, require_reference
from gradproof._data.limits import space_with_limits
from gradproof._data.settings import RunSettings
from gradproof._maps.contract import DifferentiableMap
from gradproof.errors import UsageError


class Question:
    """A function at its arguments, and what is asked about it, in the terms of an adapter.

    Args:
        fn, inputs, kwargs, wrt, domain, names: as given to `check`.
        settings: of the run.

    Attributes:
        fn: the function, or it with its derivative by hand.
        function: the function alone.
        arguments, kwargs: with which it is called.

    Raises:
        UsageError: the check cannot start with these arguments.
    """

    def __init__(
        self,
        fn: Callable[..., Any] | ByHand,
        inputs: Any,
        kwargs: Mapping[str, Any] | None,
        settings: RunSettings,
        *,
        wrt: Any,
        domain: Any,
        names: Sequence[str] | None,
    ) -> None:
        self.kwargs = _keyword_arguments(fn, kwargs)
        if not (isinstance(fn, ByHand) or callable(fn)):
            raise UsageError(f"fn: expected a function, got {options.short_repr(fn)}")
        if settings.reference is not None:
            require_reference(fn, settings.reference)
        self.fn = fn
        self.function, further = (fn.fn, fn.args) if isinstance(fn, ByHand) else (fn, ())
        self.arguments = positional_arguments(fn, inputs)
        self._settings, self._domain = settings, domain
        self._variables = {
            "wrt": input_selection(wrt),
            "names": None if names is None else _different_names(names),
            "masked": bool(settings.masked),
        }
        self.adapter = _adapter_of(self.arguments, self.kwargs, fn)
        _require_parameters(self.function, (*self.arguments, *further), self.kwargs)

    def build(self, arguments: Any, kwargs: Any) -> DifferentiableMap:
        """The map of the function at these arguments."""
        map_: DifferentiableMap = self.adapter.build(self.fn, arguments, kwargs, **self._variables)
        if self._domain is not None:  # no framework's
            map_.keep_limits(space_with_limits(map_.domain, map_.point, self._domain))
        return map_

    def settings(self, map_: DifferentiableMap) -> RunSettings:
        """The settings of a run on a map of this function."""
        chosen = self._settings
        if isinstance(self.fn, ByHand) and {"hess", "hessp"} & self.fn.claims.keys():
            chosen = replace(chosen, order=max(chosen.order, 2))
        if chosen.transforms is checks.TRANSFORMS:
            chosen = replace(chosen, transforms=tuple(each.name for each in map_.transforms()))
        return chosen.with_precision(map_.resolution)


def _adapter_of(arguments: Sequence[Any], kwargs: Mapping[str, Any], fn: Any) -> ModuleType:
    """The adapter of a function and its arguments. UsageError where there is none."""
    adapter = _adapters.find_adapter(arguments, kwargs, fn)
    if adapter is None:
        kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in arguments))
        raise UsageError(
            f"inputs: expected at least one array of a supported framework, got "
            f"{kinds or 'nothing'}; pass torch tensors with requires_grad=True or jax arrays, "
            "jnp.asarray(x), or say what the derivative is, gradproof.by_hand(fn, vjp=...)"
        )
    return adapter


def _different_names(names: Sequence[str]) -> tuple[str, ...]:
    """The `names` of `gradproof.check` as a tuple; UsageError where two inputs share one."""
    found = options.parse_strings("names", names)
    if not all(found) or len(set(found)) < len(found):
        raise UsageError(f"names: expected different ones, none empty, got {list(found)}")
    return found


def _keyword_arguments(fn: Any, kwargs: Any) -> Mapping[str, Any]:
    if kwargs is not None and not isinstance(kwargs, Mapping):
        name = name_of(fn) if callable(fn) or isinstance(fn, ByHand) else "fn"
        raise UsageError(
            f"kwargs: expected a dict of keyword arguments, got {options.short_repr(kwargs)}; "
            f"positional arguments go together in a tuple: check({name}, (x, y))"
        )
    return options.parse_mapping("kwargs", kwargs or {})


def _require_parameters(
    fn: Callable[..., Any], arguments: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """UsageError where a function has no parameters for these arguments."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # written in C: it may say so when it is called
        return
    try:
        signature.bind(*arguments, **kwargs)
    except TypeError as error:
        given = f"{len(arguments)} positional and {len(kwargs)} keyword arguments"
        raise UsageError(
            f"inputs: {name_of(fn)}{signature} was given {given}: {error}; positional arguments go "
            "in inputs, as a tuple, and keyword arguments in kwargs"
        ) from None
