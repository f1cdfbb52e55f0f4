"""What a second function says beside its derivative: its value, and which identities it keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gradproof._checks import extremes
from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array
from gradproof._judge.claims import Backward, Mode
from gradproof._judge.outcome import failed, inconclusive, passed, skipped
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure.evaluate import centre
from gradproof._verdict import low_precision, oracles


class _Value(Mode):
    """The value of a function, as few bits are asked for a derivative."""

    def pulled(self, map_: DifferentiableMap) -> Array:
        return centre(map_).value[None, :]


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """F(x) is that of the reference, as far as honest rounding goes."""
    name, of = "value", map_.codomain
    if settings.reference is None:
        return skipped(name, "no reference was given")
    mode = _Value(name, "value of", [map_.point], of, columnwise=True)
    oracle = oracles.reference(map_, settings)
    said = low_precision.compare(map_, oracle, settings, mode)
    notes = (said.note,) if said.note else ()
    if said.findings:
        told = f"{said.count} off by more than rounding explains, against {oracle.name}"
        found = failed(name, told, said.findings)
    elif said.unresolved:
        found = inconclusive(name, said.unresolved)
    else:
        told = f"it agrees with {oracle.name} to {said.resolution:.0e}"
        found = passed(name, told, resolution=said.resolution)
    return replace(found, oracle=oracle.name, statistics=said.statistics, notes=notes)


def identity(
    check_: Callable[[DifferentiableMap, Settings], CheckResult],
    map_: DifferentiableMap,
    settings: Settings,
    found: CheckResult,
) -> CheckResult:
    """A failed identity of derivatives, where the reference is a definition.

    It is none where the reference does not keep it either. What is defined may then be another
    function of the cotangent for large and for small ones, as a gradient that is clipped: what is
    claimed of those is held against it instead.
    """
    for oracle in oracles.of(map_, settings).trusted:
        own = check_(oracle.map, replace(oracle.settings, trusted=False, reference=None))
        if own.verdict is not Verdict.FAILED:
            return found
        parts, mode = extremes.parts_of(map_, settings), Backward(map_, settings).in_few_bits()
        for probe in map(parts.split.part, (0, 1)):
            asked = replace(mode, check=found.name, probes=[probe])
            said = low_precision.compare(map_, oracle, settings, asked)
            if said.findings:
                told = f"off for cotangents of {parts.split.words}, against {oracle.name}"
                return failed(found.name, told, said.findings)
        told = f"as {oracle.name}, which is the definition, for cotangents of {parts.split.words}"
        return passed(found.name, f"{told}; neither keeps the identity: {own.summary}")
    return found
