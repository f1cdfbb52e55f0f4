"""The phrases by which people's tests recognise PyTorch's gradcheck, made from our findings.

A message begins with one such phrase per kind of finding, in the order in which PyTorch would have
raised them, and goes on with the report: where, how much, how much was allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

from gradproof._data.checks import LAST, row
from gradproof._data.records import Finding, Report
from gradproof._data.visible import escape_invisible
from gradproof._maps.contract import DifferentiableMap
from gradproof.errors import DerivativeError

BATCHED = "gradcheck or gradgradcheck failed while testing batched gradient computation"
BATCHED_FORWARD = "gradcheck failed while testing batched gradient computation with forward-mode AD"


class GradcheckError(TorchGradcheckError, DerivativeError):
    """A derivative was refuted; `report` says where and by how much.

    Both PyTorch's `GradcheckError` (a RuntimeError) and our `DerivativeError` (an AssertionError).
    """

    __module__ = "gradproof.torch"  # where users find it, and what tracebacks print

    def __init__(self, message: str, report: Report | None = None) -> None:
        DerivativeError.__init__(self, message, report)


@dataclasses.dataclass(frozen=True)
class Phrases:
    """Finds PyTorch's phrase for a finding."""

    map: DifferentiableMap  # what was checked; tells which outputs are detached
    nondet_tol: float  # quoted in the phrase about determinism

    def phrases_of(self, report: Report) -> str:
        """All phrases that apply, each once."""
        heads: dict[tuple[str, str, str], str] = {}
        for finding in findings_in_order(report.findings):
            heads.setdefault((finding.check, finding.kind, _part(finding)), self.phrase(finding))
        return "\n".join(map(escape_invisible, dict.fromkeys(heads.values())))

    def phrase(self, finding: Finding) -> str:
        """PyTorch's phrase for one finding, or the finding's own sentence where it has none."""
        if finding.kind == "nondeterministic":
            return (
                "Backward is not reentrant, i.e., running backward with same input and "
                "grad_output multiple times gives different values. The tolerance for "
                f"nondeterminism was {self.nondet_tol}."
            )
        if finding.kind == "raised" and finding.check != "batched":
            return finding.message
        match finding.check:
            case "backward" | "sparse" | "forward":
                return self._mismatch_phrase(finding)
            case "linearity" if finding.output is None:  # PyTorch has none for forward mode
                return "backward not multiplied by grad_output"
            case "missing_grad_output":
                return _undefined_phrase(finding)
            case "grad_metadata":
                return _TRAITS[finding.kind].format(detail=finding.message)
            case "batched" | "batched_forward":
                return self._batched_phrase(finding)
        return finding.message

    def _mismatch_phrase(self, finding: Finding) -> str:
        if finding.output and self.map.codomain.slots[finding.output.slot].detached:
            return "Numerical gradient for function expected to be zero"
        forward, part = finding.check == "forward", _part(finding)
        side, how = ("inputs", " computed with forward mode") if forward else ("outputs", "")
        word = "imaginary" if part == "imag" else part
        prefix = f"While considering the {word} part of complex {side} only, "
        output, slot = self._indices(finding)
        return (
            f"{prefix if part else ''}Jacobian{how} mismatch for output {output} "
            f"with respect to input {slot},"
        )

    def _batched_phrase(self, finding: Finding) -> str:
        words = BATCHED_FORWARD if finding.check == "batched_forward" else BATCHED
        if finding.input is None and finding.output is None:
            return f"While computing batched gradients, got: {finding.message}\n\n{words}."
        output, slot = self._indices(finding)
        return f"For output {output} and input {slot}:\n\n{words}."

    def _indices(self, finding: Finding) -> tuple[int, int]:
        """PyTorch counts the outputs that require grad, and the inputs that do."""
        slots = self.map.codomain.slots[: finding.output.slot if finding.output else 0]
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


def findings_in_order(findings: Iterable[Finding]) -> list[Finding]:
    """In the order in which PyTorch, which stops at the first, would meet them.

    Imaginary parts come before real ones.
    """

    def key(finding: Finding) -> tuple[float, bool]:
        check = row(finding.check)
        return check.rank if check else LAST, _part(finding) != "imag"

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
