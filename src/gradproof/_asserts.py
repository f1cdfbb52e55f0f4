"""From a report to an exception, a warning or nothing: the same in every face that asserts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gradproof._data.by_hand import ByHand
from gradproof._data.frames import drop_our_frames, users_frame
from gradproof._data.options import parse_choice
from gradproof._data.records import Report, Verdict
from gradproof._render import summary
from gradproof.errors import DerivativeError, DerivativeWarning, UsageError

WAYS = ("warn", "error", "ignore")


class Run:
    """What faces that assert follow: nothing but this, where no runner of tests puts its own."""

    inconclusive = "warn"  # of WAYS, what an inconclusive check does that is told nothing else

    needs_reports = False  # of derivatives that are right, too

    def options(self) -> dict[str, Any]:
        """Options of a check that is given none of its own, such as its seed."""
        return {}

    def count_report(self, report: Report, way: str) -> Report:  # noqa: ARG002 # for runners of tests
        """Hear of a report, and of what an inconclusive one does; returns the report to show."""
        return report

    def count_pass(self, bound: float) -> None:
        """Hear of a check that passed and made no report, and how sharp it was."""


_run = Run()


def set_run(run: Run) -> Run:
    """From now on faces follow this run; returns the one before."""
    global _run
    before, _run = _run, run
    return before


def current_run() -> Run:
    """The run that faces follow."""
    return _run


def chosen_way(inconclusive: str | None) -> str:
    """What an inconclusive check does: as asked for, or by default. UsageError for other words."""
    __tracebackhide__ = True
    way = _run.inconclusive if inconclusive is None else inconclusive
    chosen: str = parse_choice("inconclusive", way, WAYS)
    return chosen


def assert_derivatives(
    fn: Callable[..., Any] | ByHand,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    inconclusive: str | None = None,
    **options: Any,
) -> Report:
    """Check the derivatives of a function at a point, and raise if one is wrong.

    Args:
        fn, inputs, kwargs: as for `gradproof.check`.
        inconclusive: what to do if nothing is wrong but something is undecided: "error" raises,
            "warn" issues a `DerivativeWarning`, "ignore" does nothing. None is "warn", or under
            pytest the ini option `gradproof_inconclusive`.
        **options: as for `gradproof.check`.

    Returns:
        The `Report`, whose verdict is passed or inconclusive.

    Raises:
        DerivativeError: an AssertionError; a derivative is wrong, or undecided with "error". Its
            `report` is the report.
        UsageError: a ValueError: a wrong argument, or every check was skipped.

    Example:
        >>> import torch, gradproof
        >>> x = torch.linspace(-1, 1, 6, dtype=torch.float64, requires_grad=True)
        >>> report = gradproof.assert_derivatives(torch.tanh, (x,), checks=["backward"])
    """
    __tracebackhide__ = True
    import gradproof

    way = chosen_way(inconclusive)
    try:
        report = gradproof.check(fn, inputs, kwargs, **{**_run.options(), **options})
    except Exception as error:  # of the user's function, or UsageError: not our frames
        drop_our_frames(error)
        raise error
    report = settled_report(report, way)
    if report.verdict is Verdict.SKIPPED:
        why = summary.deciding_text(report)
        raise UsageError(f"checks: nothing of {report.target} was tested: {why}; ask for others")
    return report


def settled_report(report: Report, way: str, message: str = "") -> Report:
    """The report as the run counts and shows it; DerivativeError, with the message, if it fails.

    An inconclusive report fails, warns or does nothing, as `way` of WAYS says.
    """
    __tracebackhide__ = True
    report = _run.count_report(report, way)
    undecided = report.verdict is Verdict.INCONCLUSIVE
    if not report or (undecided and way == "error"):
        raise DerivativeError(message, report)
    if undecided and way == "warn":
        warnings.warn(undecided_line(report), DerivativeWarning, stacklevel=users_frame()[1])
    return report


def undecided_line(report: Report) -> str:
    """`inconclusive: op: backward: budget of 10 calls spent`."""
    return f"{report.verdict}: {summary.headline(report)}"
