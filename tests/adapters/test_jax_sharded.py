"""JAX functions that span four devices of the CPU: the museum of mistakes across ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

pytestmark = pytest.mark.skipif(
    not hasattr(jax, "shard_map"), reason="shard_map of JAX 0.6 takes other arguments"
)

TESTS = Path(__file__).parent.parent
PROGRAM = TESTS / "exhibits" / "sharded.py"
QUICK = "a missing psum"


def said_of(*names: str) -> dict[tuple[str, str], Any]:
    """(exhibit, "wrong" or "right") -> verdict, checks that fail, places, text."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert not done.returncode, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    return {(name, which): rest for name, which, *rest in rows}


def require_found(said: dict[tuple[str, str], Any], name: str) -> None:
    verdict, failing, places, text = said[name, "wrong"]
    assert verdict == "failed", text
    assert "backward" in failing
    assert all(re.fullmatch(r"x\[\d+\]", place) for place in places), text
    verdict, _, _, text = said[name, "right"]
    assert verdict == "passed", text


def test_a_missing_psum_is_found_across_devices():
    require_found(said_of(f"{QUICK}/wrong", f"{QUICK}/right"), QUICK)


@pytest.mark.slow
def test_every_mistake_across_devices_is_found_and_no_right_twin_is_accused():
    said = said_of()
    assert said
    for name in {name for name, _ in said}:
        require_found(said, name)


@pytest.mark.slow
def test_every_mode_and_second_derivatives_are_asked_across_devices():
    verdict, _, _, text = said_of("a psum/right")["a psum", "right"]
    assert verdict == "passed", text
    asked = "forward", "forward_vs_backward", "second_order"
    assert all(re.search(rf"^  {name} +passed", text, re.MULTILINE) for name in asked), text
