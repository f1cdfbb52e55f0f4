"""Functions and cases of surveys, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from gradproof import Case, by_hand


def right(x, v):
    return v * np.cos(x)


def wrong(x, v):
    return 1.1 * v * np.cos(x)


def raises(x):
    raise RuntimeError("no such luck")


def leaves(x):
    sys.exit(0)


def interrupts(x):
    raise KeyboardInterrupt


def dies(x):
    os.kill(os.getpid(), signal.SIGKILL)


def waits(x, folder=""):
    """Write the number of its process to a file, and wait until it is killed, the first time."""
    file = Path(folder, "process")
    if not file.exists():
        file.with_suffix(".part").write_text(str(os.getpid()))
        file.with_suffix(".part").rename(file)
        time.sleep(60)
    return np.sin(x)


def point(size=3):
    return np.linspace(0.1, 1.0, size)


def sine_case(vjp=right, name="", **options):
    return Case(by_hand(np.sin, vjp=vjp), point(), {"seed": 3, **options}, name)


def case_of(function):
    return Case(by_hand(function, vjp=right), point(), {"seed": 3})
