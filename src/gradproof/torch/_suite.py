"""Ours in the place of `torch.autograd.gradcheck`, for tests that nobody changes.

A test module may have imported the name long before, a helper may hold it as a default, and
PyTorch's own helpers call it by another path. All of them hold one function object, so what is
exchanged is the code inside it, and nobody's name has to be found.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.gradcheck import gradcheck as _gradcheck
from torch.autograd.gradcheck import gradgradcheck as _gradgradcheck

from gradproof import _asserts
from gradproof import torch as ours
from gradproof._data.frames import users_frame
from gradproof._data.inputs import name_of
from gradproof._data.records import ComparedCall, GradcheckAnswer, Report
from gradproof._guard.random import RandomState
from gradproof._render import summary
from gradproof.errors import DerivativeWarning

Face = Callable[..., bool]
Answering = Callable[[str, tuple[Any, ...], dict[str, Any]], bool]

_FACES: dict[str, Any] = {"gradcheck": _gradcheck, "gradgradcheck": _gradgradcheck}
_OURS: dict[str, Face] = {"gradcheck": ours.gradcheck, "gradgradcheck": ours.gradgradcheck}

_answering: Answering
_here = threading.local()  # whether this thread runs PyTorch's own
_turns = threading.RLock()  # a run that keeps reports keeps those of one call


# The code of these two becomes PyTorch's functions', and then sees PyTorch's globals, not ours.
def _in_place_of_gradcheck(*args: Any, **kwargs: Any) -> bool:
    __tracebackhide__ = True
    from gradproof.torch._suite import answer

    return answer("gradcheck", args, kwargs)


def _in_place_of_gradgradcheck(*args: Any, **kwargs: Any) -> bool:
    __tracebackhide__ = True
    from gradproof.torch._suite import answer

    return answer("gradgradcheck", args, kwargs)


_CODES = {
    "gradcheck": _in_place_of_gradcheck.__code__,
    "gradgradcheck": _in_place_of_gradgradcheck.__code__,
}


def _copy(face: Any) -> Face:
    """The function by itself, so that it stays what it is when its code is exchanged."""
    made = types.FunctionType(face.__code__, face.__globals__, face.__name__, face.__defaults__)
    made.__kwdefaults__ = face.__kwdefaults__
    return made


_THEIRS = {name: _copy(face) for name, face in _FACES.items()}


def answer(face: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """The answer to a call of PyTorch's function of that name."""
    __tracebackhide__ = True
    if getattr(_here, "theirs", False):  # PyTorch's gradgradcheck calls its gradcheck
        return _THEIRS[face](*args, **kwargs)
    return _answering(face, args, kwargs)


@contextmanager
def install_answer(answering: Answering) -> Iterator[None]:
    """In this block whoever calls PyTorch's gradcheck or gradgradcheck gets that answer."""
    global _answering
    _answering = answering
    codes = {name: face.__code__ for name, face in _FACES.items()}
    for name, face in _FACES.items():
        face.__signature__ = inspect.signature(face)  # stays what it was: helpers read it
        face.__code__ = _CODES[name]
    try:
        yield
    finally:
        for name, face in _FACES.items():
            face.__code__ = codes[name]
            del face.__signature__


def answer_of_gradproof(face: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    __tracebackhide__ = True
    return _OURS[face](*args, **kwargs)


def comparing_answer(note: Callable[[ComparedCall], None]) -> Answering:
    """PyTorch's answer; ours is asked too, of the same random state, and both are noted."""

    def answering(face: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        __tracebackhide__ = True
        before = RandomState()
        theirs = _FaceCall(functools.partial(_pytorch_answer, face), args, kwargs)
        after = RandomState()
        try:
            before.restore()
            asked = _own_answer(face, args, kwargs)
        finally:
            after.restore()
        note(_compared_call(face, args, theirs, asked))
        if theirs.raised is not None:
            raise theirs.raised
        return theirs.returned

    return answering


class _FaceCall:
    """A face that was asked: what it returned or raised, and the seconds that it took."""

    returned: bool
    raised: Exception | None = None
    report: Report | None = None  # where it is ours
    doubt = ""  # of ours, where it found nothing wrong

    def __init__(self, face: Face, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        __tracebackhide__ = True
        begun = time.process_time()
        try:
            self.returned = face(*args, **kwargs)
        except Exception as error:  # whatever the test is to see, or ours says
            self.raised = error
        self.seconds = time.process_time() - begun

    @property
    def answer_name(self) -> str:
        return str(self.returned) if self.raised is None else type(self.raised).__name__

    @property
    def first_line(self) -> str:
        lines = [] if self.raised is None else str(self.raised).strip().splitlines()
        return lines[0] if lines else ""


class _Heard(_asserts.Run):
    """The same run, which keeps the last report that it is told."""

    needs_reports = True

    def __init__(self, outer: _asserts.Run) -> None:
        self._outer = outer
        self.inconclusive = outer.inconclusive
        self.report: Report | None = None

    def options(self) -> dict[str, Any]:
        return self._outer.options()

    def count_report(self, report: Report, way: str) -> Report:  # noqa: ARG002 # of none of the test's
        self.report = self._outer.count_report(
            report, "ignore"
        )  # the test passes by PyTorch's answer
        return self.report


def _pytorch_answer(face: str, *args: Any, **kwargs: Any) -> bool:
    """PyTorch's own answer, whatever its functions call meanwhile."""
    __tracebackhide__ = True
    _here.theirs = True
    try:
        return _THEIRS[face](*args, **kwargs)
    finally:
        _here.theirs = False


def _own_answer(face: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _FaceCall:
    """Our answer, of which no warning reaches the test: PyTorch's do."""
    with _turns, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", DerivativeWarning)
        heard = _Heard(_asserts.current_run())
        outer = _asserts.set_run(heard)
        try:
            asked = _FaceCall(_OURS[face], args, {**kwargs, "inconclusive": "warn"})
        finally:
            _asserts.set_run(outer)
    asked.report = heard.report
    asked.doubt = "; ".join(str(each.message) for each in warned)
    return asked


def _compared_call(
    face: str, args: tuple[Any, ...], theirs: _FaceCall, ours: _FaceCall
) -> ComparedCall:
    report, (frame, _) = ours.report, users_frame("torch", "functools", "contextlib")
    refuted = "" if report is None or report else summary.headline(report)
    return ComparedCall(
        test="",
        place=f"{frame.f_code.co_filename}:{frame.f_lineno}",
        face=face,
        target=name_of(args[0]) if args else "",
        theirs=GradcheckAnswer(theirs.answer_name, theirs.first_line, theirs.seconds),
        ours=GradcheckAnswer(
            ours.answer_name, ours.first_line or refuted or ours.doubt, ours.seconds
        ),
        same=_is_same_answer(theirs, ours),
        undecided=bool(ours.doubt),
        cause=_cause(report),
        repeat="" if report is None else report.repeat,
    )


def _is_same_answer(theirs: _FaceCall, ours: _FaceCall) -> bool:
    if theirs.raised is None or ours.raised is None:
        return theirs.raised is ours.raised and theirs.returned == ours.returned
    return isinstance(ours.raised, type(theirs.raised))


def _cause(report: Report | None) -> str:
    """The likeliest cause of the first check that has one, and where; else where one failed."""
    places: list[str] = []
    for result in () if report is None else report.checks:
        for cause in result.causes[:1]:
            return f"{result.where}: {cause.message}" if result.where else cause.message
        places += [result.where] * bool(result.where)
    return next(iter(places), "")
