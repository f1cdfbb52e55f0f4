"""Checks take turns, and leave what they did not make: random states, threads, interrupts."""

from __future__ import annotations

import random
import signal
from concurrent.futures import ThreadPoolExecutor

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


# Threads and processes ---------------------------------------------------------------------------


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
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda seed: gradproof.check(hand, (X,), seed=seed), range(4)))
    assert {report.verdict for report in found} == {Verdict.PASSED}
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
