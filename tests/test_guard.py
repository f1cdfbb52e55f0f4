"""Checks take turns, and leave what they did not make: random states, filters, interrupts."""

from __future__ import annotations

import random
import signal
import threading
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import gradproof
from gradproof import _guard
from gradproof._guard import guard_face, keep_context, restored
from gradproof._guard.random import RandomState

X = np.array([0.5, 1.5])
PASSED = gradproof.Verdict.PASSED


def cosine(x, v):
    return v * np.cos(x)


def draws() -> list[float]:
    return [random.random(), np.random.rand()]  # noqa: NPY002  # the global one


def test_random_states_of_python_and_numpy_and_of_arguments_are_put_back():
    own = [np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]

    def sine(x, *generators):
        draws()
        return np.sin(x) + 0 * sum(each.random() for each in generators if each is not own[2])

    state = RandomState()
    expected = [draws(), [each.random() for each in own[:2]], own[2].rand()]
    state.restore()
    own = [np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]
    report = gradproof.check(
        gradproof.by_hand(sine, vjp=lambda x, v, *generators: cosine(x, v), args=tuple(own)),
        (X,),
        seed=0,
    )
    assert report["backward"].verdict is gradproof.Verdict.PASSED, str(report)
    assert [draws(), [each.random() for each in own[:2]], own[2].rand()] == expected


@pytest.mark.parametrize(
    "draw",
    [
        random.random,
        lambda: random.gauss(0, 1),  # which leaves a second number
        lambda: [random.random() for _ in range(400)],  # past the end of its table
        lambda: random.seed(5),
    ],
)
def test_a_draw_from_python_is_seen_and_put_back(draw):
    for _ in range(3):
        state = RandomState()
        assert state.moved_generators() == []
        draw()
        assert state.moved_generators() == ["Python"]
        expected = [random.gauss(0, 1), random.random()]
        state.restore()
        assert state.moved_generators() == []
        draw()
        assert [random.gauss(0, 1), random.random()] == expected
        state.restore()


@pytest.mark.parametrize(
    "draw",
    [
        np.random.rand,
        np.random.randn,  # which leaves a second number, to be drawn without another look
        lambda: np.random.randn(2),  # noqa: NPY002  # the global one
        lambda: np.random.rand(700),  # noqa: NPY002  # past the end of its table
        lambda: np.random.seed(5),  # noqa: NPY002  # the global one
    ],
)
def test_a_draw_from_numpy_is_seen_and_put_back(draw):
    for _ in range(3):
        state = RandomState()
        assert state.moved_generators() == []
        draw()
        assert state.moved_generators() == ["NumPy"]
        expected = [np.random.randn(), np.random.rand()]  # noqa: NPY002  # the global one
        state.restore()
        assert state.moved_generators() == []
        draw()
        assert [np.random.randn(), np.random.rand()] == expected  # noqa: NPY002  # likewise
        state.restore()


def test_checks_take_turns_and_a_check_may_check():
    inside: list[int] = []
    most: list[int] = []

    def sine(x):
        inside.append(1)
        most.append(len(inside))
        nested = gradproof.check(gradproof.by_hand(np.sin, vjp=cosine), (X,), seed=1)
        inside.pop()
        return np.sin(x) if nested else x

    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(
                gradproof.check(gradproof.by_hand(sine, vjp=cosine), (X,), seed=0).verdict
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [gradproof.Verdict.PASSED] * 4
    assert max(most) == 1


def test_everything_is_put_back_and_an_error_of_that_is_raised():
    told = []

    def broken():
        told.append("broken")
        raise ValueError("cannot be put back")

    with (
        pytest.raises(ValueError, match="put back"),
        restored(lambda: told.append("first"), broken),
    ):
        pass
    assert told == ["broken", "first"]


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, as in a program that has not said otherwise."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, handler)


def test_an_interrupt_waits_until_what_was_put_in_place_is_put_back(interruptible):
    place = ["theirs"]
    told = []

    def back():
        signal.raise_signal(signal.SIGINT)
        place[0] = "theirs"

    @guard_face
    def face():
        with restored(back):
            place[0] = "ours"
        told.append("after the block")

    with pytest.raises(KeyboardInterrupt):
        face()
    assert (place, told) == (["theirs"], [])


def test_a_block_that_is_left_without_its_end_is_ended_by_the_check():
    place, left = ["theirs"], []

    def block():
        with restored(lambda: place.__setitem__(0, "theirs")):
            place[0] = "ours"
            yield

    @guard_face
    def face():
        left.append(block())
        next(left[0])
        assert place == ["ours"]

    face()
    assert place == ["theirs"]


def test_an_interrupt_while_states_are_put_back_waits(interruptible, monkeypatch):
    monkeypatch.setattr(_guard, "_contexts", {})
    told = []

    @contextmanager
    def first():
        yield
        told.append("first")
        signal.raise_signal(signal.SIGINT)

    @contextmanager
    def second():
        yield
        told.append("second")

    @guard_face
    def face():
        keep_context("second", second)
        keep_context("first", first)

    with pytest.raises(KeyboardInterrupt):
        face()
    assert told == ["first", "second"]


def test_an_interrupt_in_the_function_is_raised_there(interruptible):
    told = []

    def sine(x):
        signal.raise_signal(signal.SIGINT)
        told.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        gradproof.check(gradproof.by_hand(sine, vjp=cosine), (X,), seed=0)
    assert told == []


def test_sixteen_threads_get_right_verdicts():
    def wrong(x, v):
        return 1.01 * cosine(x, v)

    found = {}

    def check(number):
        vjp = wrong if number % 2 else cosine
        found[number] = gradproof.check(
            gradproof.by_hand(np.sin, vjp=vjp), (X,), seed=number
        ).verdict

    threads = [threading.Thread(target=check, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: gradproof.Verdict.FAILED if k % 2 else PASSED for k in range(16)}


def test_warning_filters_of_an_interrupted_block_are_put_back():
    before, block = list(warnings.filters), warnings.catch_warnings()

    @guard_face
    def face():
        block.__enter__()
        warnings.simplefilter("ignore")

    filters = warnings.filters
    face()
    assert warnings.filters is filters
    assert warnings.filters == before
