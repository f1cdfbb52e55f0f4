"""The function and its backward change nothing that is not theirs."""

from __future__ import annotations

import contextlib

from gradproof._checks.agreement import repeat_findings
from gradproof._checks.outcome import failed_check, passed_check
from gradproof._data.records import CheckResult, Finding
from gradproof._data.space import KEPT
from gradproof._maps.contract import Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.steps import NEIGHBOUR

_NAME = "side_effects"

# Backwards that must give the same gradient for an effect on them alone to be none: one that draws
# and goes another way in a fifth of its runs shows in 97 % of 16; a work space that is written to
# shows in the next.
_RUNS = {"drawn": 16, "saved": 2}


def check(measurements: Measurements) -> CheckResult:
    """Cotangent, inputs, saved arrays, stored gradients and global state stay as they were.

    Random numbers that a backward draws, and saved arrays that it writes to, are a fault where
    further backwards give another gradient.
    """
    _use_memory_of_results_again(measurements)
    findings: list[Finding] = []
    notes: list[str] = []
    for kind, sentence in dict.fromkeys(measurements.map.side_effects(measurements.cotangent)):
        consequence = _consequence(measurements, kind) if kind in _RUNS else ""
        if kind in _RUNS and not consequence:
            notes.append(f"{sentence}; {_RUNS[kind]} runs gave the same gradient")
        else:
            findings.append(Finding(_NAME, sentence + consequence, kind))
    if findings:
        summary = "something was changed that should not be"
        if all(finding.kind == "primal" for finding in findings):
            summary = "the function has another value where it is differentiated"
        return failed_check(_NAME, summary, tuple(findings), notes=tuple(notes))
    what = "inputs and cotangent" if notes else "inputs, cotangent, saved arrays and global state"
    return passed_check(_NAME, f"{what} are left as they were", notes=tuple(notes))


def _use_memory_of_results_again(measurements: Measurements) -> None:
    """Make calls that write into the memory of earlier results, where a function hands out its own.

    The results are the first value and the first gradient. Of long vectors no copies are kept, and
    nothing is asked.
    """
    map_, v = measurements.map, measurements.cotangent
    if max(map_.domain.size, map_.codomain.size) > KEPT:
        return
    x = map_.point + NEIGHBOUR * measurements.tangent
    _ = measurements.function.centre  # the first value
    with contextlib.suppress(UsersError), users_errors():  # x may be outside the domain of F
        map_.value(x)
    with contextlib.suppress(Unsupported, UsersError), users_errors():  # the call may be spoilt
        if measurements.gradient.size:  # the first gradient, before one of another cotangent
            _ = measurements.backward.constant_product
    with contextlib.suppress(Unsupported, UsersError), users_errors():
        map_.products_of_overtaken_call(x, v)


def _consequence(measurements: Measurements, kind: str) -> str:
    """What an effect on the backward alone does to further backwards; "" where it is nothing."""
    products = measurements.backward
    try:
        with users_errors():
            gradients = [products.ask(products.probe) for _ in range(_RUNS[kind])]
    except UsersError:  # PyTorch's, of what was written into since it was saved
        return ", and a second backward of the same call raises"
    if not any(repeat_findings(_NAME, measurements, each) for each in gradients):
        return ""
    if kind == "drawn":
        return ", and gives other gradients each time"
    return ", and a second backward of the same call gives another gradient"
