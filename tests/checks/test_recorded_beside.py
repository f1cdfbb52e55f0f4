"""What is asked beside a point, and of parts of a tangent: it follows units, and is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded
from gradproof._data.settings import Settings
from gradproof._data.space import Grain, Slot, Space
from gradproof._judge import entries, limiting_slopes
from gradproof._judge.claims import Backward, Forward
from gradproof._locate import search
from gradproof._locate.decode import weights_of
from gradproof._measure import directional, jacobian
from gradproof._verdict import judge
from numpy_map import FunctionMap, Vector

GOLDEN = Path(__file__).parent / "golden"
POINT = np.array([0.75, -1.25, 2.125, 0.0625, -0.5, 1.5, 0.75, 0.75])
GRAINS = {
    "double": (53, Grain()),
    "single": (24, Grain(2.0**-24, 2.0**-149, 3.4e38)),
}
# A unit of F and one of x, which other numbers follow.
PLAIN, OTHER = (2.0**4, 1.0), (2.0**14, 2.0**5)
SETTINGS = Settings(seed=0)

pytestmark = pytest.mark.usefixtures("as_in_the_engine")


def bounded(x: Vector) -> Vector:
    return x / (1 + x * x)


def mixed(x: Vector) -> Vector:
    return 0.5 * x + 0.375 * np.roll(x, 1) - 0.625 * np.roll(x, 2)


def of_bits(values: Vector, bits: int) -> Vector:
    """The values, rounded to so many binary digits."""
    digits, power = np.frexp(values)
    return np.ldexp(np.round(digits * 2.0**bits), power - bits)


KINDS: dict[str, Callable[[Vector], Vector]] = {
    "smooth": lambda x: bounded(3 * mixed(x)) + 2 * x,
    "linear": lambda x: 2 * mixed(x),
    "numbers in order": lambda x: np.sort(x) + bounded(x),
    "sums of kinks": lambda x: np.array(
        [
            np.abs(x - POINT).sum(),
            np.abs(x[:3] - POINT[:3]).sum() + x[4] * x[4],
            np.maximum(x[0] - POINT[0], x[1] - POINT[1]) + x[2] * x[3],
            (np.abs(mixed(x - POINT)) * 0.25).sum(),
        ]
    ),
    "sums": lambda x: np.array([bounded(x).sum(), (x[:7] * x[:7]).sum(), x[1:].sum() * x[0]]),
    "a kink in a sum": lambda x: np.array([bounded(x).sum() + np.abs(x[6] - POINT[6])]),
    "a maximum of three": lambda x: np.array([x.max(), x[[0, 6, 7]].max(), x[[0, 6]].min()]),
    "a jump and a root": lambda x: np.array(
        [bounded(x).sum() + (x[0] > POINT[0]), np.sqrt(np.abs(x - POINT)).sum() + x.sum()]
    ),
    "single precision inside": lambda x: of_bits(bounded(mixed(x)), 24) + x,
}


def map_of(kind: str, units: tuple[float, float], format_: str, **more: Any) -> FunctionMap:
    output, input_ = units
    bits, grain = GRAINS[format_]
    start = KINDS[kind](POINT)
    map_ = FunctionMap(
        lambda x: output * of_bits(KINDS[kind](x / input_), bits),
        POINT * input_,
        np.zeros((len(start), 8)),
        **more,
    )
    map_.resolution = grain.unit
    map_.domain = Space((Slot("a", (5,), grain=grain), Slot("b", (3,), grain=grain)))
    map_.codomain = Space((Slot("y", (len(start),), grain=grain),))
    return map_


def slopes_of(kind: str) -> Vector:
    """A Jacobian by differences of steps that no kink of these is near to, of few digits."""
    fn, columns = KINDS[kind], []
    for j in range(8):
        move = np.where(np.arange(8) == j, 2.0**-13, 0.0)
        columns.append((fn(POINT + move) - fn(POINT - move)) * 2.0**12)
    return np.round(np.stack(columns, axis=1) * 4096) / 4096


def residuals(
    kind: str, units: tuple[float, float], format_: str, off: float
) -> Iterator[tuple[str, Any, float]]:
    """Weighted residuals of some rows, whose claims are off by so much in two columns."""
    map_, unit = map_of(kind, units, format_), units[0]
    wrong = slopes_of(kind)
    wrong[:, [2, 5]] += off * np.array([1.0, -0.5])
    at = np.arange(len(wrong))[:: max(1, len(wrong) // 3)]
    first = directional.along(map_, SETTINGS, 0)

    def claimed(u: Vector) -> Vector:
        return wrong[at] @ u * (units[0] / units[1])

    gap, bar = np.full(len(at), 0.25), np.full(len(at), 1e-9)
    known = {2: (off * gap * unit / units[1], bar * unit)}
    for name, less in (("", {}), ("less a column ", known)):
        made = search.weighted_residuals(map_, first, at, claimed, less)
        yield f"{name}step", made.step, 1.0
        for part in ("total", "bar", "rounding"):
            yield name + part, getattr(made, part), unit
        calls = map_.calls["value"]
        for chosen in (made, made.of([1])):
            asked = chosen.ask(weights_of(map_.point, 0))
            for residual in (chosen.whole, asked):
                for part in ("value", "threshold", "measured"):
                    yield name + part, getattr(residual, part), unit
        yield f"{name}calls", map_.calls["value"] - calls, 1.0


def around(kind: str, units: tuple[float, float], format_: str) -> Iterator[tuple[str, Any, float]]:
    """Slopes beside the point."""
    map_, unit = map_of(kind, units, format_), units[0]
    settings = SETTINGS
    for number in (0, 1):
        u = directional.along(map_, settings, number).direction
        beside = limiting_slopes._Around(map_, settings, u)
        for draw in range(4):
            yield "asked", beside.ask(beside.drawn(draw)), unit
        yield "blur", beside.blur(), unit
        yield "bends", beside.bends(), unit
        yield "slack", beside.slack(), unit
        yield "range", beside.range(), unit
        yield "turned", beside.turned(0, 8), unit
        yield "turned again", beside.turned(1, 4), unit
    found = limiting_slopes.limits(Backward(map_, settings))
    yield "limits", found is not None, 1.0
    if found is not None:
        yield "tied", found.tied, 1.0
        yield "low", found.low, unit
        yield "high", found.high, unit
    yield "calls", map_.calls["value"], 1.0


def together(
    kind: str, units: tuple[float, float], format_: str
) -> Iterator[tuple[str, Any, float]]:
    """Columns that are right together, and the entries of all."""
    unit = units[0] / units[1]
    right = jacobian.columns(map_of(kind, (1.0, 1.0), "double"), SETTINGS).value
    for name, more in (("right", 0.0), ("a column off", 0.25)):
        claimed = right.copy()
        claimed[:, 1] += more
        map_ = map_of(kind, units, format_)
        map_.claimed = map_.claimed.dense(claimed * unit)
        claim = Backward(map_, SETTINGS)
        found = entries._right_together(claim, claimed * unit)
        yield f"{name}: together", sorted(found), 1.0
        for j in sorted(found)[:2]:
            for part in ("value", "error", "kink"):
                yield f"{name}: {part} {j}", getattr(found[j], part), unit
        screen = judge.look(claim)
        measured = entries.measured_entries(claim, screen)
        for each in ("gap", "error", "allowed"):
            yield f"{name}: {each}", getattr(measured.comparison, each)[::2, ::3], unit
        varies = entries._varies(measured)
        yield f"{name}: varies", varies, units[0]
        yield f"{name}: small", entries._small(measured, varies)[:, 0], unit
        yield f"{name}: wrong", int(measured.comparison.wrong.sum()), 1.0
        yield f"{name}: calls", map_.calls["value"], 1.0


def kinks(kind: str, units: tuple[float, float], format_: str) -> Iterator[tuple[str, Any, float]]:
    """Rows that bend along the first tangent, and what the entries say of their claims."""
    unit = units[0] / units[1]
    for name, more in (("right", 0.0), ("off", 8.0)):
        for mode in (Backward, Forward):
            map_ = map_of(kind, units, format_, forward=True, transposes=True)
            claimed = slopes_of(kind)
            claimed[-1, 0] += more
            map_.claimed = map_.claimed.dense(claimed * unit)
            claim = mode(map_, SETTINGS)
            records, open_ = limiting_slopes.along_probe(claim, range(len(claimed)))
            yield f"{name}, {claim.check}: open", list(open_), 1.0
            for kink in records:
                yield f"{name}, {claim.check}: {kink.kind}", [kink.within], 1.0
                yield "slopes", [kink.left, kink.right, kink.claimed], units[0]
        screen = judge.look(claim)
        said = entries.settle(claim, screen)
        told = [len(said.findings), said.open, len(said.kinks), said.resolution]
        yield f"{name}: entries", told, 1.0
        for kink in said.kinks[:6]:
            yield f"{name}: {kink.kind} {kink.input} {kink.output}", [kink.within], 1.0
            yield "slopes", [kink.left, kink.right], unit
        yield f"{name}: calls", map_.calls["value"], 1.0


# Mistakes in a Jacobian of 12 rows and 40 columns, which a search looks for.


def errors_of(case: str) -> Vector:
    """What is added to the right Jacobian, in parts of the entries."""
    off = np.zeros((12, 40))
    if case == "an entry":
        off[3, 17] = 0.25
    elif case == "entries of many rows":
        off[[0, 2, 5, 7, 11], [1, 30, 5, 5, 39]] = [0.5, -0.25, 0.125, 2.0, 1.0]
    elif case == "two entries of a row":
        off[4, [3, 33]] = [1.0, -0.5]
    elif case == "a row":
        off[6, :] = np.arange(40) / 32 - 0.5
    elif case == "a column":
        off[:, 9] = 0.5
    elif case == "a run":
        off[1:3, 10:25] = 0.25
    elif case == "a factor":
        off[:, :] = 0.125
    elif case == "nothing at the end":
        off[2, 28:] = -1.0
    elif case == "no number":
        off[5, 7] = np.nan
    return off


def searched(
    case: str, units: tuple[float, float], format_: str
) -> Iterator[tuple[str, Any, float]]:
    """What a search finds of a mistake, in each mode, and what it asks for that."""
    (output, input_), (bits, grain) = units, GRAINS[format_]
    spread = 0.5 + np.random.default_rng(7).integers(0, 1024, 40) / 1024
    weights = np.random.default_rng(8).integers(-8, 9, (12, 40)) / 8
    weights += weights == 0
    right = weights * (1 - spread * spread) / ((1 + spread * spread) * (1 + spread * spread))
    unit = output / input_
    for name, mode, has in (
        ("transposed", Backward, {"transposes": True}),
        ("backward only", Backward, {}),
        ("forward", Forward, {"forward": True}),
    ):
        map_ = FunctionMap(
            lambda x: output * of_bits((weights * bounded(x / input_)).sum(1), bits),
            spread * input_,
            right * (1 + errors_of(case)) * unit,
            **has,
        )
        map_.resolution = grain.unit
        map_.domain, map_.codomain = (
            Space((Slot(space, (size,), grain=grain),)) for space, size in (("x", 40), ("y", 12))
        )
        claim = mode(map_, SETTINGS)
        screen = judge.look(claim)
        for briefly in (False, True):
            found, told = search.locate(claim, screen, briefly=briefly), f"{name}, {briefly}: "
            yield told + "rows", [*found.rows, -1, *sorted(found.columns)], 1.0
            kept = [found.many, found.crowded, found.complete, found.explained, found.accounted]
            yield told + "kept", [*kept, map_.calls["value"], map_.calls["vjp"]], 1.0
            for each in found.findings[: 1 if briefly else 4]:
                yield told + f"{each.output} {each.input}", [each.claimed, each.measured], unit
                yield told + "bars", [each.error, each.allowed], unit
            if (one := found.common) is not None:
                where = [one.rows, one.low, one.high, one.sure, one.believed, *one.measure]
                yield told + "in common", [*where, one.ratio or 0.0], 1.0


ERRORS = (
    "nothing",
    "an entry",
    "entries of many rows",
    "two entries of a row",
    "a row",
    "a column",
    "a run",
    "a factor",
    "nothing at the end",
    "no number",
)
ASKED = {
    "searches": [(case, searched) for case in ERRORS],
    "residuals": [
        (kind, lambda *how, off=off: residuals(*how, off))
        for kind in ("smooth", "linear", "single precision inside", "sums of kinks")
        for off in (2.0, 2.0**-10)
    ],
    "slopes": [(kind, around) for kind in KINDS],
    "parts": [(kind, together) for kind in KINDS],
    "kinks": [(kind, kinks) for kind in KINDS],
}


def numbers(asked: str, units: tuple[float, float], format_: str) -> Iterator[tuple[str, Any]]:
    for kind, made in ASKED[asked]:
        for name, value, unit in made(kind, units, format_):
            yield f"{kind}: {name}", value if unit == 1.0 else np.divide(value, unit)


@pytest.mark.parametrize("format_", GRAINS)
@pytest.mark.parametrize("asked", ASKED)
@np.errstate(all="ignore")
def test_in_other_units_all_numbers_follow(asked: str, format_: str) -> None:
    usual, other = (list(numbers(asked, units, format_)) for units in (PLAIN, OTHER))
    assert [name for name, _ in other] == [name for name, _ in usual]
    for (name, value), (_, its) in zip(other, usual, strict=True):
        assert np.array_equal(value, its, equal_nan=True) or "calls" in name, name


@pytest.mark.parametrize("asked", ASKED)
@np.errstate(all="ignore")
def test_the_numbers_are_those_recorded(asked: str, request: pytest.FixtureRequest) -> None:
    lines = [
        (f"{format_}, {name}", value)
        for format_ in GRAINS
        for name, value in numbers(asked, (1.0, 1.0), format_)
    ]
    recorded.compare(request, GOLDEN / f"beside, {asked}.txt", lines)


@pytest.mark.parametrize("kind", ["smooth", "linear", "single precision inside"])
@pytest.mark.parametrize("format_", GRAINS)
@pytest.mark.parametrize("off", [1.0, 1e-2])
def test_a_weighed_residual_is_what_its_wrong_columns_add_up_to(kind, format_, off) -> None:
    """Within what it is told to be known to, by one evaluation or by two."""
    map_ = map_of(kind, (1.0, 1.0), format_)
    errors = np.zeros((8, 8))
    errors[1, 2], errors[4, 6], errors[4, 0] = off, -off, off / 2
    exact = np.stack(
        [directional.direction_of(map_, SETTINGS, row).estimate.value for row in np.eye(8)], axis=1
    )
    at, first, claims = np.array([1, 4]), directional.along(map_, SETTINGS, 0), exact + errors
    known = {0: (errors[at, 0], np.zeros(2))}
    made = search.weighted_residuals(map_, first, at, lambda u: (claims @ u)[at], known)
    errors[:, 0] = 0.0
    u = first.direction
    calls = map_.calls["value"]
    for number in range(4):
        weights = weights_of(map_.point, number)
        found = made.ask(weights)
        missed = np.abs(found.value - (errors @ (made._representable(weights * u)))[at])
        assert (missed <= found.threshold + 1e-5 * np.abs(found.measured)).all()
    assert map_.calls["value"] - calls == 8
