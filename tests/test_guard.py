"""Checks take turns, and leave what they did not make: random states, threads, interrupts."""

from __future__ import annotations

import random
import signal
import threading

import numpy as np
import pytest

import gradproof
from gradproof import Verdict

X = np.array([0.5, 1.5])


def cosine(x, v):
    return v * np.cos(x)


DRAWS = [
    random.random,
    lambda: random.gauss(0, 1),  # which leaves a second number
    lambda: [random.random() for _ in range(400)],  # past the end of its table
    lambda: random.seed(5),
    np.random.randn,  # which leaves a second number
    lambda: np.random.rand(700),  # the global one, past the end of its table  # noqa: NPY002
    lambda: np.random.seed(5),  # the global one  # noqa: NPY002
]


@pytest.mark.parametrize("draw", DRAWS, ids=range(len(DRAWS)))
def test_global_random_states_are_what_they_were_whatever_the_function_draws(draw):
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    def sine(x):
        draw()
        return np.sin(x)

    report = gradproof.check(gradproof.by_hand(sine, vjp=cosine), (X,), seed=0)
    assert report["backward"].verdict is Verdict.PASSED, str(report)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_generators_among_the_arguments_are_put_back():
    def made():
        return [np.random.default_rng(0), random.Random(0), np.random.RandomState(0)]

    def sine(x, *generators):
        return np.sin(x) + 0 * sum(each.random() for each in generators[:2])

    own = made()
    gradproof.check(
        gradproof.by_hand(sine, vjp=lambda x, v, *more: cosine(x, v), args=tuple(own)), (X,), seed=0
    )
    assert [each.random() for each in own[:2]] == [each.random() for each in made()[:2]]
    assert own[2].rand() == made()[2].rand()


# Threads and processes ---------------------------------------------------------------------------


def verdicts_of_threads(check, count):
    """What `check` of each number returns, each in a thread of its own."""
    found = {}
    threads = [
        threading.Thread(target=lambda k=k: found.__setitem__(k, check(k))) for k in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_checks_take_turns_and_a_check_may_check():
    inside: list[int] = []
    most: list[int] = []

    def sine(x):
        inside.append(1)
        most.append(len(inside))
        nested = gradproof.check(gradproof.by_hand(np.sin, vjp=cosine), (X,), seed=1)
        inside.pop()
        return np.sin(x) if nested else x

    hand = gradproof.by_hand(sine, vjp=cosine)
    found = verdicts_of_threads(lambda k: gradproof.check(hand, (X,), seed=0).verdict, 4)
    assert set(found.values()) == {Verdict.PASSED}
    assert max(most) == 1


# Interrupts --------------------------------------------------------------------------------------


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt, as in a program that has not said otherwise."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("call", [0, 3, 12])
def test_an_interrupt_in_the_function_is_raised_there_and_states_are_put_back(interruptible, call):
    calls, reached = [], []
    before = random.getstate()

    def sine(x):
        random.random()
        calls.append(1)
        if len(calls) > call:
            signal.raise_signal(signal.SIGINT)
            reached.append("not reached")
        return np.sin(x)

    with pytest.raises(KeyboardInterrupt):
        gradproof.check(gradproof.by_hand(sine, vjp=cosine), (X,), seed=0)
    assert reached == []
    assert random.getstate() == before
