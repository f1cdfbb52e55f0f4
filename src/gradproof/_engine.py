"""From a function and its inputs to a report: find the adapter, build the map, run the checks."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradproof import _adapters
from gradproof._checks import CHECKS, Check
from gradproof._checks._outcome import failed, first_line, inconclusive, skipped
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._metered import BudgetSpent, Metered
from gradproof._numerics import measure
from gradproof._numerics.probes import fresh_seed
from gradproof._records import CheckResult, Finding, Report
from gradproof._settings import Settings
from gradproof.errors import DerivativeError, UsageError


def check(
    fn: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    checks: Sequence[str] | None = None,
    order: int = 1,
    rtol: float | None = None,
    atol: float = 0.0,
    seed: int | None = None,
    budget: int | None = None,
    masked: bool = False,
    names: Sequence[str] | None = None,
) -> Report:
    """Prove or refute the derivatives of a function at a point.

    Every derivative that the framework claims for `fn` at `inputs` is compared with what
    differences measure, with an error bar, and with every other claim it must agree with. An
    entry of the Jacobian is wrong when
    ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Args:
        fn: function of arrays that returns an array, or a container of arrays.
        inputs: a tuple or list of positional arguments; a dict whose keys are names of
            parameters of `fn` holds keyword arguments; anything else is the one argument.
            Floating or complex arrays marked as differentiable are checked.
        kwargs: keyword arguments, checked likewise.
        checks: names of checks; all where None. They are listed in the README.
        order: 1, or 2 to check the derivative of the backward too.
        rtol: relative tolerance on an entry; where None, 1e-6 in double and 1e-3 in single
            precision.
        atol: absolute tolerance on an entry, in units of output per unit of input. It excuses a
            gap; it never certifies a pass.
        seed: of the random probes. A fresh one where None; the report records it.
        budget: calls of function and backward together; 100,000 where None.
        masked: sparse inputs vary in their specified entries only.
        names: of the differentiable inputs, in order, for the report.

    Returns:
        The report. False only if a derivative was refuted; `verdict`, `findings`, `str()`.

    Raises:
        UsageError: a ValueError: the check cannot start with these arguments.
    """
    given = {"rtol": rtol, "budget": budget, "checks": None if checks is None else tuple(checks)}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = Settings(order=order, atol=atol, seed=seed, **chosen)  # type: ignore[arg-type]  # fields of Settings
    if not callable(fn):
        raise UsageError(f"fn: expected a function, got {type(fn).__name__}")
    arguments, kwargs = _arguments(fn, inputs, kwargs)
    adapter = _adapters.find(arguments, kwargs)
    if adapter is None:
        kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in arguments)) or "nothing"
        raise UsageError(
            f"inputs: expected at least one array of a supported framework, got {kinds}; "
            "pass torch tensors with requires_grad=True"
        )
    map_ = adapter.build(fn, arguments, kwargs, masked=masked, names=names)
    if rtol is None:
        loose = _precision(map_.resolution)
        settings = replace(settings, rtol=loose[0], resolution=loose[1])
    return run(map_, settings, target=name_of(fn))


def _arguments(
    fn: Callable[..., Any], inputs: Any, kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], Mapping[str, Any] | None]:
    """Positional and keyword arguments from what the user handed over."""
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), kwargs
    if isinstance(inputs, Mapping) and inputs and _are_parameters(fn, inputs):
        if twice := sorted(set(inputs) & set(kwargs or {})):
            raise UsageError(f"inputs: {twice[0]!r} is also in kwargs; give it once")
        return (), {**inputs, **(kwargs or {})}
    return (inputs,), kwargs


def _are_parameters(fn: Callable[..., Any], names: Mapping[Any, Any]) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # builtins have none
        return False
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return all(name in named for name in names)


def _precision(unit: float) -> tuple[float, float]:
    """`rtol` and `resolution` that arithmetic of this unit round-off can meet."""
    if unit < measure.DOUBLE:
        return 1e-6, 1e-2
    return (1e-3, 2e-2) if unit < 1e-6 else (32 * unit, 0.1)


def assert_derivatives(
    fn: Callable[..., Any], inputs: Any, kwargs: Mapping[str, Any] | None = None, **options: Any
) -> Report:
    """Raise unless the derivatives of `fn` at `inputs` hold; arguments as for `check`.

    Returns:
        The report, whose verdict is then not failed.

    Raises:
        DerivativeError: an AssertionError; a derivative was refuted; carries `.report`.
        UsageError: as `check`.
    """
    __tracebackhide__ = True
    report = check(fn, inputs, kwargs, **options)
    if not report:
        raise DerivativeError(str(report), report)
    return report


def run(map_: DifferentiableMap, settings: Settings, *, target: str) -> Report:
    """Run the checks that the settings ask for, in the order of the table; never raise for one.

    The map is closed afterwards, whatever happens.
    """
    started = time.perf_counter()
    if settings.seed is None:
        settings = replace(settings, seed=fresh_seed())
    metered = Metered(map_, settings.budget)
    try:
        with np.errstate(all="ignore"):
            rows = [row for row in CHECKS if row.name in settings.checks]
            results = tuple(_one(row, metered, settings) for row in rows)
    finally:
        close = getattr(map_, "close", None)
        if close is not None:
            close()
    return Report(
        target=target,
        inputs=tuple(f"{slot.name}: {slot.describe}" for slot in map_.domain.slots),
        outputs=tuple(f"{slot.name}: {slot.describe}" for slot in map_.codomain.slots),
        checks=results,
        calls=_calls(metered),
        seconds=time.perf_counter() - started,
        seed=settings.seed or 0,
    )


def _calls(metered: Metered) -> dict[str, int]:
    """Calls by kind; a map that counts runs of the user's own code knows better than we do."""
    calls = dict(metered.calls)
    calls["function"] = getattr(
        metered.inner, "function_calls", calls.get("value", 0) + calls.get("jvp", 0)
    )
    calls["vjp"] = getattr(metered.inner, "backward_calls", calls.get("vjp", 0))
    return calls


def _one(row: Check, metered: Metered, settings: Settings) -> CheckResult:
    started, before = time.perf_counter(), metered.calls.copy()
    try:
        result = row.run(metered, settings)
    except Unsupported as missing:
        result = _unsupported(row.name, missing.reason, settings)
    except BudgetSpent:
        reason = f"the budget of {settings.budget:,} calls is spent; raise budget="
        result = inconclusive(row.name, reason)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # a rule of the user's that raises is a finding
        if _is_ours(error):
            raise
        result = _raised(row.name, error)
    if (row.name == "backward" and "forward" not in settings.checks) or row.name == "forward":
        measure.resolution(metered)  # remembered from what is forgotten now
        measure.forget(metered)
    return replace(
        result, seconds=time.perf_counter() - started, calls=dict(metered.calls - before)
    )


def _unsupported(name: str, reason: str, settings: Settings) -> CheckResult:
    if name not in settings.required:
        return skipped(name, reason)
    return failed(name, reason, (Finding(name, reason, "unsupported"),))


def _is_ours(error: Exception) -> bool:
    """Whether gradproof's own code raised: adapters and faces run the user's, which may."""
    if error.__traceback__ is None:
        return False
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    inside = Path(last).parts[-3:]
    return (
        "gradproof" in inside and "_adapters" not in inside and not inside[-1].startswith("_torch")
    )


def _raised(name: str, error: Exception) -> CheckResult:
    message = f"{type(error).__name__}: {first_line(str(error), 300)}"
    return failed(name, f"it raised {first_line(message)}", (Finding(name, message, "raised"),))


def name_of(fn: Callable[..., Any]) -> str:
    """How a report calls a function."""
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, type) and getattr(fn, "__name__", "") == "apply":  # a custom function's
        return f"{owner.__name__}.{getattr(fn, '__name__', '')}"
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name.rpartition("<locals>.")[2]
