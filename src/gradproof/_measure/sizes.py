"""What is little, and what is many: one number wherever the same is asked."""

from __future__ import annotations

from gradproof._data.settings import RTOL

SMALL = 1e-3  # of the largest of its kind, or of a slope: what is less is not told apart beside it
# Of a derivative, as the tolerance where none is chosen: less is not looked into, be it a bar, a
# gap, what two slopes differ by, or what a claim is rounded by.
FINE = RTOL
UNDERFLOW = 1e-250  # of a derivative: less is as good as zero, and was lost somewhere
ALIKE = 0.25  # of a slope, a gap or an order: those that differ by less have one explanation
NO_ROUNDING = 0.05  # of a number: runs that differ by more are no rounding, and tell nothing of it
ROUNDINGS = 64.0  # of a number of F, or of a claim, that what it is made of may add up to
# Units in the last place, or smallest normal numbers, that arithmetic may lose; by more a value is
# moved for sure.
FEW_ULPS = 4.0
MANY = 8  # rows, columns, points or parts that are followed one by one; more count as many
DRAWS = 4  # probes, points or factors that are drawn, and of which the largest effect counts
TRIES = 3  # times, at most, that something is measured again: finer, elsewhere, or what is left
LISTED = 3  # names that a sentence gives
MOST_FINDINGS = 64  # and parts of an array that are looked at one by one; others are taken together
