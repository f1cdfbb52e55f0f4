"""The phrases by which people's tests recognise PyTorch's gradcheck, made from our findings.

A message begins with one such phrase per kind of finding, in the order in which PyTorch would have
raised them, and goes on with the report: where, how much, how much was allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from gradproof._data.records import Finding, Report
from gradproof._data.visible import escape_invisible
from gradproof._maps.contract import DifferentiableMap
from gradproof.errors import DerivativeError


class GradcheckError(TorchGradcheckError, DerivativeError):
    """A derivative was refuted; `report` says where and by how much.

    Both PyTorch's `GradcheckError` (a RuntimeError) and our `DerivativeError` (an AssertionError).
    """

    __module__ = "gradproof.torch"  # where users find it, and what tracebacks print

    def __init__(self, message: str, report: Report | None = None) -> None:
        DerivativeError.__init__(self, message, report)


def pytorch_phrases(findings: Sequence[Finding], map_: DifferentiableMap, nondet_tol: float) -> str:
    """PyTorch's phrases for findings, each once.

    Args:
        findings: in the order of the phrases.
        map_: what was checked; its codomain tells which outputs are detached.
        nondet_tol: quoted in the phrase about determinism.
    """
    phrases: dict[tuple[str, str, str], str] = {}
    for finding in findings:
        kind = finding.check, finding.kind, _part(finding)
        phrases.setdefault(kind, _phrase(finding, map_, nondet_tol))
    return "\n".join(map(escape_invisible, dict.fromkeys(phrases.values())))


def _phrase(finding: Finding, map_: DifferentiableMap, nondet_tol: float) -> str:
    """PyTorch's phrase for one finding, or the finding's own sentence where it has none."""
    if finding.kind == "nondeterministic":
        return (
            "Backward is not reentrant, i.e., running backward with same input and "
            "grad_output multiple times gives different values. The tolerance for "
            f"nondeterminism was {nondet_tol}."
        )
    if finding.kind == "raised" and finding.check != "batched":
        return finding.message
    match finding.check:
        case "backward" | "sparse" | "forward":
            return _mismatch_phrase(finding, map_)
        case "linearity" if finding.output is None:  # PyTorch has none for forward mode
            return "backward not multiplied by grad_output"
        case "missing_grad_output":
            return _undefined_phrase(finding)
        case "grad_metadata":
            return _TRAITS[finding.kind].format(detail=finding.message)
        case "batched" | "batched_forward":
            return _batched_phrase(finding, map_)
    return finding.message


def _mismatch_phrase(finding: Finding, map_: DifferentiableMap) -> str:
    if finding.output and map_.codomain.slots[finding.output.slot].detached:
        return "Numerical gradient for function expected to be zero"
    forward, part = finding.check == "forward", _part(finding)
    side, how = ("inputs", " computed with forward mode") if forward else ("outputs", "")
    word = "imaginary" if part == "imag" else part
    prefix = f"While considering the {word} part of complex {side} only, " if part else ""
    output, slot = _indices(finding, map_)
    return f"{prefix}Jacobian{how} mismatch for output {output} with respect to input {slot},"


def _batched_phrase(finding: Finding, map_: DifferentiableMap) -> str:
    words = "gradcheck or gradgradcheck failed while testing batched gradient computation"
    if finding.check == "batched_forward":
        words = "gradcheck failed while testing batched gradient computation with forward-mode AD"
    if finding.input is None and finding.output is None:
        return f"While computing batched gradients, got: {finding.message}\n\n{words}."
    output, slot = _indices(finding, map_)
    return f"For output {output} and input {slot}:\n\n{words}."


def _indices(finding: Finding, map_: DifferentiableMap) -> tuple[int, int]:
    """PyTorch counts the outputs that require grad, and the inputs that do."""
    slots = map_.codomain.slots[: finding.output.slot if finding.output else 0]
    output = sum(not slot.detached for slot in slots)
    return output, finding.input.slot if finding.input else 0


_TRAITS = {
    "dtype": "Gradient has dtype mismatch; grad is incorrect type",  # check_grad_dtypes, or not
    "shape": "Analytical gradient has incorrect size; grad is incorrect size",
    "layout": "grad is incorrect layout ({detail})",
    "device": "grad is incorrect device",
    "sparse_dim": "grad is sparse tensor, but has incorrect sparse_dim ({detail})",
    "dense_dim": "grad is sparse tensor, but has incorrect dense_dim ({detail})",
}


# PyTorch's gradcheck stops at the first mistake that it meets, and meets them in this order.
_CHECKS_IN_ORDER = (
    *("grad_metadata", "determinism", "backward", "forward", "batched_forward", "batched"),
    *("linearity", "missing_grad_output", "sparse", "forward_vs_backward", "memory_layout"),
    "side_effects",
)


def findings_in_order(findings: Iterable[Finding]) -> list[Finding]:
    """In the order in which PyTorch would meet them; imaginary parts come before real ones."""

    def key(finding: Finding) -> tuple[int, bool]:
        return _CHECKS_IN_ORDER.index(finding.check), _part(finding) != "imag"

    return sorted(findings, key=key)


def _part(finding: Finding) -> str:
    """The part of a complex number that decides PyTorch's phrase: inputs' in forward mode."""
    place = finding.input if finding.check == "forward" else finding.output
    return place.part if place else ""


def _undefined_phrase(finding: Finding) -> str:
    if "raised" in finding.kind:
        return "Expected backward function to handle undefined output grads."
    if "tangent" in finding.kind:
        output = finding.output.slot if finding.output else 0
        return (
            f"Mismatch in tangent values for output with index: {output} when an input has an "
            "undefined tangent value."
        )
    return (
        "Expected all input grads to be undefined or zero when all output grads are undefined or "
        "zero."
    )
