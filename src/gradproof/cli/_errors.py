"""Errors of the user's code on the command line."""

from __future__ import annotations

from gradproof._data.frames import as_told, sentence
from gradproof.errors import UsageError


class TheirError(UsageError):
    """The user's code raised.

    Attributes:
        trace: what Python prints of it, our frames left out; "" where none of theirs is in it.
    """

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} raised {sentence(error)}")
        self.trace = as_told(error)
