"""From a function and its inputs to a report: find the adapter, build the map, run the checks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from gradproof._data.by_hand import CLAIMS, ByHand
from gradproof._data.inputs import name_of
from gradproof._data.options import short_repr, unknown_name_message
from gradproof._data.records import Report
from gradproof._data.settings import Settings, run_settings
from gradproof._engine import _sweep
from gradproof._engine._question import Question
from gradproof._engine._run import run_checks
from gradproof._guard import guard_face
from gradproof.errors import UsageError

P = ParamSpec("P")
Result = TypeVar("Result")

__all__ = ["check", "compare", "run_checks"]


_OF_GRADCHECK = ("eps", "raise_exception", "nondet_tol", "fast_mode")


class UnknownOptionError(UsageError, TypeError):
    """A keyword that a function does not have."""


def refuse_unknown_options(face: Callable[..., Any], options: Iterable[str]) -> None:
    """UnknownOptionError where a function has no such option, with what else takes it."""
    known = _parameters_of(face)
    for name in [name for name in options if name not in known]:
        taken = f"{face.__name__}() takes no {name}=:"
        if name in Settings.__dataclass_fields__:
            raise UnknownOptionError(f"{taken} pass settings=gradproof.Settings({name}=...)")
        if name in _OF_GRADCHECK or name.startswith("check_"):
            raise UnknownOptionError(
                f"{taken} it is an option of gradproof.torch.gradcheck, which takes the place of "
                "PyTorch's gradcheck"
            )
        if name in (*CLAIMS, "args"):
            raise UnknownOptionError(
                f"{taken} a function and its derivative are joined by "
                f"gradproof.by_hand(fn, {name}=...), which is passed as fn"
            )
        message = unknown_name_message(name, known)
        raise UnknownOptionError(f"{face.__name__}() has no option {message}")


@functools.cache
def _parameters_of(face: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(face).parameters


def _with_known_options(face: Callable[P, Result]) -> Callable[P, Result]:
    """The function; it refuses other options."""

    @functools.wraps(face)
    def refuse_or_call(*args: P.args, **kwargs: P.kwargs) -> Result:
        refuse_unknown_options(face, kwargs)
        return face(*args, **kwargs)

    return refuse_or_call


@guard_face
@_with_known_options
def check(
    fn: Callable[..., Any] | ByHand,
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
    """Check the derivatives of a function at a point.

    Each derivative that the framework claims for `fn` at `inputs` is compared with slopes that are
    measured from values of `fn`, and with every other claim that it must agree with. An entry of
    the Jacobian is wrong if ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Args:
        fn: a function of arrays that returns an array or a container of arrays; or
            ``by_hand(fn, vjp=...)``.
        inputs: a tuple or list of positional arguments; anything else, also a dict, is the only
            argument. Floating point and complex arrays are differentiated, of PyTorch those that
            require grad, of any shape. Parameters and captured tensors of `fn` are inputs too.
        kwargs: keyword arguments, treated in the same way.
        checks: names of checks, such as ["backward", "linearity"]; None runs all that need no
            option. docs/checks.md lists them.
        order: highest order of the derivatives, 1 (where None), 2 or 3.
        transforms: True compares the derivative under torch.func, the compiler, checkpoints and
            saved-tensor hooks; a list of names selects some. Compiling takes seconds.
        sweep: True also checks at other inputs, made from the given ones: zeros, ties, signs, large
            and small values, other sizes, booleans reversed. An input for which `fn` raises or is
            not finite is left out.
        rtol: relative tolerance of an entry; where None, 1e-6 in double and 1e-3 in single
            precision.
        atol: absolute tolerance of an entry, in units of output per unit of input; 0 where None.
        seed: seed of the random probes, 0 <= seed < 2**64; None draws one, which the report shows.
        budget: most calls of function and backward together; 100,000 where None. What is undecided
            then is inconclusive. A sweep shares it.
        budget_seconds: the same in seconds of wall time. It is looked at before each call.
        reference: a function with the same arguments and value, in plain operations of the same
            framework. It runs in double precision, and its own derivative is verified first. It
            decides where differences, or `fn` itself in double precision, do not. For a derivative
            written by hand it is ``by_hand(...)`` too.
        trusted: True if the derivative of `reference` is right by definition, even if it does not
            belong to its value (a straight-through estimator, a clipped gradient). Claims are then
            compared with the reference alone.
        wrt: which inputs are checked, all where None: a name of the report, a pattern with `*` and
            `?`, the name of a container or layer, the position of an argument, or a list of these.
        domain: limits that inputs must stay within: a pair (low, high) for all, None being an open
            end, or a dict from names to pairs. Entries on a limit are not tested.
        names: names of the differentiable inputs for the report, in order.
        settings: a `Settings` with options that are rarely needed.

    Returns:
        A `Report`. It is false only if a derivative was refuted.

    Raises:
        UsageError: a ValueError that names the argument and says what was expected.

    Example:
        >>> import torch, gradproof
        >>> x = torch.linspace(-1, 1, 6, dtype=torch.float64, requires_grad=True)
        >>> report = gradproof.check(torch.tanh, (x,), seed=0)
        >>> str(report.verdict)
        'passed'
    """
    requested = run_settings(
        settings, seed=seed, checks=checks, order=order, transforms=transforms, sweep=sweep,
        rtol=rtol, atol=atol, budget=budget, budget_seconds=budget_seconds, reference=reference,
        trusted=trusted,
    )  # fmt: skip
    question = Question(fn, inputs, kwargs, requested, wrt=wrt, domain=domain, names=names)
    map_ = question.build(question.arguments, question.kwargs)
    chosen = question.settings(map_)
    report = run_checks(map_, chosen, target=name_of(question.fn))
    return _sweep.report_with_sweep(report, question, chosen) if requested.sweep else report


def compare(
    fused: Callable[..., Any] | ByHand,
    eager: Callable[..., Any] | ByHand,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Compare two implementations: values, gradients and, on request, second derivatives.

    Both run on the same numbers, `eager` in double precision. Each statistic of the difference is
    compared with the same statistic of runs of `eager` in which every operation is rounded at
    random to the precision of `fused`. The checks are "value", "backward", "forward", "linearity"
    and "second_point", with `eager` as the only reference.

    Args:
        fused: the function under test, as for `check`.
        eager: a function with the same arguments and value, in plain operations of the same
            framework. Its own derivative is verified by differences first.
        inputs, kwargs: as for `check`.
        **options: as for `check`. ``order=2`` also compares double backwards, ``trusted=True``
            takes the derivative of `eager` for right by definition, ``rtol`` is added to every
            limit, and ``settings=Settings(accumulate="float32")`` says that `fused` computes in
            float32 and rounds only its results.

    Returns:
        A `Report`; ``report["backward"].statistics`` has every statistic and its limit.

    Raises:
        UsageError: a ValueError that names the argument and says what was expected.

    Example:
        >>> import torch, gradproof
        >>> x = torch.linspace(-1, 1, 6, requires_grad=True)
        >>> report = gradproof.compare(torch.nn.functional.silu, lambda x: x * x.sigmoid(), (x,))
        >>> bool(report)
        True
    """
    for name, function in (("fused", fused), ("eager", eager)):
        if not (callable(function) or isinstance(function, ByHand)):
            raise UsageError(f"{name}: expected a function, got {short_repr(function)}")
    if "reference" in options:
        raise UsageError("reference: in compare it is `eager`; pass no other one")
    second = ("second_order",) if (options.get("order") or 1) > 1 else ()
    options.setdefault(
        "checks", ("value", "backward", "forward", "linearity", "second_point", *second)
    )
    settings = options.pop("settings", None)
    if settings is None or isinstance(settings, Settings):
        settings = replace(settings or Settings(), references=["reference"])
    return check(fused, inputs, kwargs, reference=eager, settings=settings, **options)
