"""The strength of a check as text."""

from __future__ import annotations

from gradproof._data.records import Planted, Strength
from gradproof._render._spans import plain, wrapped


def render(strength: Strength) -> str:
    """Headline, what was caught and by which check, what was not and why, what was never seen."""
    count, caught = len(strength.planted), len(strength.planted) - len(strength.missed)
    word = "WEAK" if strength.weak else "strong"
    lines = [f"strength of the check of {strength.target}: {word}, {caught} of {count} caught"]
    by_check: dict[str, list[str]] = {}
    for one in strength.planted:
        if one.caught:
            by_check.setdefault(one.by, []).append(one.name)
    for check, names in by_check.items():
        lines.append(_row("caught", f"by {check}: {', '.join(names)}"))
    lines += [_row("MISSED", _missed(one)) for one in strength.missed]
    if strength.unseen:
        lines.append(
            _row(
                "unseen",
                f"{', '.join(strength.unseen)}: a mistake in a branch for these would pass; "
                "sweep=True visits them",
            )
        )
    return "\n".join(lines)


def _missed(one: Planted) -> str:
    return f"{one.name}: {one.what}" + (f"; {one.why}" if one.why else "")


def _row(label: str, text: str) -> str:
    return "\n".join(map(plain, wrapped(f"  {label:<9}", text)))
