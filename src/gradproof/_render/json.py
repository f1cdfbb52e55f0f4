"""The report as JSON, and back: exact, and portable where numbers are not finite.

Schema, version 1: an object with `format_version`, `verdict` (for readers; derived, so ignored by
`load`) and the attributes of `Report`. Floats are JSON numbers, or one of the strings "nan",
"inf", "-inf". A place is an object of `Place`'s attributes, or null.
"""

from __future__ import annotations

import json
import math
from typing import Any

from gradproof._records import CheckResult, Finding, Kink, Place, Report, Statistic, Verdict
from gradproof.errors import UsageError

FORMAT_VERSION = 1


def dump(report: Report) -> str:
    """The report as a JSON text. `load(dump(report))` equals it."""
    document = {
        "format_version": FORMAT_VERSION,
        "target": report.target,
        "verdict": report.verdict.value,
        "inputs": list(report.inputs),
        "outputs": list(report.outputs),
        "calls": _calls_out(report.calls),
        "seconds": _float_out(report.seconds),
        "seed": int(report.seed),
        "checks": [_check_out(result) for result in report.checks],
    }
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)


def load(text: str) -> Report:
    """The report that `dump` wrote. UsageError if the text is none, or of another version."""
    try:
        document = json.loads(text)
        version = document["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError("text: expected a report written by gradproof as JSON") from error
    if version != FORMAT_VERSION:
        raise UsageError(f"text: expected format_version {FORMAT_VERSION}, got {version!r}")
    try:
        return _report_in(document)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"text: not a report of format_version {version}: {error!r}") from error


def _report_in(document: dict[str, Any]) -> Report:
    return Report(
        target=document["target"],
        inputs=tuple(document["inputs"]),
        outputs=tuple(document["outputs"]),
        checks=tuple(_check_in(item) for item in document["checks"]),
        calls=document["calls"],
        seconds=float(document["seconds"]),
        seed=document["seed"],
    )


def _check_out(result: CheckResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "verdict": result.verdict.value,
        "summary": result.summary,
        "findings": [_finding_out(finding) for finding in result.findings],
        "resolution": _float_out(result.resolution),
        "calls": _calls_out(result.calls),
        "seconds": _float_out(result.seconds),
        "notes": list(result.notes),
        "kinks": [_kink_out(kink) for kink in result.kinks],
        "oracle": result.oracle,
        "statistics": [_statistic_out(row) for row in result.statistics],
    }


def _check_in(item: dict[str, Any]) -> CheckResult:
    return CheckResult(
        name=item["name"],
        verdict=Verdict(item["verdict"]),
        summary=item["summary"],
        findings=tuple(_finding_in(finding) for finding in item["findings"]),
        resolution=float(item["resolution"]),
        calls=item["calls"],
        seconds=float(item["seconds"]),
        notes=tuple(item["notes"]),
        kinks=tuple(_kink_in(kink) for kink in item.get("kinks", ())),  # absent in older reports
        oracle=item.get("oracle", ""),
        statistics=tuple(_statistic_in(row) for row in item.get("statistics", ())),
    )


def _finding_out(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "message": finding.message,
        "kind": finding.kind,
        "input": _place_out(finding.input),
        "output": _place_out(finding.output),
        "claimed": _float_out(finding.claimed),
        "measured": _float_out(finding.measured),
        "error": _float_out(finding.error),
        "allowed": _float_out(finding.allowed),
    }


def _finding_in(item: dict[str, Any]) -> Finding:
    return Finding(
        check=item["check"],
        message=item["message"],
        kind=item["kind"],
        input=_place_in(item["input"]),
        output=_place_in(item["output"]),
        claimed=float(item["claimed"]),
        measured=float(item["measured"]),
        error=float(item["error"]),
        allowed=float(item["allowed"]),
    )


def _kink_out(kink: Kink) -> dict[str, Any]:
    return {
        "kind": kink.kind,
        "output": _place_out(kink.output),
        "input": _place_out(kink.input),
        "left": _float_out(kink.left),
        "right": _float_out(kink.right),
        "claimed": _float_out(kink.claimed),
        "within": bool(kink.within),
        "message": kink.message,
    }


def _kink_in(item: dict[str, Any]) -> Kink:
    output = _place_in(item["output"])
    if output is None:
        raise ValueError("a kink has an output")
    return Kink(
        kind=item["kind"],
        output=output,
        input=_place_in(item["input"]),
        left=float(item["left"]),
        right=float(item["right"]),
        claimed=float(item["claimed"]),
        within=item["within"],
        message=item["message"],
    )


def _statistic_out(row: Statistic) -> dict[str, Any]:
    return {
        "oracle": row.oracle,
        "array": row.array,
        "name": row.name,
        "value": _float_out(row.value),
        "allowed": _float_out(row.allowed),
        "eps": _float_out(row.eps),
    }


def _statistic_in(item: dict[str, Any]) -> Statistic:
    numbers = {name: float(item[name]) for name in ("value", "allowed", "eps")}
    return Statistic(item["oracle"], item["array"], item["name"], **numbers)


def _place_out(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    index = [int(i) for i in place.index]
    return {"name": place.name, "slot": int(place.slot), "index": index, "part": place.part}


def _place_in(item: dict[str, Any] | None) -> Place | None:
    if item is None:
        return None
    return Place(item["name"], item["slot"], tuple(item["index"]), item["part"])


def _calls_out(calls: Any) -> dict[str, int]:
    return {kind: int(count) for kind, count in calls.items()}


def _float_out(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))
