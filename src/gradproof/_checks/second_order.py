"""Derivatives of derivatives, in every pair of modes, each judged like any other derivative.

The backward (x, v) -> J(x)^T v and forward mode (x, u) -> J(x) u are maps themselves. Each has a
derivative by reverse and by forward mode, and differences of its values measure what that is.
"""

from __future__ import annotations

from gradproof._checks import _modes, _second
from gradproof._checks._claims import Backward, Forward
from gradproof._map import DifferentiableMap
from gradproof._records import CheckResult
from gradproof._settings import Settings


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The double backward has the entries that differences of the backward measure."""
    name = "second_order"
    derivative = _second.of_backward(map_, settings)
    return _second.verified(name, derivative, settings, Backward, _modes.backward)


def check_forward_over_reverse(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Forward mode of the backward has the entries that differences of the backward measure."""
    name = "forward_over_reverse"
    derivative = _second.of_backward(map_, settings)
    return _second.verified(name, derivative, settings, Forward, _modes.forward)


def check_reverse_over_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The backward of forward mode has the entries that differences of forward mode measure."""
    name = "reverse_over_forward"
    derivative = _second.of_forward(map_, settings)
    return _second.verified(name, derivative, settings, Backward, _modes.backward)


def check_forward_over_forward(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """Forward mode of forward mode has the entries that differences of forward mode measure."""
    name = "forward_over_forward"
    derivative = _second.of_forward(map_, settings)
    return _second.verified(name, derivative, settings, Forward, _modes.forward)


def check_third(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The backward of the double backward has the entries that differences of it measure."""
    name = "third_order"
    second = _second.of_backward(map_, settings)
    third = _second.of_backward(second, settings)
    return _second.verified(name, third, settings, Backward, _modes.backward)
