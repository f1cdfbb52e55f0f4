"""Exceptions of the user's code that are part of what a check asks, told from all others.

The engine turns an exception in a check into a finding. A check handles one itself only where that
the code raises is its subject, or where it may raise rightly: for an undefined cotangent, arrays in
another memory layout, another point.
"""

from __future__ import annotations

from gradproof._data.exceptions import exception_line
from gradproof._data.frames import is_our_mistake, place_of_error
from gradproof._maps.contract import OutputChangedError, Unsupported
from gradproof.errors import UsageError

_OF_OTHERS = (Unsupported, UsageError, MemoryError)


class UsersError(Exception):
    """The user's code raised; `str` is what, and where."""


class users_errors:  # named as a function, of which contextlib would make one that takes longer
    """Raise `UsersError` for whatever the user's code raises inside the block.

    A missing capability, bad input, spent memory and mistakes of gradproof's own go through. That
    a function returns other outputs than at its point is the user's code as well.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OutputChangedError):
            raise UsersError(str(error)) from error
        if not isinstance(error, Exception) or isinstance(error, _OF_OTHERS):
            return
        if not is_our_mistake(error):
            raise UsersError(f"{exception_line(error)}{place_of_error(error)}") from error
