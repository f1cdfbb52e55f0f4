"""Modes in which PyTorch's operators, or functions, return what a function of ours says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from gradproof.torch._compat import LAZY_BITS, TorchDispatchMode, is_key_excluded, set_key_excluded

Called = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]  # operator, args, kwargs -> result


class DispatchMode(TorchDispatchMode):
    """A mode that calls `called` in the place of every operator.

    Conjugate and negative bits count in there. The mode does not import PyTorch's compiler. To
    enter it twice is to enter it once: PyTorch would stack it, and the lower mode would round what
    the upper one has rounded.
    """

    def __init__(self, called: Called) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's
        self._entered, self._call_operation = 0, called

    def __enter__(self) -> DispatchMode:
        self._entered += 1
        if self._entered == 1:
            super().__enter__()  # type: ignore[no-untyped-call]  # PyTorch's
        return self

    def __exit__(self, *raised: Any) -> None:
        self._entered -= 1
        if not self._entered:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]  # PyTorch's

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch imports its compiler, for seconds, to keep it out of here

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        with _honour_conjugate_bits():
            return self._call_operation(func, args, kwargs or {})


class FunctionMode(TorchFunctionMode):
    """The same of PyTorch's functions."""

    def __init__(self, called: Called) -> None:
        super().__init__()
        self._call_operation = called

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return self._call_operation(func, args, kwargs or {})


@contextmanager
def _honour_conjugate_bits() -> Iterator[None]:
    """Conjugate and negative bits count, which PyTorch passes over inside of a dispatch mode.

    There `a + 0` of a conjugated matrix is not conjugated, and `linalg.pinv` of a complex one is
    wrong (docs/defects/pytorch.md).
    """
    before = [(key, is_key_excluded(key)) for key in LAZY_BITS]
    for key in LAZY_BITS:
        set_key_excluded(key, False)
    try:
        yield
    finally:
        for key, excluded in before:
            set_key_excluded(key, excluded)


def tensors_among(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Tensors among the arguments of an operator, which holds them in lists at most."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_among(value)
