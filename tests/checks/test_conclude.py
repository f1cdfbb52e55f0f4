"""Who outweighs whom: the rule by which evidence becomes a verdict, line by line."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gradproof._data.records import Finding, Kink, Place
from gradproof._judge.opinion import Opinion
from gradproof._verdict.conclude import (
    NEIGHBOURS,
    Elsewhere,
    Evidence,
    Source,
    Witness,
    conclude,
)
from gradproof._verdict.low_precision import Precision

WRONG = (Finding("backward", "wrong"),)
RIGHT = Opinion("backward", "verified", resolution=1e-9)
REFUTED = Opinion("backward", "refuted", WRONG)
OPEN = Opinion("backward", "not resolved", open=True)
FLAT = Opinion("backward", "nothing varies", open=True, flat=1e-9)
CLOSE = Precision((), (), 1e-3, "")
OFF = Precision((), WRONG, 1e-3, "")
VAGUE = Precision((), (), math.inf, "honest arithmetic errs by all of it")


def kink(kind: str = "kink", within: bool = True) -> Kink:
    place = Place("x", 0, (0,), "")
    return Kink(kind, place, place, 0.0, 1.0, 0.5, within, "bent")


def by(here: Opinion, source: Source = Source.ITSELF, **more: object) -> Witness:
    return Witness(source.name.lower(), source, here, **more)


def of(*witnesses: Witness, **more: object) -> Evidence:
    return Evidence("backward", witnesses, **more)


ITSELF, FORMULA, REFERENCE = Source
BENT = replace(RIGHT, kinks=(kink(),))
JUMPS = replace(RIGHT, kinks=(kink("jump"),))
BOTH = (RIGHT,) * NEIGHBOURS

CASES = {
    "nobody could be asked": (of(unasked="random"), "inconclusive", "random"),
    "differences confirm": (of(by(RIGHT)), "passed", "verified"),
    "differences refute": (of(by(REFUTED)), "failed", "refuted"),
    "differences leave it open": (of(by(OPEN)), "inconclusive", "not resolved"),
    "a doubt takes away a refutation": (of(by(REFUTED, doubt="stairs")), "inconclusive", "stairs"),
    "a doubt takes away a confirmation": (of(by(RIGHT, doubt="jumps")), "inconclusive", "jumps"),
    "an input was not tested": (of(by(RIGHT, untested="not y")), "inconclusive", "not y; the rest"),
    "a refutation outweighs that": (of(by(REFUTED, untested="not y")), "failed", "refuted"),
    "a neighbour refutes": (of(by(BENT, beside=(REFUTED,))), "failed", "at a smooth neighbour"),
    "neighbours confirm a kink": (of(by(BENT, beside=BOTH)), "passed", "at smooth neighbours"),
    "a kink between whose slopes": (of(by(BENT, no_neighbour="none")), "passed", "verified"),
    "a convention alone": (of(by(JUMPS, no_neighbour="none")), "inconclusive", "a convention"),
    "a convention that is confirmed": (of(by(JUMPS, beside=BOTH)), "passed", "at smooth"),
    "neighbours settle nothing open": (
        of(by(replace(OPEN, kinks=BENT.kinks), beside=BOTH)),
        "inconclusive",
        "not resolved",
    ),
    "the formula is wrong": (of(by(REFUTED, FORMULA)), "failed", "the formula is wrong, as"),
    "the formula is wrong, whatever a reference says": (
        of(by(RIGHT, REFERENCE, compared=CLOSE), by(REFUTED, FORMULA)),
        "failed",
        "the formula is wrong",
    ),
    "an oracle confirms": (of(by(RIGHT, FORMULA, compared=CLOSE)), "passed", "against formula"),
    "an oracle is against": (of(by(RIGHT, FORMULA, compared=OFF)), "failed", "1 array off"),
    "an oracle resolves little": (
        of(by(RIGHT, FORMULA, compared=VAGUE)),
        "inconclusive",
        "errs by all",
    ),
    "an oracle is open itself": (
        of(by(OPEN, FORMULA, compared=CLOSE)),
        "inconclusive",
        "formula: not resolved",
    ),
    "one of two oracles has no doubt": (
        of(by(OPEN, FORMULA, compared=CLOSE), by(RIGHT, REFERENCE, compared=CLOSE)),
        "passed",
        "against reference",
    ),
    "one of two oracles is against": (
        of(by(RIGHT, FORMULA, compared=CLOSE), by(RIGHT, REFERENCE, compared=OFF)),
        "inconclusive",
        "reference is the odd one out: the claims agree with formula",
    ),
    "differences agree, a reference does not": (
        of(by(RIGHT), by(RIGHT, REFERENCE, compared=OFF)),
        "inconclusive",
        "the claims agree with itself",
    ),
    "a wrong reference has no say": (of(by(RIGHT), by(REFUTED, REFERENCE)), "passed", "verified"),
    "flat": (of(by(FLAT)), "inconclusive", "nothing varies"),
    "flat everywhere": (of(by(FLAT), elsewhere=Elsewhere()), "inconclusive", "or at the other"),
    "a derivative that is zero": (
        of(by(FLAT), elsewhere=Elsewhere(zero=True)),
        "passed",
        "as the derivative is",
    ),
    "right elsewhere": (
        of(by(FLAT), elsewhere=Elsewhere((of(by(RIGHT)),), slopes=True)),
        "passed",
        "where it varies: verified",
    ),
    "wrong elsewhere refutes nothing": (
        of(by(FLAT), elsewhere=Elsewhere((of(by(RIGHT)), of(by(REFUTED))), slopes=True)),
        "inconclusive",
        "is wrong there",
    ),
    "a reference was not asked": (
        of(by(RIGHT), unheard="it: raises"),
        "inconclusive",
        "not held against it: raises",
    ),
    "nor where it is refuted": (of(by(REFUTED), unheard="it: raises"), "failed", "refuted"),
    "a reference is another function": (
        of(by(RIGHT), another="its value is another"),
        "inconclusive",
        "its value is another; the derivatives agree",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_line_of_the_rule_that_holds_decides(name: str) -> None:
    evidence, verdict, words = CASES[name]
    result = conclude(evidence)
    assert str(result.verdict) == verdict
    assert words in result.summary
    assert bool(result.findings) == (verdict == "failed")


def test_a_result_names_who_was_believed_and_who_was_not() -> None:
    seen = of(by(RIGHT), by(REFUTED, REFERENCE), refused=("not x: it computes in 8 bits inside",))
    told = "itself; not x: it computes in 8 bits inside; not reference: it fails its own check"
    assert conclude(seen).oracle.startswith(told)


def test_another_name_is_that_of_the_findings_too() -> None:
    result = conclude(of(by(REFUTED)), "second_order")
    assert {result.name, *(finding.check for finding in result.findings)} == {"second_order"}
