"""Errors and warnings that users can catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradproof._data.records import Report


class DerivativeError(AssertionError):
    """A derivative is wrong. An AssertionError whose text is the report.

    Attributes:
        report: the `Report`; None where there is only a message.
    """

    __module__ = "gradproof"  # the name under which users catch it, and tracebacks print it

    report: Report | None

    def __init__(self, message: str = "", report: Report | None = None) -> None:
        super().__init__(message)
        self.report = report

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.report is None else f"{message}\n\n{self.report}".lstrip("\n")


class UsageError(ValueError):
    """The check could not start. A ValueError of one sentence that names the argument."""


class UnknownNameError(UsageError, KeyError):
    """A report has no check of this name. The message lists the checks that it has."""

    __str__ = Exception.__str__  # a KeyError's is the repr of its argument


class DerivativeWarning(UserWarning):
    """Nothing is wrong, but something could not be decided. The message says what."""
