"""Exceptions of the user's code that are part of what a check asks, told from all others.

The engine turns an exception in a check into a finding. A check handles one itself only where that
the code raises is its subject, or where it may raise rightly: for an undefined cotangent, arrays in
another memory layout, another point.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gradproof._data.exceptions import exception_line
from gradproof._data.frames import is_our_mistake, place_of_error
from gradproof._maps.contract import OutputChangedError, Unsupported
from gradproof.errors import UsageError


class UsersError(Exception):
    """The user's code raised; `str` is what, and where."""


@contextlib.contextmanager
def users_errors() -> Iterator[None]:
    """Raise `UsersError` for whatever the user's code raises inside the block.

    A missing capability, bad input, spent memory and mistakes of gradproof's own go through. That
    a function returns other outputs than at its point is the user's code as well.
    """
    try:
        yield
    except OutputChangedError as changed:
        raise UsersError(str(changed)) from changed
    except (Unsupported, UsageError, MemoryError):
        raise
    except Exception as error:
        if is_our_mistake(error):
            raise
        raise UsersError(f"{exception_line(error)}{place_of_error(error)}") from error
