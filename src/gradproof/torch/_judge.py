"""From the options of PyTorch's faces to a verdict: True, False or an exception."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gradproof import _asserts
from gradproof._compare.conclude import WITHOUT_ENTRIES
from gradproof._data.frames import users_frame
from gradproof._data.inputs import name_of
from gradproof._data.options import parse_number, parse_positive_number
from gradproof._data.records import Finding, Report, Verdict
from gradproof._data.settings import RunSettings, new_seed
from gradproof._engine._run import run_checks
from gradproof._guard import guard_face
from gradproof._maps.contract import Unsupported
from gradproof.errors import DerivativeWarning, UsageError
from gradproof.torch._adapter import TorchMap, build
from gradproof.torch._arguments import ARGUMENTS
from gradproof.torch._double_backward import draw_grad_outputs, given_grad_outputs, gradient_of
from gradproof.torch._fast_path import decide_quickly
from gradproof.torch._graph import OLDER_BATCHING
from gradproof.torch._guards import (
    WithoutModeError,
    WrongNumberError,
    as_tuple,
    refuse_inputs,
    warn_of_low_precision,
)
from gradproof.torch._messages import GradcheckError, findings_in_order, pytorch_phrases
from gradproof.torch._notes import ALONE
from gradproof.torch._outputs import NothingReturnedError

CHOOSE_EPS = 1e-6  # PyTorch's default, which here means: choose the steps


class GradcheckQuestion(NamedTuple):
    """A function, its arguments, its name, and names of the arguments that are checked."""

    func: Callable[..., Any]
    arguments: tuple[Any, ...]
    target: str
    names: list[str] | None = None


def second_order_question(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any, noncontiguous: bool
) -> GradcheckQuestion:
    """The first-order question about the backward of `func`."""
    arguments = as_tuple(inputs)
    refuse_inputs(func, arguments)
    if grad_outputs is None:
        cotangents = draw_grad_outputs(func, arguments, noncontiguous=noncontiguous)
    else:
        cotangents = given_grad_outputs(func, arguments, grad_outputs)
    gradient, names = gradient_of(func, arguments, cotangents)
    return GradcheckQuestion(
        gradient, (*arguments, *cotangents), f"gradient of {name_of(func)}", names
    )


@dataclass(frozen=True)
class Options:
    """The options of both faces, under one name each.

    WrongNumberError where a step or a tolerance is none.
    """

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    masked: bool
    inconclusive: str
    asked: Mapping[str, bool]  # by option: "backward", "undefined", "batched", ...

    def __post_init__(self) -> None:
        try:
            parse_positive_number("eps", self.eps)
            for name in ("atol", "rtol", "nondet_tol"):
                parse_number(name, getattr(self, name))
        except UsageError as error:
            raise WrongNumberError(str(error)) from None

    def settings(self) -> RunSettings:
        """The same request in the engine's words, as the suite has it."""
        asked = self.asked
        of_backward = ("backward", "memory_layout", "grad_metadata", "sparse", "determinism")
        is_asked = {
            **dict.fromkeys((*of_backward, "side_effects"), asked["backward"]),
            "forward": asked["forward"],
            "forward_vs_backward": asked["backward"] and asked["forward"],
            "linearity": asked["backward"] or asked["forward"],
            "missing_grad_output": asked["undefined"],
            "batched": asked["batched"],
            "batched_forward": asked.get("batched_forward", False),
        }
        checks = tuple([name for name, is_on in is_asked.items() if is_on])
        settings = RunSettings(
            checks=checks,
            atol=self.atol,
            rtol=self.rtol,
            rtol_is_chosen=True,
            nondeterminism=self.nondet_tol,
            relative_nondeterminism=0.0,
            largest_step=None if self.eps == CHOOSE_EPS else self.eps,
            classic_step=self.eps,
            other_inputs=False,
            batchings=(OLDER_BATCHING,),  # PyTorch's gradcheck asks for no other
            required=frozenset({"forward", "batched", "batched_forward"}) & frozenset(checks),
        )
        return replace(settings, **{"seed": new_seed(), **_asserts.current_run().options()})


def passes_quickly(make: Callable[[], GradcheckQuestion], options: Options) -> bool:
    """Whether the fast path finds everything right in a question; it decides nothing else."""
    run = _asserts.current_run()
    chosen = run.options()
    others = any(options.asked.get(name) for name in ("forward", "batched", "batched_forward"))
    if others or options.eps != CHOOSE_EPS or run.needs_reports or chosen.keys() - {"seed"}:
        return False
    seed = chosen["seed"] if chosen else new_seed()
    bound = decide_quickly(lambda: make()[:2], seed, undefined=options.asked["undefined"])
    if bound is not None:
        run.count_pass(bound)
    return bound is not None


@guard_face
def judge(make: Callable[[], GradcheckQuestion], options: Options, raise_exception: bool) -> bool:
    """True, False, or GradcheckError. The only place that turns a report into one of them."""
    __tracebackhide__ = True
    question = make()
    func, arguments = question.func, question.arguments
    checked = refuse_inputs(func, arguments)
    warn_of_low_precision(checked)
    try:
        derivative = build(
            func, arguments, wrt=ARGUMENTS, names=question.names, masked=options.masked
        )
    except NothingReturnedError:
        doubts = f"{question.target} returned nothing, so that nothing was tested"
        return _answer_if_not_refuted(doubts, options.inconclusive, raise_exception)
    derivative.call.raised = []
    report = run_checks(derivative, options.settings(), target=question.target)
    report = _asserts.current_run().count_report(report, options.inconclusive)
    if any(ALONE in each.notes for each in report.checks):
        _warn(f"{question.target}: {ALONE}")
    if report:
        doubts = _all_open_questions(report, derivative)
        return _answer_if_not_refuted(doubts, options.inconclusive, raise_exception, report)
    findings = findings_in_order(report.findings)
    _raise_what_the_user_raised(derivative, findings[0])
    _warn_of_undefined(findings[0])
    if not raise_exception:
        return False
    raise GradcheckError(pytorch_phrases(findings, derivative, options.nondet_tol), report)


def _answer_if_not_refuted(
    doubts: str, way: str, raise_exception: bool, report: Report | None = None
) -> bool:
    """The answer where no derivative is wrong, and something may be open."""
    __tracebackhide__ = True
    if doubts and way == "warn":
        _warn(doubts)
    elif doubts and way == "error":
        if raise_exception:
            raise GradcheckError(doubts, report)
        return False
    return True


def _raise_what_the_user_raised(derivative: TorchMap, first: Finding) -> None:
    """Let an exception of the function or its derivative through where PyTorch would meet it first.

    A finding holds no exception, so the call that raised is repeated.
    """
    raised = derivative.call.raised
    if first.check not in ("grad_metadata", "determinism", "backward", "forward"):
        return
    if first.kind in ("raised", "unsupported"):
        try:
            if first.check == "forward":
                derivative.jvp(np.ones(derivative.domain.size))
            else:
                derivative.vjp(np.ones(derivative.codomain.size))
        except Unsupported as missing:
            cause = missing.__cause__ or NotImplementedError(missing.reason)
            if first.check == "forward" and cause not in (raised or ()):
                raise WithoutModeError(
                    f"inputs: forward mode cannot take them: {missing.reason}; leave out "
                    "check_forward_ad and check_fwd_over_rev"
                ) from None
            raise cause from None
    elif not math.isnan(first.measured):
        return
    if raised:  # no value to measure with
        raise raised[0]


def _all_open_questions(report: Report, derivative: TorchMap) -> str:
    """What a positive verdict leaves open, undecided, excused or not smooth; "" where nothing is.

    What the adapter remarks on the function (batch statistics, shared memory) is no doubt, nor are
    empty tensors, of which PyTorch's gradcheck says nothing.
    """
    remarks, doubts = {*derivative.notes, WITHOUT_ENTRIES}, list[str]()
    for each in report.checks:
        notes = each.notes if each.name in ("backward", "forward") else ()
        open_questions = (each.summary,) if each.verdict is Verdict.INCONCLUSIVE else notes
        doubts += [f"{each.name}: {doubt}" for doubt in open_questions if doubt not in remarks]
    if not doubts:
        return ""
    return f"{report.target}: no wrong derivative was found, but: {'; '.join(doubts)}"


def _warn_of_undefined(first: Finding) -> None:
    """As PyTorch: undefined gradients were not always looked at, and the option leaves them out."""
    if first.check == "missing_grad_output" and "tangent" not in first.kind:
        _warn(
            "Backwards compatibility: undefined gradients are tested by default; "
            "check_undefined_grad=False leaves that out",
            UserWarning,
        )


def _warn(message: str, kind: type[Warning] = DerivativeWarning) -> None:
    """Warn at the user's line, be it by way of PyTorch's helpers, or in the place of PyTorch's."""
    warnings.warn(message, kind, stacklevel=users_frame("torch")[1])
