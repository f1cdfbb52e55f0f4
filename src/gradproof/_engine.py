"""From a function and its inputs to a report: find the adapter, build the map, run the checks."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from gradproof import _adapters, _repeat, _watch
from gradproof._checks import CHECKS, Check, _oracle
from gradproof._checks._outcome import failed, first_line, inconclusive, skipped
from gradproof._inputs import is_operator, name_of, refuse_functions, split_arguments
from gradproof._limited import limited
from gradproof._map import BudgetSpent, DifferentiableMap, Unsupported
from gradproof._metered import Metered
from gradproof._numerics import measure
from gradproof._numerics.probes import fresh_seed
from gradproof._records import CheckResult, Finding, Report, Verdict
from gradproof._settings import ORACLES, Settings
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
    budget_seconds: float | None = None,
    masked: bool = False,
    names: Sequence[str] | None = None,
    reference: Callable[..., Any] | None = None,
    oracles: Sequence[str] = ORACLES,
    domain: Any = None,
    project: Any = None,
    wrt: Any = None,
    args: Sequence[Any] = (),
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    jac: Any = None,
    grad: Any = None,
    hess: Any = None,
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
        order: highest order of derivative, 1, 2 (in every pair of modes) or 3.
        rtol: relative tolerance on an entry; where None, 1e-6 in double and 1e-3 in single
            precision.
        atol: absolute tolerance on an entry, in units of output per unit of input. It excuses a
            gap; it never certifies a pass.
        seed: of the random probes. A fresh one where None; the report records it.
        budget: calls of function and backward together; 100,000 where None. What is undecided
            when it is spent is inconclusive, with that reason.
        budget_seconds: wall time, likewise; looked at before each call, so that a single long
            call is not cut short. No limit where None.
        masked: sparse inputs vary in their specified entries only.
        names: of the differentiable inputs, in order, for the report.
        reference: a function with the same arguments and the same value, in plain operations of
            the framework. It is run in double precision on the same numbers; its own derivative
            is verified by differences before it is believed.
        oracles: what the claims are held against where the arrays have less than double
            precision, in this order: "double", the same function on double precision arrays,
            believed if it really computes in them; "reference"; "native", differences in the
            precision of the arrays.
        domain: limits that the inputs keep when they are moved: a pair (low, high) for all of
            them, None being an open end, or a dict from names of inputs to such pairs. Entries
            on a limit are not tested, and the report says so.
        project: a function that makes an input valid (symmetric, triangular, ...) and leaves
            valid ones alone, or a dict from names of inputs to such functions. Checked is then
            `fn` of the inputs so made.
        wrt: which differentiable inputs are checked; all where None. A name as in the report, a
            pattern with `*` and `?`, the name of a container or of a layer, the position of an
            argument, or a sequence of these. The others stay as they are.
        args: further positional arguments of `fn` and of the functions below; not differentiated.
        vjp: a derivative written by hand, instead of a framework's: the gradient J^T v of the
            inputs, called as ``vjp(*inputs, v, *args)``. Several inputs or outputs are tuples.
        jvp: likewise J u, called as ``jvp(*inputs, u, *args)``.
        jac: likewise the matrix J, dense, sparse or an operator, or a function of the inputs
            that returns it; True where `fn` returns its value and this.
        grad: likewise the gradient of a function with one real value; True likewise.
        hess: for ``order=2``, the derivative of `grad`, or of v -> J^T v: ``hess(x, v, *args)``.

    Returns:
        The report. False only if a derivative was refuted; `verdict`, `findings`, `str()`.

    Raises:
        UsageError: a ValueError: the check cannot start with these arguments.
    """
    asked = dict(locals())  # for the line that repeats the check
    given = {
        "rtol": rtol,
        "budget": budget,
        "budget_seconds": budget_seconds,
        "checks": None if checks is None else tuple(checks),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    seed = fresh_seed() if seed is None else seed
    fixed: dict[str, Any] = {"order": order, "atol": atol, "seed": seed, "oracles": tuple(oracles)}
    settings = Settings(**fixed, **chosen, reference=reference, derived=rtol is None)  # type: ignore[arg-type]  # fields of Settings
    refuse_functions(fn, reference)
    arguments, kwargs = split_arguments(fn, inputs, kwargs)
    claims = {"vjp": vjp, "jvp": jvp, "jac": jac, "grad": grad, "hess": hess}
    adapter, more = _adapter_of(fn, arguments, kwargs, claims, args)
    options: dict[str, Any] = {"masked": masked, "names": names, "project": project, "wrt": wrt}
    map_ = adapter.build(fn, arguments, kwargs, **options, **more)
    if domain is not None:
        map_ = limited(map_, domain)
    report = run(map_, settings.at_precision(map_.resolution), target=name_of(fn))
    return replace(report, repeat=_repeat.call(check, asked, report.seed))


def _adapter_of(
    fn: Callable[..., Any],
    arguments: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    claims: Mapping[str, Any],
    args: Sequence[Any],
) -> tuple[ModuleType, dict[str, Any]]:
    """The adapter for the arguments, and what it needs to know. UsageError where none knows them.

    A derivative written by hand needs no framework.
    """
    if any(claim is not None for claim in claims.values()) or is_operator(fn):
        return _adapters.by_hand(), {"claims": claims, "args": tuple(args)}
    if len(args):
        raise UsageError("args: belongs to vjp=, jvp=, jac= or grad=; else add it to the inputs")
    adapter = _adapters.find(arguments, kwargs, fn)
    if adapter is None:
        kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in arguments)) or "nothing"
        raise UsageError(
            f"inputs: expected at least one array of a supported framework, got {kinds}; "
            "pass torch tensors with requires_grad=True or jax arrays, or say what the derivative "
            "is with vjp=, jvp=, jac= or grad="
        )
    return adapter, {}


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

    The map is closed afterwards, whatever happens. Whoever observes is told of each check, and
    what is known so far where the user interrupts.
    """
    started = time.perf_counter()
    if settings.seed is None:
        settings = replace(settings, seed=fresh_seed())
    metered = Metered(map_, settings.budget, settings.budget_seconds)
    rows = [row for row in CHECKS if row.asked(settings)]
    results: list[CheckResult] = []

    def report() -> Report:
        return _report(metered, results, started, settings.seed or 0, target)

    try:
        with np.errstate(all="ignore"):
            for position, row in enumerate(rows, 1):
                _watch.current().checking(target, row.name, (position, len(rows)), metered.calls)
                results.append(_one(row, metered, settings))
    except KeyboardInterrupt:
        results += _unfinished(rows[len(results) :])
        _watch.current().interrupted(report())
        raise
    finally:
        close = getattr(map_, "close", None)
        if close is not None:
            close()
    return report()


def _unfinished(rows: Sequence[Check]) -> list[CheckResult]:
    """Results of the checks that an interrupt left: the one that ran, and those after it."""
    return [
        skipped(row.name, "not reached: the run was interrupted")
        if place
        else inconclusive(row.name, "interrupted before it was decided")
        for place, row in enumerate(rows)
    ]


def _report(
    metered: Metered, results: Sequence[CheckResult], started: float, seed: int, target: str
) -> Report:
    map_ = metered.inner
    return Report(
        target=target,
        inputs=tuple(f"{slot.name}: {slot.describe}" for slot in map_.domain.slots),
        outputs=tuple(f"{slot.name}: {slot.describe}" for slot in map_.codomain.slots),
        checks=_with_notes(tuple(results), tuple(getattr(map_, "notes", None) or ())),
        calls=_calls(metered),
        seconds=time.perf_counter() - started,
        seed=seed,
    )


def _with_notes(
    results: tuple[CheckResult, ...], notes: tuple[str, ...]
) -> tuple[CheckResult, ...]:
    """The results; the first of a check that ran carries what the map has to say as well."""
    ran = [place for place, result in enumerate(results) if result.verdict is not Verdict.SKIPPED]
    if not notes or not ran:
        return results
    first = replace(results[ran[0]], notes=(*results[ran[0]].notes, *notes))
    return (*results[: ran[0]], first, *results[ran[0] + 1 :])


def _calls(metered: Metered) -> dict[str, int]:
    """Calls by kind; a map that counts runs of the user's own code knows better than we do."""
    calls = dict(metered.calls)
    counts = getattr(metered.inner, "counts", {})
    calls["function"] = counts.get("function", calls.get("value", 0) + calls.get("jvp", 0))
    calls["vjp"] = counts.get("vjp", calls.get("vjp", 0))
    return calls


def _one(row: Check, metered: Metered, settings: Settings) -> CheckResult:
    started, before = time.perf_counter(), metered.calls.copy()
    if getattr(metered.inner, "spent", False):
        told = inconclusive if row.name in ("backward", "forward") else skipped
        return told(row.name, "no input is left that could be moved")
    try:
        result = row.run(metered, settings)
    except Unsupported as missing:
        result = _unsupported(row.name, missing.reason, settings)
    except BudgetSpent as spent:
        result = inconclusive(row.name, spent.reason)
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # a rule of the user's that raises is a finding
        if _is_ours(error):
            raise
        result = _raised(row.name, error)
    if (row.name == "backward" and "forward" not in settings.checks) or row.name == "forward":
        measure.resolution(metered)  # remembered from what is forgotten now
        measure.forget(metered)
        _oracle.forget(metered)
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
