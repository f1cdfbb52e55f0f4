"""Modes of PyTorch that see every operator which a run dispatches."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode whose use does not import PyTorch's compiler; entered again while active, it is one.

    PyTorch would stack it: the lower one would see what the upper one does, and round a rounding.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # PyTorch's
        self._entered = 0

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
