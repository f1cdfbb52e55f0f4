"""Errors of the user's code keep their frames and lose ours."""

from __future__ import annotations

import traceback
import types
from functools import partial

import numpy as np
import pytest

import gradproof
from gradproof._adapters.raised import unsupported
from gradproof._data.exceptions import exception_line, sentence, short_line
from gradproof._data.frames import drop_our_frames, is_our_mistake, users_traceback
from gradproof._data.space import Space
from gradproof._maps.contract import Unsupported
from gradproof._numpy.adapter import HandMap
from gradproof.errors import UsageError
from numpy_map import FunctionMap, Linear, report_of


def raised_inside() -> BaseException:
    """An error of a function of the user's that our code called."""

    def theirs(v: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt("theirs")

    map_ = FunctionMap(np.sin, [1.0], Linear(lambda u: u, theirs))
    try:
        report_of(map_, "backward")
    except KeyboardInterrupt as error:
        return error
    raise AssertionError


def names_in(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_our_frames_are_cut_out_and_theirs_stay_on_both_sides():
    error = raised_inside()
    assert {"report_of", "run_checks", "check_result"} <= set(names_in(error))
    assert names_in(drop_our_frames(error)) == ["raised_inside", "report_of", "vjp", "theirs"]


def test_what_an_error_was_raised_from_is_cut_too():
    outer = RuntimeError("outer")
    outer.__cause__ = raised_inside()
    text = users_traceback(outer)
    assert text == ""  # the outer one has no line of the user's
    assert "gradproof/_engine/" not in "".join(traceback.format_exception(outer))


def test_an_error_of_ours_alone_has_nothing_to_show():
    with pytest.raises(UsageError) as caught:
        gradproof.Settings(oracles=[])
    error = caught.value
    error.__traceback__ = error.__traceback__.tb_next  # this test's own frame
    assert users_traceback(error) == ""


def test_a_mistake_of_our_own_keeps_every_frame():
    try:
        Space(3).size  # noqa: B018 # no slots: our code stumbles
    except TypeError as caught:
        error = caught
    assert "gradproof/_data/space.py" in users_traceback(error)


def raised_by(function, *args) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError


def test_an_adapter_that_stumbles_over_our_own_names_is_a_mistake_of_ours():
    """Elsewhere in an adapter it may be the user's function, which leaves no frame if builtin."""
    own = {"__name__": "gradproof._numpy.adapter", "ours": Space(()), "theirs": None}
    exec("def misses(): return ours.no_such\ndef unnamed(): return nowhere", own)
    exec("def takes(): return theirs.shape\ndef calls(): return len(3)", own)
    assert [is_our_mistake(raised_by(own[name])) for name in ("misses", "unnamed")] == [True, True]
    assert [is_our_mistake(raised_by(own[name])) for name in ("takes", "calls")] == [False, False]
    face = own | {"__name__": "gradproof.torch._judge"}
    exec("def calls(): return len(3)", face)
    assert not is_our_mistake(raised_by(face["calls"]))
    core = own | {"__name__": "gradproof._compare.claims"}
    exec("def calls(): return len(3)", core)
    assert is_our_mistake(raised_by(core["calls"]))


def test_a_mistake_of_ours_is_never_told_as_a_missing_capability():
    ours = {"__name__": "gradproof._numpy.adapter"}
    exec("def stumbles(): return nowhere", ours)
    with pytest.raises(NameError), unsupported():
        ours["stumbles"]()
    with pytest.raises(Unsupported, match=r"^theirs$"), unsupported():
        theirs_raises(None)
    with pytest.raises(ValueError, match="theirs"), unsupported(TypeError):
        theirs_raises(None)


def test_a_check_does_not_tell_a_mistake_of_ours_as_the_functions(monkeypatch):
    def stumbles(self, v):
        return self.no_such_attribute

    stumbles = types.FunctionType(stumbles.__code__, {"__name__": HandMap.__module__})
    sine = gradproof.by_hand(np.sin, vjp=lambda x, v: v * np.cos(x))
    asked = partial(gradproof.check, sine, np.ones(2))
    assert asked()
    monkeypatch.setattr(HandMap, "vjp", stumbles)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        asked()


def theirs_raises(x):
    raise ValueError("theirs") from KeyError("cause")


@pytest.mark.needs("torch")
def test_an_asserting_function_shows_their_frames_and_causes_only():
    import torch

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="theirs") as caught:
        gradproof.assert_derivatives(theirs_raises, (x,))
    names = [name for name in names_in(caught.value) if not name.startswith("test_")]
    assert names == ["assert_derivatives", "theirs_raises"]
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(UsageError) as caught:
        gradproof.assert_derivatives(theirs_raises, (x,), order=7)
    assert names_in(caught.value)[1:] == ["assert_derivatives"]


def test_a_syntax_error_shows_its_line_without_any_frame():
    try:
        compile("x = (\n", "ops.py", "exec")
    except SyntaxError as caught:
        error = caught.with_traceback(None)
    assert 'File "ops.py", line 1' in users_traceback(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("no such\n  luck"), "RuntimeError: no such luck"),
        (KeyError(), "KeyError"),
    ],
)
def test_an_error_in_one_line(error, text):
    assert sentence(error) == text


class Mute(RuntimeError):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_what_an_error_says_is_cut_to_its_first_line():
    assert short_line("  one\ntwo") == "one"
    assert short_line("a" * 160) == "a" * 160
    assert short_line("a" * 161) == "a" * 157 + "..."
    assert exception_line(ValueError("no\nmore")) == "ValueError: no"
    assert (
        exception_line(KeyError())
        == exception_line(Mute()).replace("Mute", "KeyError")
        == "KeyError"
    )


def test_an_error_whose_own_text_raises_is_told_by_its_type():
    def raises(x, v):
        raise Mute

    def refuses(x):
        raise Mute

    report = gradproof.check(gradproof.by_hand(np.sin, vjp=raises), np.ones(3), seed=0)
    assert report["backward"].summary == "it raised Mute"
    right = partial(gradproof.by_hand, vjp=lambda x, v: v * np.cos(x))
    report = gradproof.check(
        right(np.sin),
        np.ones(3),
        reference=right(refuses),
        seed=0,
        settings=gradproof.Settings(oracles=["reference"]),
    )
    assert "it raised Mute" in report["backward"].summary
