"""The backward against differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gradproof._data.records import CheckResult
from gradproof._data.settings import Settings
from gradproof._judge.claims import Backward, Claim, Forward
from gradproof._maps.contract import DifferentiableMap
from gradproof._verdict import second as _second
from gradproof._verdict.verify import verify


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J^T v as claimed by the backward has the entries that differences measure."""
    return verify(Backward(map_, settings))


# Forward mode against differences.


def check_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """J u as claimed by forward mode has the entries that differences measure."""
    return verify(Forward(map_, settings))


# Derivatives of derivatives, in every pair of modes, each judged like any other derivative.
#
# The backward (x, v) -> J(x)^T v and forward mode (x, u) -> J(x) u are maps themselves. Each has
# a derivative by reverse and by forward mode, and differences of its values measure what that is.


@dataclass(frozen=True)
class DoubleBackward:
    """Evidence: the derivative of a backward by itself."""

    inputs: int  # how many of its inputs are the function's: the first. The others are cotangents.
    of: object  # evidence of what is wrong with it


def check_second_order(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The double backward has the entries that differences of the backward measure."""
    name = "second_order"
    derivative = _second.of_backward(map_, settings)
    another = _second.of_another(name, map_, settings)
    found = verify(Backward(derivative, settings), name, another)
    return replace(found, evidence=DoubleBackward(len(map_.domain.slots), found.evidence))


_Derivative = Callable[[DifferentiableMap, Settings], DifferentiableMap]

# Check of a pair of modes -> the mode that differences measure, and how it is differentiated.
PAIRS: dict[str, tuple[_Derivative, type[Claim]]] = {
    "second_order": (_second.of_backward, Backward),
    "forward_over_reverse": (_second.of_backward, Forward),
    "reverse_over_forward": (_second.of_forward, Backward),
    "forward_over_forward": (_second.of_forward, Forward),
}


def check_pair(name: str, map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """One mode of the other has the entries that differences of that other one measure."""
    made, mode = PAIRS[name]
    return verify(mode(made(map_, settings), settings), name)


def check_third(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The backward of the double backward has the entries that differences of it measure."""
    name = "third_order"
    second = _second.of_backward(map_, settings)
    third = _second.of_backward(second, settings)
    return verify(Backward(third, settings), name)
