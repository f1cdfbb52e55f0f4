"""The custom derivatives that a run of PyTorch meets, with their inputs: recorded, then checked.

Every call of a Function ends in `SingleLevelFunction.apply`, also one whose `apply` was bound
before; every call of an operator from Python in `__call__` of its packet or overload. Both are
patched for all threads.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gradproof._checks import requested_checks
from gradproof._data.frames import users_frame
from gradproof._data.options import kind_or_none, positive_number
from gradproof._data.records import Verdict
from gradproof._data.settings import new_seed, run_settings
from gradproof.errors import UsageError
from gradproof.torch._compat import (
    OpOverload,
    OpOverloadPacket,
    SingleLevelFunction,
    are_transforms_active,
    pytree,
)

if TYPE_CHECKING:
    from gradproof._survey import Case, CaseResult, SurveyReport

LARGEST = 1 << 20  # entries of an array that is copied
# Operators of these are PyTorch's own, as are Functions of its modules.
_OWN = {"aten", "prim", "prims", "rngprims", "debugprims", "c10d", "_c10d_functional", "inductor"}


@dataclass(frozen=True)
class Kept:
    """One array of a recorded call, as it was met."""

    values: torch.Tensor  # a copy, on the host
    stride: tuple[int, ...] | None  # None where it has none
    device: torch.device
    needs: bool  # whether it required a gradient

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def make_tensor(self) -> torch.Tensor:
        """The array again, in its layout."""
        if self.stride is None or 0 in self.stride:
            found = self.values.clone()
        else:
            found = torch.empty_strided(self.shape, self.stride, dtype=self.values.dtype)
            found.copy_(self.values)
        return found.to(self.device).requires_grad_(self.needs)


@dataclass
class Met:
    """A custom derivative that a run met."""

    name: str  # of the Function, or of the operator
    place: str  # file, line and function in which it was first called
    calls: int = 0  # with arrays of these kinds
    reason: str = ""  # why it can be named only; "" where its inputs were recorded
    inputs: tuple[Kept, ...] = ()  # the arrays of the first call
    operator: bool = False  # of torch.library; a Function otherwise
    _call: Callable[..., Any] = field(default=lambda: None, repr=False)

    def survey_case(self, seed: int, options: Mapping[str, Any]) -> Case:
        """It as a case of a survey, with fresh arrays."""
        from gradproof._survey import Case

        arrays = tuple(each.make_tensor() for each in self.inputs)
        checks = {"checks": _reverse_checks(options)} if self.operator else {}
        return Case(self._call, arrays, {**checks, **options, "seed": seed})


def _reverse_checks(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The checks asked for, less the forward mode, which PyTorch can give no operator of these."""
    rows = requested_checks(run_settings(order=options.get("order")))
    return tuple(row.name for row in rows if row.mode == "reverse")


class Seen:
    """The custom derivatives that a recorded block called.

    Attributes:
        met: the distinct ones, by function and kind of arguments, in the order of their first call.
    """

    def __init__(self, largest: int) -> None:
        self._largest, self._lock, self.recording = largest, threading.Lock(), False
        self._met: dict[Any, Met] = {}

    @property
    def met(self) -> list[Met]:
        with self._lock:
            return list(self._met.values())

    @property
    def unrecorded(self) -> list[Met]:
        """Those that are known by name only, each with the reason."""
        return [each for each in self.met if each.reason]

    def check(
        self,
        *,
        seed: int | None = 0,
        total_seconds: float | None = None,
        **options: Any,
    ) -> SurveyReport:
        """Check each recorded derivative by itself, at the inputs of its first call.

        Args:
            seed: seed of the probes.
            total_seconds: time for all together; each gets an equal part.
            **options: keywords of `gradproof.check`, for each.

        Returns:
            A `SurveyReport`, the worst first. Derivatives that were not recorded are its errors.

        Raises:
            UsageError: nothing was recorded, or the block has not ended.
        """
        from gradproof._survey import CaseResult, SurveyReport, survey

        if self.recording:
            raise UsageError("seen.check: call it after the `with` block, which records it as well")
        if not self.met:
            raise UsageError("record: no custom Function and no operator of torch.library was met")
        kind_or_none(positive_number)("total_seconds", total_seconds)
        names = {"order", "budget", "budget_seconds", "settings"} & options.keys()
        run_settings(**{name: options[name] for name in names})  # refuses what is wrong
        seed = new_seed() if seed is None else seed
        recorded = [each for each in self.met if not each.reason]
        if total_seconds is not None:
            limits = (total_seconds / max(len(recorded), 1), options.get("budget_seconds"))
            options["budget_seconds"] = min(limit for limit in limits if limit is not None)
        results = [CaseResult(each.name, error=each.reason) for each in self.unrecorded]
        if recorded:
            results += survey([each.survey_case(seed, options) for each in recorded])
        return SurveyReport(sorted(results, key=_severity))

    def __str__(self) -> str:
        return "\n".join(
            f"{each.name}  {each.reason or f'{each.calls} calls'}  {each.place}"
            for each in self.met
        )

    # What the patched functions of PyTorch tell.

    def record_call(self, function: Any, name: str, args: Sequence[Any], kwargs: Any) -> None:
        """Record a call that is about to be made, with copies of its tensors."""
        leaves, tree = pytree.tree_flatten((tuple(args), dict(kwargs)))
        arrays = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not torch.is_grad_enabled() or not any(array.requires_grad for array in arrays):
            return
        kinds = tuple(
            (leaf.dtype, tuple(leaf.shape), leaf.requires_grad, leaf.layout)
            if isinstance(leaf, torch.Tensor)
            else repr(leaf)[:80]
            for leaf in leaves
        )
        key = (function, kinds)
        with self._lock:
            if key not in self._met:
                self._met[key] = self._record_call(function, name, (leaves, tree))
            self._met[key].calls += 1

    def _record_call(self, function: Any, name: str, given: tuple[list[Any], Any]) -> Met:
        leaves, tree = given
        arrays = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(type(a) not in (torch.Tensor, torch.nn.Parameter) for a in arrays):
            return Met(name, _users_line(), reason="its inputs are no plain tensors")
        if (largest := max(array.numel() for array in arrays)) > self._largest:
            reason = f"an input has {largest:,} entries; record a smaller case, or raise largest="
            return Met(name, _users_line(), reason=reason)
        # Parameters that are handed over beside their module, as adjoints of solvers take them, are
        # read from a copy of it: they stay one with what the function reads there.
        owned = {
            id(parameter): (place, name)
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, torch.nn.Module)
            for name, parameter in leaf.named_parameters()
        }
        own = {place: owned[id(leaf)] for place, leaf in enumerate(leaves) if id(leaf) in owned}
        modules = {module for module, _ in own.values()}
        others: list[Any] = [
            None
            if isinstance(leaf, torch.Tensor)
            else copy.deepcopy(leaf)
            if place in modules
            else leaf
            for place, leaf in enumerate(leaves)
        ]
        holes = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        holes = [place for place in holes if place not in own]
        operator = not issubclass(type(function), type)
        with torch.no_grad():
            kept = tuple(_kept_array(leaves[place]) for place in holes)

        def call(*tensors: Any) -> Any:
            filled = list(others)
            for hole, tensor in zip(holes, tensors, strict=True):
                filled[hole] = tensor
            for place, (module, parameter) in own.items():
                filled[place] = others[module].get_parameter(parameter)
            args, kwargs = pytree.tree_unflatten(filled, tree)
            return function(*args, **kwargs) if operator else function.apply(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        call.__module__ = "torch"
        return Met(name, _users_line(), inputs=kept, operator=operator, _call=call)


def _kept_array(array: torch.Tensor) -> Kept:
    stride = tuple(array.stride()) if array.layout is torch.strided else None
    return Kept(array.detach().clone().cpu(), stride, array.device, array.requires_grad)


def _is_of_pytorch(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "torch"


def _users_line() -> str:
    """The line of the user's that made the call."""
    code = (frame := users_frame("torch")[0]).f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"


# The worst first; None is what could not be asked.
_ORDER = (Verdict.FAILED, None, Verdict.INCONCLUSIVE, Verdict.SKIPPED, Verdict.PASSED)


def _severity(result: CaseResult) -> int:
    return _ORDER.index(None if result.report is None else result.report.verdict)


@contextmanager
def record(*, largest: int = LARGEST) -> Iterator[Seen]:
    """Note every custom autograd Function and every operator of torch.library that a block calls.

    Each is noted once for every kind of arguments, with a copy of its arrays and the line of the
    call, in every thread. Numbers, graph and random state of the program do not change. PyTorch is
    as before when the block ends, also after an exception.

    Args:
        largest: most entries of an array that is copied. A call with a larger one is named, and
            not checked.

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
    seen = Seen(largest)
    with ExitStack() as stack:
        for owner, name, made in _patches(seen):
            own = vars(owner).get(name)
            undo = partial(setattr, owner, name, own) if own else partial(delattr, owner, name)
            stack.callback(undo)
            setattr(owner, name, made(own))
        seen.recording = True
        try:
            yield seen
        finally:
            seen.recording = False


def _suppress_errors(tell: Callable[[], None]) -> None:
    """Record something; an error in that is dropped, so that the program goes on."""
    if are_transforms_active() or torch.compiler.is_compiling():
        return
    with contextlib.suppress(Exception):  # of a tensor that cannot be copied
        tell()


def _patches(seen: Seen) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What is patched meanwhile: its owner, its name, and what is made of it."""

    def of_functions(_: Any) -> Any:
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if not _is_of_pytorch(cls):
                _suppress_errors(lambda: seen.record_call(cls, cls.__name__, args, kwargs))
            return super(SingleLevelFunction, cls).apply(*args, **kwargs)

        return classmethod(apply)

    def of_operators(original: Any) -> Any:
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            name = str(getattr(self, "_qualified_op_name", "") or self.name())
            if name.partition("::")[0] not in _OWN:
                _suppress_errors(lambda: seen.record_call(self, name, args, kwargs))
            return original(self, *args, **kwargs)

        return call

    yield SingleLevelFunction, "apply", of_functions
    for kind in (OpOverload, OpOverloadPacket):
        yield kind, "__call__", of_operators
