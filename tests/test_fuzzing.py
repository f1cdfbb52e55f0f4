"""What the fuzzed tests draw is the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_DRAWN = """
from hypothesis import given
from fuzzing import Values, fuzz

def sine(x): return x
def cosine(x): return x

V = Values({"array": 0.5, "text": "a"}, (sine, cosine), ["sine"])
drawn = []

@fuzz(60)
@given(V.calls, V.points, V.options(**{name: [1, 2, 3] for name in "abcdefgh"}))
def test(fn, point, options):
    drawn.append((fn, point, options))

test()
print(drawn)
"""


def _drawn(folder, hash_seed, **environment):
    paths = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    found = subprocess.run(
        [sys.executable, "-c", _DRAWN],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,  # where Hypothesis keeps what it knows
        env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": hash_seed, **environment},
    )
    return found.stdout


def test_the_draws_of_a_fuzzed_test_do_not_depend_on_the_hash_of_words(tmp_path):
    first = _drawn(tmp_path, "1")
    assert first.count("{") > 60
    assert first == _drawn(tmp_path, "2")


def test_more_can_be_drawn(tmp_path):
    more = _drawn(tmp_path, "1", GRADPROOF_FUZZ="3")
    assert more.count("{") > 2 * _drawn(tmp_path, "1").count("{")
