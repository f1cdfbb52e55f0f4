"""The memory layout of the cotangent changes nothing."""

from __future__ import annotations

from gradproof._checks import _behaviour
from gradproof._checks._claims import constant_gradient, gradient
from gradproof._checks._gradients import differences
from gradproof._checks._outcome import failed, first_line, passed, skipped
from gradproof._map import DifferentiableMap, Unsupported
from gradproof._numerics import measure, probes
from gradproof._records import CheckResult, Finding
from gradproof._settings import Settings

_NAME = "layout"
_WORDS = {
    "transposed": "transposed",
    "gaps": "with gaps",
    "offset": "with an offset",
    "expanded": "expanded",
}


def check(map_: DifferentiableMap, settings: Settings) -> CheckResult:
    """The same cotangent, transposed, with gaps, offset or of stride 0, gives one gradient."""
    layouts = map_.layouts()
    if not layouts:
        return skipped(_NAME, "no output has a second memory layout")
    findings: list[Finding] = []
    # "gaps" has an offset too: that one alone is tried only to name the cause.
    tried = [name for name in layouts if name != "offset" or "gaps" not in layouts]
    for layout in tried:
        findings += _compare(map_, settings, layout)
    if measure.large(map_):
        map_.memo.pop(("gradient", "constant"), None)  # nobody after this needs it
    if any(finding.kind == "layout: gaps" for finding in findings) and "offset" in layouts:
        findings += _compare(map_, settings, "offset")
    if not findings:
        ways = ", ".join(_WORDS[name] for name in tried)
        return passed(_NAME, f"a cotangent in another memory layout gives the same: {ways}")
    wrong = dict.fromkeys(finding.kind.removeprefix("layout: ") for finding in findings)
    ways = ", ".join(_WORDS[name] for name in wrong)
    result = failed(_NAME, f"right for a contiguous cotangent, wrong for: {ways}", tuple(findings))
    return _behaviour.of_layouts(
        result, tuple(wrong), ways if len(wrong) == 1 else "not contiguous"
    )


def _compare(map_: DifferentiableMap, settings: Settings, layout: str) -> tuple[Finding, ...]:
    seed = settings.seed or 0
    if layout == "expanded":
        v = probes.short_constant_cotangent(map_, seed)
        expected = constant_gradient(map_, settings)
    else:
        v, expected = probes.short_cotangent(map_, seed, 0), gradient(map_, settings, 0)
    kind = f"layout: {layout}"
    try:
        got = map_.vjp_layout(v, layout)
    except Unsupported:
        return ()
    except Exception as error:  # whatever the user's backward raises is the finding
        message = (
            f"the backward raised {type(error).__name__} for a cotangent {_WORDS[layout]}, "
            f"though not for the same values, contiguous: {first_line(str(error))}"
        )
        return (Finding(_NAME, message, kind),)
    return differences(
        _NAME,
        map_,
        got,
        expected,
        kind=kind,
        what=f"cotangent {_WORDS[layout]} against the same values, contiguous",
        terms=(expected, gradient(map_, settings, 0)),
        atol=settings.atol,
        most=3,
    )
