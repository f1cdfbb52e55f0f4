"""What `check` was asked, parsed once, in the forms in which the engine needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from gradproof import _adapters
from gradproof._adapters.jax_code import adapter_of_code
from gradproof._data import options
from gradproof._data.inputs import (
    Derivative,
    Reference,
    Variables,
    is_matrix,
    is_operator,
    name_of,
    refuse_reference,
    split_arguments,
)
from gradproof._data.limits import limited_space
from gradproof._data.settings import TRANSFORM_NAMES, Settings
from gradproof._maps.contract import DifferentiableMap
from gradproof.errors import UsageError


@dataclass
class Asked:
    """The arguments of `check`. UsageError where one is not of its kind."""

    fn: Callable[..., Any] | str  # under test, or the name of an operator
    inputs: Any  # as given
    kwargs: Mapping[str, Any] | None  # likewise
    derivative: Derivative  # what the user says it is
    variables: Variables  # which inputs are varied
    settings: Settings  # of the run, with its seed

    def __post_init__(self) -> None:
        options.container("inputs", self.inputs)
        options.container("kwargs", self._kwargs(self.kwargs))
        self.settings = self.settings.seeded()

    def _kwargs(self, kwargs: Any) -> Mapping[str, Any]:
        if kwargs is not None and not isinstance(kwargs, Mapping):
            fn = name_of(self.fn) if callable(self.fn) else "fn"
            raise UsageError(
                f"kwargs: expected a dict of keyword arguments, got {options.shown(kwargs)}; "
                f"positional arguments go together in a tuple: check({fn}, (x, y))"
            )
        return options.mapping("kwargs", kwargs or {})


class Question:
    """A function at its arguments, and what is asked about it, in the terms of an adapter.

    UsageError where the check cannot start with these arguments.
    """

    def __init__(self, asked: Asked) -> None:
        fn, reference, self._asked = asked.fn, asked.settings.reference, asked
        self.fn = _adapters.operator(fn) if isinstance(fn, str) else fn
        if not (callable(self.fn) or is_operator(self.fn) or is_matrix(self.fn)):
            raise UsageError(f"fn: expected a function, got {options.shown(self.fn)}")
        by_hand = bool(asked.derivative.claims) or is_operator(self.fn) or is_matrix(self.fn)
        self._reference = _reference_for(self.fn, reference, by_hand)
        self.arguments, self.kwargs = split_arguments(
            self.fn, asked.inputs, asked.kwargs, by_hand=by_hand
        )
        self.adapter = _adapters.by_hand() if by_hand else self._adapter()
        self._records = [asked.variables, *([asked.derivative] if by_hand else [])]

    def build(self, arguments: Any, kwargs: Any) -> DifferentiableMap:
        """The map of the function at these arguments."""
        made: DifferentiableMap = self.adapter.build(self.fn, arguments, kwargs, *self._records)
        domain = self._asked.variables.domain  # no framework's
        if domain is not None:
            made.keep_limits(limited_space(made.domain, made.point, domain))
        return made

    def map(self) -> DifferentiableMap:
        """The map at the arguments given."""
        return self.build(self.arguments, self.kwargs)

    def settings(self, map_: DifferentiableMap) -> Settings:
        """What is asked of such a map."""
        asked = self._asked.settings
        chosen: dict[str, Any] = {"reference": self._reference}
        if {"hess", "hessp"} & set(self._asked.derivative.claims):
            chosen["order"] = max(asked.order, 2)
        if asked.transforms is TRANSFORM_NAMES:
            there = {transform.name for transform in map_.transforms()}
            chosen["transforms"] = tuple(name for name in TRANSFORM_NAMES if name in there)
        return options.altered(asked, **chosen).at_precision(map_.resolution)

    def _adapter(self) -> ModuleType:
        """The adapter of the framework of the arguments."""
        if len(self._asked.derivative.args):
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
        return adapter


def _reference_for(
    fn: Any, reference: Callable[..., Any] | Reference | None, by_hand: bool
) -> Callable[..., Any] | Reference | None:
    """The reference as the checks take it: a function, or of one written by hand a `Reference`.

    Args:
        fn: the function under test.
        reference: as given to `check`.
        by_hand: whether the derivative of `fn` is written by hand.

    Raises:
        UsageError: it is no function, or is `fn` itself; its derivative is missing, or is one too
            many.
    """
    if reference is None:
        return None
    if isinstance(reference, Reference) and reference.claims:
        if not by_hand:
            raise UsageError(
                "reference: a derivative written by hand goes only beside one that is written by "
                "hand; pass a function of the framework under test"
            )
        options.function("reference", reference.fn)
        return reference  # its function may be that under test: the derivative is another
    if isinstance(reference, Reference):
        reference = reference.fn
    refuse_reference(fn, reference)
    if by_hand:
        raise UsageError(
            "reference: beside a derivative written by hand it needs one too, "
            "gradproof.Reference(fn, vjp=...)"
        )
    return reference
