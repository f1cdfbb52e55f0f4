"""From a function and its inputs to a report: find the adapter, build the map, run the checks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from gradproof._data.by_hand import ByHand
from gradproof._data.inputs import name_of
from gradproof._data.records import Report
from gradproof._data.settings import Settings, run_settings
from gradproof._engine import _repeat, _sweep
from gradproof._engine._question import Question
from gradproof._engine._run import run_checks
from gradproof._guard import guard_face
from gradproof.errors import UsageError

P = ParamSpec("P")
Result = TypeVar("Result")

__all__ = ["check", "compare", "run_checks"]


_OF_GRADCHECK = ("eps", "raise_exception", "nondet_tol", "fast_mode", "masked")


def _refuse_options_of_gradcheck(face: Callable[P, Result]) -> Callable[P, Result]:
    """The same function; an option of PyTorch's gradcheck is refused with where it is taken."""

    @functools.wraps(face)
    def refuse_or_call(*args: P.args, **kwargs: P.kwargs) -> Result:
        for name in kwargs:
            if name in _OF_GRADCHECK or name.startswith("check_"):
                raise TypeError(
                    f"{face.__name__}() takes no {name}=: it is an option of "
                    "gradproof.torch.gradcheck, which takes the place of PyTorch's gradcheck"
                )
        return face(*args, **kwargs)

    return refuse_or_call


@guard_face
@_refuse_options_of_gradcheck
def check(
    fn: Callable[..., Any] | ByHand | str,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    checks: Sequence[str] | None = None,
    order: int | None = None,
    transforms: bool | Sequence[str] | None = None,
    sweep: bool | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int | None = None,
    budget: int | None = None,
    budget_seconds: float | None = None,
    reference: Callable[..., Any] | ByHand | None = None,
    trusted: bool | None = None,
    wrt: Any = None,
    domain: Any = None,
    names: Sequence[str] | None = None,
    settings: Settings | None = None,
) -> Report:
    """Prove or refute the derivatives of a function at a point.

    Every derivative that the framework claims for `fn` at `inputs` is compared with what
    differences measure, with an error bar, and with every other claim it must agree with. An
    entry of the Jacobian is wrong when
    ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Args:
        fn: function of arrays that returns an array, or a container of arrays; or the name of an
            operator of torch.library, "mylib::op"; or `by_hand(fn, vjp=...)`, a function whose
            derivative is written by hand.
        inputs: a tuple or list of positional arguments; anything else, a dict too, is the one
            argument.
            Floating or complex arrays marked as differentiable are checked.
        kwargs: keyword arguments, checked likewise.
        checks: names of checks; all where None. docs/checks.md lists them, with an example each.
        order: highest order of derivative, 1, 2 (in every pair of modes) or 3; 1 where None.
        transforms: True to hold every AD transform of the function against its derivative:
            functional ones, the compiler, checkpoints, saved-tensor hooks; or the names of some.
            It takes seconds, since it compiles.
        sweep: also check at other arguments: zeros, ties, signs, large and small values, other
            sizes, bools the other way round. What the function does not take, by raising or by
            NaN, is no fault. `budget` and `budget_seconds` hold for the whole sweep.
        rtol: relative tolerance on an entry; where None, 1e-6 in double and 1e-3 in single
            precision.
        atol: absolute tolerance on an entry, in units of output per unit of input. It excuses a
            gap; it never certifies a pass. 0 where None.
        seed: of the random probes. A fresh one where None; the report records it.
        budget: calls of function and backward together; 100,000 where None. What is undecided
            when it is spent is inconclusive, with that reason.
        budget_seconds: wall time, likewise; looked at before each call, so that a single long
            call is not cut short. No limit where None.
        reference: a function with the same arguments and the same value, in plain operations of
            the same framework. It is run in double precision on the same numbers; its own
            derivative is verified by differences before it is believed. Where the derivative of
            `fn` is written by hand, so is that of the reference: `by_hand` again.
        trusted: True where the derivative of the reference is right by definition, and need not
            be that of its value: a straight-through estimator, a clipped gradient. Nothing is
            then measured; the claims are held against the reference, in every precision.
        wrt: which differentiable inputs are checked; all where None. A name as in the report, a
            pattern with `*` and `?`, the name of a container or of a layer, the position of an
            argument, or a sequence of these. The others stay as they are.
        domain: limits that the inputs keep when they are moved: a pair (low, high) for all of
            them, None being an open end, or a dict from names of inputs to such pairs. Entries
            on a limit are not tested, and the report says so.
        names: of the differentiable inputs, in order, for the report.
        settings: rarely used options.

    Returns:
        The report. False only if a derivative was refuted; `verdict`, `findings`, `str()`.

    Raises:
        UsageError: a ValueError: the check cannot start with these arguments.
    """
    given = {
        "checks": checks, "order": order, "transforms": transforms, "sweep": sweep, "rtol": rtol,
        "atol": atol, "budget": budget, "budget_seconds": budget_seconds, "reference": reference,
        "trusted": trusted,
    }  # fmt: skip
    variables = {"wrt": wrt, "domain": domain, "names": names}
    requested = run_settings(settings, seed=seed, **given)
    question = Question(fn, inputs, kwargs, requested, **variables)
    map_ = question.map()
    chosen = question.settings(map_)
    report = run_checks(map_, chosen, target=name_of(question.fn))
    options = {**given, **variables, "settings": settings}
    report = replace(report, repeat=_repeat.call_text(fn, inputs, kwargs, options, requested.seed))
    return _sweep.report_with_sweep(report, question, chosen) if requested.sweep else report


def compare(
    fused: Callable[..., Any] | ByHand | str,
    eager: Callable[..., Any] | ByHand,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Hold one implementation against another: value, gradients, second order where asked.

    Both are run on the same numbers, `eager` in double precision. Each statistic of the difference
    stands beside what honest rounding explains: the same of runs of `eager` in which every
    operation is rounded at random to the precision of `fused`. These are the checks "value",
    "backward", "forward", "linearity" and "second_point" of `check`, with `eager` as the only
    oracle.

    Args:
        fused: function under test, as for `check`.
        eager: function with the same arguments and the same value, in plain operations of the
            same framework. Its own derivative is first verified by differences.
        inputs, kwargs: as for `check`.
        **options: as for `check`: `rtol`, `checks`, `wrt`, `seed`, `budget`, ... Of these
            `order=2` compares the double backwards too, `trusted=True` believes `eager` as it is,
            a definition such as a straight-through estimator or a clipped gradient, and
            `settings=Settings(accumulate=...)` says in what `fused` computes where it rounds only
            what it returns.

    Returns:
        The report; `report.statistics` holds every statistic with what it was allowed.

    Raises:
        UsageError: a ValueError: the comparison cannot start with these arguments.
    """
    if eager is None:
        raise UsageError("eager: expected a function, got None")
    second = ("second_order",) if (options.get("order") or 1) > 1 else ()
    options.setdefault(
        "checks", ("value", "backward", "forward", "linearity", "second_point", *second)
    )
    settings = options.pop("settings", None)
    if settings is None or isinstance(settings, Settings):
        settings = replace(settings or Settings(), oracles=["reference"])
    return check(fused, inputs, kwargs, reference=eager, settings=settings, **options)
