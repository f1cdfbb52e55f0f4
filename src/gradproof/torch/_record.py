"""The custom derivatives that a run of PyTorch meets, with their inputs: recorded, then checked.

Every call of a Function ends in the `apply` of `FUNCTION_WITH_APPLY`, up to PyTorch 2.13 also one
whose `apply` was bound before; every call of an operator from Python in `__call__` of its packet or
overload. Both are patched for all threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gradproof._data.exceptions import exception_line
from gradproof._data.frames import users_frame
from gradproof._data.options import parse_integer
from gradproof._data.settings import run_settings
from gradproof.errors import UsageError
from gradproof.torch._compat import (
    FUNCTION_WITH_APPLY,
    OpOverload,
    OpOverloadPacket,
    SingleLevelFunction,
    are_transforms_active,
    pytree,
)

if TYPE_CHECKING:
    from gradproof._survey import SurveyReport

LARGEST = 1 << 20  # entries of an array that is copied
# Operators of these are PyTorch's own, as are Functions of its modules.
_OWN = {"aten", "prim", "prims", "rngprims", "debugprims", "c10d", "_c10d_functional", "inductor"}


@dataclass
class Met:
    """A custom derivative that a run met."""

    name: str  # of the Function, or of the operator
    place: str  # file, line and function in which it was first called
    function: Callable[..., Any] | None  # of `inputs`; None where these were not recorded
    inputs: tuple[torch.Tensor, ...] = ()  # copies of the tensors of the first call
    reason: str = ""  # why these were not recorded
    calls: int = 0  # with arguments of these kinds


class Seen:
    """The custom derivatives that a recorded block called.

    Attributes:
        met: the distinct ones, by function and kind of arguments, in the order of their first call.
    """

    def __init__(self, largest: int) -> None:
        self._largest, self._lock = largest, threading.Lock()
        self._met: dict[Any, Met] = {}

    @property
    def met(self) -> list[Met]:
        with self._lock:
            return list(self._met.values())

    def check(self, **options: Any) -> SurveyReport:
        """Check each recorded derivative by itself, at the inputs of its first call.

        Args:
            **options: keywords of `gradproof.check`, for each; `seed` is 0 if it is not given.

        Returns:
            A `SurveyReport`. Derivatives that were not recorded are its errors.

        Raises:
            UsageError: nothing was recorded, or an option is not valid.
        """
        # From the package, whose imports leave random states as they are.
        from gradproof import Case, CaseResult, SurveyReport, check, survey
        from gradproof._engine import refuse_unknown_options
        from gradproof._survey import unique_name

        met = self.met
        if not met:
            raise UsageError("record: no custom Function and no operator of torch.library was met")
        refuse_unknown_options(check, options)
        common = options.keys() - {"fn", "inputs", "kwargs", "wrt", "domain", "names"}
        run_settings(**{name: options[name] for name in common})  # refuses what is wrong
        options, named = {"seed": 0, **options}, dict[str, Met]()
        for each in met:
            named[unique_name(each.name, named)] = each
        results = [CaseResult(name, error=m.reason) for name, m in named.items() if m.reason]
        cases = [
            Case(m.function, m.inputs, options, name) for name, m in named.items() if m.function
        ]
        if cases:
            results += survey(cases)
        return SurveyReport(results)

    def record_call(self, target: Any, name: str, args: Sequence[Any], kwargs: Any) -> None:
        """Record a call of a Function or an operator that is about to be made."""
        leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            return
        kinds = [
            (leaf.dtype, tuple(leaf.shape), leaf.requires_grad, leaf.layout)
            if isinstance(leaf, torch.Tensor)
            else repr(leaf)[:80]
            for leaf in leaves
        ]
        key = (target, *kinds)
        with self._lock:
            if key not in self._met:
                self._met[key] = self._first_call(target, name, leaves, tree)
            self._met[key].calls += 1

    def record_failure(self, target: Any, name: str, error: Exception) -> None:
        """Note a call whose arguments could not be recorded."""
        reason = f"its arguments could not be recorded: {exception_line(error)}"
        with self._lock:
            met = Met(name, _place_of_call(), None, reason=reason)
            self._met.setdefault((target, reason), met).calls += 1

    def _first_call(self, target: Any, name: str, leaves: list[Any], tree: Any) -> Met:
        place = _place_of_call()
        largest = max(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
        if largest > self._largest:
            reason = f"an input has {largest:,} entries; record a smaller case, or raise largest="
            return Met(name, place, None, reason=reason)
        # Adjoints of solvers are handed a module and its parameters, which stay one with it: they
        # are found in the function, as what it captures.
        modules = [leaf for leaf in leaves if isinstance(leaf, torch.nn.Module)]
        held = {id(parameter) for module in modules for parameter in module.parameters()}
        given = {
            k: leaf.detach().clone().requires_grad_(leaf.requires_grad)
            for k, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and id(leaf) not in held
        }
        is_function = isinstance(target, type)
        is_in_place = is_function and _marks_inputs_dirty(target)
        others = [None if k in given else leaf for k, leaf in enumerate(leaves)]

        def function(*tensors: torch.Tensor) -> Any:
            filled = others.copy()
            for k, tensor in zip(given, tensors, strict=True):
                filled[k] = tensor.clone() if is_in_place else tensor  # autograd protects leaves
            args, kwargs = pytree.tree_unflatten(filled, tree)
            call = target.apply if is_function else target
            return call(*args, **kwargs)

        function.__name__ = function.__qualname__ = name
        function.__module__ = "torch"
        return Met(name, place, function, tuple(given.values()))


def _place_of_call() -> str:
    """File, line and function of the innermost frame of the user's code."""
    code = (frame := users_frame("torch")[0]).f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


def _marks_inputs_dirty(function: type[torch.autograd.Function]) -> bool:
    """Whether a Function says that it writes into its inputs."""
    codes = [getattr(m, "__code__", None) for m in (function.forward, function.setup_context)]
    return any("mark_dirty" in code.co_names for code in codes if code is not None)


@contextmanager
def record(*, largest: int = LARGEST) -> Iterator[Seen]:
    """Note every custom autograd Function and every operator of torch.library that a block calls.

    Each is noted once for every kind of arguments, with a copy of its arrays and the line of the
    call, in every thread. Numbers, graph and random state of the program do not change. PyTorch is
    as before when the block ends, also after an exception.

    Args:
        largest: most entries of an array that is copied. A call with a larger one is named, and
            not checked.

    Raises:
        UsageError: `largest` is not a whole number of at least 0.

    Yields:
        A `Seen`. After the block ``seen.check()`` checks each derivative.

    Example:
        >>> import torch, gradproof.torch
        >>> class Double(torch.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         return 2 * x
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         return 2 * grad_output
        >>> with gradproof.torch.record() as seen:
        ...     y = Double.apply(torch.ones(3, requires_grad=True))
        >>> [str(report.verdict) for report in seen.check().reports.values()]
        ['passed']
    """
    from unittest.mock import patch  # which imports asyncio

    seen = Seen(parse_integer("largest", largest, 0, "a whole number >= 0"))

    def note(target: Any, name: str, args: Sequence[Any], kwargs: Any) -> None:
        if not (are_transforms_active() or torch.compiler.is_compiling()):
            try:
                seen.record_call(target, name, args, kwargs)
            except Exception as error:  # of a tensor that cannot be copied
                seen.record_failure(target, name, error)

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if str(cls.__module__).partition(".")[0] != "torch":
            note(cls, cls.__name__, args, kwargs)
        return super(SingleLevelFunction, cls).apply(*args, **kwargs)

    def noted_call(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            name = str(getattr(self, "_qualified_op_name", "") or self.name())
            if name.partition("::")[0] not in _OWN:
                note(self, name, args, kwargs)
            return original(self, *args, **kwargs)

        return call

    with ExitStack() as patches:
        patches.enter_context(patch.object(FUNCTION_WITH_APPLY, "apply", classmethod(apply)))
        for kind in (OpOverload, OpOverloadPacket):
            patches.enter_context(patch.object(kind, "__call__", noted_call(kind.__call__)))
        yield seen
