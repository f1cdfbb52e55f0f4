"""Recognisers of complex derivatives: a missing conjugate, half of the number, a phase."""

from __future__ import annotations

import numpy as np

from gradproof._explain.case import Block, Match, Values
from gradproof._explain.sums import masked
from gradproof._measure.statistics import SLACK


def conjugate(block: Block) -> Match | None:
    """The gradient, the cotangent, or both are conjugated."""
    ways = [("the gradient", 1.0, -1.0)] if block.parts == 2 else []
    if _complex_rows(block):
        ways.append(("the cotangent", -1.0, 1.0))
        if block.parts == 2:
            ways.append(("the cotangent and the gradient", -1.0, -1.0))
    for what, row, column in ways:
        signs = np.ones(block.claimed.shape)
        if row < 0:
            signs[1::2, :] *= row
        if column < 0:
            signs[:, 1::2] *= column
        bars = np.abs(signs)
        if (
            np.abs(block.claimed - signs * block.measured) <= SLACK * 2 * block.allowed * bars
        ).all():
            text = f"{what} of {block.name} is conjugated: a conj is missing, or too much"
            return Match("conjugate", text, f"all {block.claimed.size:,} entries fit")
    return None


def _complex_rows(block: Block) -> bool:
    return block.case.outputs and all(len(s.parts) == 2 for s in block.case.codomain.slots)


def half(block: Block) -> Match | None:
    """Only the real, or only the imaginary, part arrives."""
    for kept, name in ((0, "real"), (1, "imaginary")):
        for what, rows in (("gradient", False), ("cotangent", True)):
            if (rows and not _complex_rows(block)) or (not rows and block.parts != 2):
                continue
            mask = np.zeros(block.claimed.shape, dtype=bool)
            if rows:
                mask[kept::2, :] = True
            else:
                mask[:, kept::2] = True
            if block.fits(masked(mask)):
                text = f"only the {name} part of the {what} of {block.name} is kept"
                return Match(f"{name} part only", text, f"all {block.claimed.size:,} entries fit")
    return None


def phase(block: Block) -> Match | None:
    """The gradient is multiplied by one complex number."""
    if block.parts != 2:
        return None
    claimed, measured = (_complex(v) for v in (block.claimed, block.measured))
    allowed = np.maximum(block.allowed[:, ::2], block.allowed[:, 1::2])
    below = float((np.abs(measured) ** 2).sum())
    if not below or not np.isfinite(claimed).all():
        return None
    factor = complex((np.conj(measured) * claimed).sum() / below)
    fits = np.abs(claimed - factor * measured) <= 2 * SLACK * allowed * (1 + abs(factor))
    if not fits.all() or abs(factor.imag) <= 1e-9 * abs(factor):
        return None
    text = f"the gradient of {block.name} is multiplied by {factor:.6g}"
    return Match("phase", text, f"one ratio for all {claimed.size:,} complex entries")


def _complex(values: Values) -> np.ndarray[tuple[int, int], np.dtype[np.complex128]]:
    return np.asarray(values[:, ::2] + 1j * values[:, 1::2])
