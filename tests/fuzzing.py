"""Fuzzing: values of every kind, and what may come of them.

A report, an error of ours, or what the user's function raised; nothing else, and never what arose
inside of gradproof or of a framework without the name of the argument that was wrong.
"""

from __future__ import annotations

import contextlib
import functools
import os
import reprlib
import traceback
import warnings

import hypothesis
from hypothesis import strategies as st

from gradproof.errors import DerivativeError, UsageError


class TheirError(Exception):
    """What a function of the user's raises."""


# Functions that no face can make sense of.


def raises(*args, **kwargs):
    raise TheirError("no such luck")


def nothing(*args, **kwargs):
    return None


def text(*args, **kwargs):
    return "text"


def ring(x, *args, **kwargs):
    made = [x]
    made.append(made)
    return made


def deep(x, *args, **kwargs):
    made = x
    for _ in range(3000):
        made = (made,)
    return made


class Hostile:
    """An object of which nothing can be asked."""

    def __repr__(self):
        raise TheirError("repr")

    def __bool__(self):
        raise TheirError("bool")

    __iter__ = __len__ = __eq__ = __float__ = __repr__
    __hash__ = object.__hash__


RING = [1.0]
RING.append(RING)
OTHERS = {
    "None": None,
    "True": True,
    "0": 0,
    "2": 2,
    "-1": -1,
    "imaginary": 1j,
    "huge": 10**5000,
    "text": "text",
    "long text": "x" * 10**5,
    "bytes": b"bytes",
    "hostile": Hostile(),
    "buffer": memoryview(b"abc"),
    "range": range(3),
    "class": object,
    "lambda": lambda: None,
    "ring": RING,
    "deep": functools.reduce(lambda inner, _: [inner], range(2000), 1.0),
    "backward": "backward",
    "native": "native",
    "x": "x",
}


def fuzz(examples):
    """So many examples, the same in every run.

    `GRADPROOF_FUZZ=10 pytest -m slow tests/test_fuzzed.py --hypothesis-seed=3` tries ten times as
    many, and others.
    """
    more = os.environ.get("GRADPROOF_FUZZ")
    return hypothesis.settings(
        max_examples=examples * int(more or 1),
        deadline=None,
        derandomize=more is None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


class Likely:
    """A value that an option may well have, with a name that can be printed."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"<{reprlib.repr(self.value)}>"


class Values:
    """Values by names, which Hypothesis can print, where it could not print the values.

    Args:
        points: inputs by name.
        functions: the user's, right and wrong, and what stands for one.
        right: names of a few of these; the first of the points is as likely.
    """

    def __init__(self, points, functions, right):
        self.functions = {each.__name__: each for each in functions}
        self._named = {**points, **OTHERS, **self.functions}
        callables = filter(callable, self._named.values())
        self._callables = {*(getattr(each, "__name__", "") for each in callables), "forward"}
        self.anything = st.recursive(
            st.sampled_from(list(self._named)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3),
                st.lists(inner, max_size=3).map(tuple),
                st.dictionaries(st.sampled_from(["x", "v", "more", 1, None]), inner, max_size=2),
            ),
            max_leaves=4,
        )
        self.points = self.mostly([*[next(iter(points))] * len(points), *points])
        self.calls = self.mostly([*right * len(functions), *self.functions])

    def mostly(self, some):
        """One of these, one time in eight any value, or a container of some."""
        likely = st.sampled_from(list(some))
        return st.integers(0, 7).flatmap(lambda k: self.anything if k == 5 else likely)

    def options(self, **chances):
        """Some options, each a likely value or any."""
        each = {name: self.mostly([Likely(one) for one in some]) for name, some in chances.items()}
        chosen = st.sets(st.sampled_from(sorted(each)), max_size=3)
        # Sorted: a set of words has another order in every process, and so would the draws.
        return chosen.flatmap(
            lambda names: st.fixed_dictionaries({name: each[name] for name in sorted(names)})
        )

    def made(self, drawn):
        """The value of a name, and of all names in containers."""
        if isinstance(drawn, Likely):
            return drawn.value
        if isinstance(drawn, (list, tuple)):
            return type(drawn)(map(self.made, drawn))
        if isinstance(drawn, dict):
            return {key: self.made(value) for key, value in drawn.items()}
        return self._named.get(drawn, drawn) if isinstance(drawn, str) else drawn

    @contextlib.contextmanager
    def lawful(self, *more):
        """Only what is allowed leaves the block."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except (UsageError, DerivativeError, *more) as error:
                sentence = str(error)
                assert sentence.strip()
                if isinstance(error, UsageError):
                    assert "\n" not in sentence, sentence
                    assert len(sentence) < 2000, sentence
            except TheirError:
                pass
            except Exception as error:
                if not self._is_the_users(error):
                    raise

    def _is_the_users(self, error):
        """Whether it arose below a line of the user's function, or in a call it does not take."""
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        ours = [k for k, code in enumerate(codes) if "/gradproof/" in code.co_filename]
        theirs = [k for k, code in enumerate(codes) if self._is_theirs(code)]
        if theirs and max(theirs) > max(ours):
            return True
        called = str(error).partition("()")[0].rpartition(".")[2]
        return isinstance(error, TypeError) and called in self._callables

    def _is_theirs(self, code):
        return any(code is getattr(each, "__code__", None) for each in self.functions.values())
