"""From a report to an exception, a warning or nothing: the same in every face that asserts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gradproof._data.frames import without_ours
from gradproof._data.options import one_of
from gradproof._data.records import Report, Verdict
from gradproof._render import summary
from gradproof.errors import DerivativeError, DerivativeWarning, UsageError

WAYS = ("warn", "error", "ignore")

_default = "warn"


def default_is(way: str) -> str:
    """From now on `way` is what an inconclusive check does; returns what it was before."""
    global _default
    before, _default = _default, way
    return before


def way_of(inconclusive: str | None) -> str:
    """What an inconclusive check does: as asked for, or by default. UsageError for other words."""
    __tracebackhide__ = True
    chosen: str = one_of(WAYS)("inconclusive", _default if inconclusive is None else inconclusive)
    return chosen


def assert_derivatives(
    fn: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    inconclusive: str | None = None,
    **options: Any,
) -> Report:
    """Raise unless the derivatives of `fn` at `inputs` hold; arguments as for `check`.

    Args:
        fn: as for `check`.
        inputs: as for `check`.
        kwargs: as for `check`.
        inconclusive: what a check does that could not decide: "error" raises, "warn" gives a
            `DerivativeWarning`, "ignore" does nothing. Where None, "warn", or under pytest what
            the ini option `gradproof_inconclusive` says.
        **options: as for `check`.

    Returns:
        The report, whose verdict is then passed or inconclusive.

    Raises:
        DerivativeError: an AssertionError; a derivative was refuted, or could not be decided and
            that is an error; carries `.report`.
        UsageError: as `check`; or nothing was tested, because every check was skipped.
    """
    __tracebackhide__ = True
    import gradproof

    way = way_of(inconclusive)
    try:
        report = gradproof.check(fn, inputs, kwargs, **options)
    except Exception as error:  # of the user's function, or UsageError: not our frames
        without_ours(error)
        raise error
    settle(report, way, stacklevel=3)
    return report


def settle(report: Report, way: str, stacklevel: int) -> None:
    """Raise, warn or do nothing, by the verdict; see `assert_derivatives`."""
    __tracebackhide__ = True
    if report.verdict is Verdict.SKIPPED:
        why = summary.deciding(report)
        raise UsageError(f"checks: nothing of {report.target} was tested: {why}; ask for others")
    undecided = report.verdict is Verdict.INCONCLUSIVE
    if not report or (undecided and way == "error"):
        raise DerivativeError(str(report), report)
    if undecided and way == "warn":
        warnings.warn(undecided_line(report), DerivativeWarning, stacklevel=stacklevel)


def undecided_line(report: Report) -> str:
    """`inconclusive: op: backward: budget of 10 calls spent`."""
    return f"{report.verdict}: {summary.headline(report)}"
