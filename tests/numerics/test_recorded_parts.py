"""What is drawn, and what is made of given numbers: probes, steps, statistics, other inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded
from gradproof._data.space import Grain, Slot, Space
from gradproof._measure import probes, rounding, steps
from gradproof._measure.statistics import Samples, refuted, statistics, well_conditioned
from numpy_map import FunctionMap

GOLDEN = Path(__file__).parent / "golden"
UNITS = {"double": 2.0**-53, "single": 2.0**-24, "half": 2.0**-11, "bfloat16": 2.0**-8}
GRAINS = {
    "double": Grain(),
    "single": Grain(2.0**-24, 2.0**-149, 3.4e38),
    "half": Grain(2.0**-11, 2.0**-24, 65504.0),
    "bfloat16": Grain(2.0**-8, 2.0**-133, 3.39e38),
}


def map_of(grain: Grain, shapes: list[tuple[int, ...]]) -> FunctionMap:
    """A map between arrays of these shapes, the last of complex numbers, from 1 up."""
    slots = [Slot(f"x{k}", shape, grain=grain) for k, shape in enumerate(shapes)]
    slots.append(Slot("z", (2,), ("re", "im"), grain=grain))
    slots.append(Slot("bounded", (3,), grain=grain, limits=(0.0, 2.0)))
    space = Space(tuple(slots))
    point = 0.125 * np.arange(space.size) - 1
    point[-3:] = [0.25, 1.0, 1.9375]
    map_ = FunctionMap(lambda x: 2 * x, point, np.eye(space.size))
    map_.domain = map_.codomain = space
    map_.resolution = grain.unit
    return map_


def probed(grain: Grain, shapes: list[tuple[int, ...]]) -> Iterator[tuple[str, Any]]:
    map_ = map_of(grain, shapes)
    yield "scales", probes.scales_of(map_)
    yield "largest scales", probes.largest_scales(map_)
    yield "own scale", [probes.own_scale(map_, j) for j in (0, 3, 6)]
    for seed, number in ((0, 0), (1, 2)):
        yield "tangent", probes.tangent(map_, seed, number)
        yield "cotangent", probes.cotangent(map_, seed, number)
        yield "nearby", probes.nearby(map_, seed, number, 0.5)
        yield "of zero", probes.nearby(map_, seed, number, 2.0, of_zero=True)
    for seed in (0, 1):
        yield "signs", probes.signs(seed, 9)
        yield "constant", probes.constant_cotangent(map_, seed)
        yield "one hot", probes.one_hot(map_, seed)
        yield "one hot tangent", probes.one_hot_tangent(map_, seed)
        yield "cancelling", probes.cancelling(map_, seed)
    yield "ones", probes.ones(map_)
    whole = lambda: 1.0 * probes.cotangent(map_, 0, 0)  # noqa: E731
    for sizes in (None, (1.0, 1.0), (1e-3, 1e4), (1e30, 1e-30)):
        for tangents in (False, True):
            unit = max(grain.unit, 2.0**-11) if sizes else grain.unit
            split = probes.split(map_, whole, sizes, seed=3, unit=unit, tangents=tangents)
            yield "split", [split.words, split.factors, split.lost, split.shares]
            yield "parts", [split.part(0), split.part(1)]


SHAPES = {"vector": [(9,)], "matrices": [(3, 4), (2, 1), ()], "many rows": [(1, 20)], "none": []}


@pytest.mark.parametrize("shapes", SHAPES)
def test_probes_are_those_recorded(shapes: str, request: pytest.FixtureRequest) -> None:
    lines = [
        (f"{name} {what}", value)
        for name, grain in GRAINS.items()
        for what, value in probed(grain, SHAPES[shapes])
    ]
    recorded.compare(request, GOLDEN / f"probes of {shapes}.txt", lines)


def test_steps_are_those_recorded(request: pytest.FixtureRequest) -> None:
    lines: list[tuple[str, Any]] = []
    units = {**UNITS, "8 bits": 2.0**-4, "TF32": 2.0**-11, "few": 2.0**-20}
    for name, unit in units.items():
        for limit in (None, 3.0, 0.3, 1e-3, 1e-9, 1e-14):
            for what, plan in (
                ("slope", steps.slope(unit, limit)),
                ("lean", steps.slope(unit, limit, lean=True)),
                ("sides", steps.sides(unit, limit)),
            ):
                bounds = plan.largest, plan.smallest
                lines.append((f"{name} {what} {limit}", [np.log2([*plan.steps(), *bounds])]))
        single = steps.one_sided(unit), steps.still(unit)
        lines.append((f"{name} one step", np.log2(single)))
    for best in (1.0, 2.0**-14, 2.0**-40):
        for plan in (steps.short(steps.Plan(), best), steps.two(steps.Plan(), best)):
            lines.append((f"beside {best}", np.log2(plan.steps())))
    recorded.compare(request, GOLDEN / "steps.txt", lines)


@pytest.mark.parametrize("shape", [(70,), (6, 5), (3, 1, 4), (1, 1), (0,), (130, 2)], ids=str)
def test_statistics_are_those_recorded(
    shape: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    draw, size, lines = np.random.default_rng(1), math.prod(shape), []
    exact = draw.uniform(-1, 1, (4, size))
    exact[:, ::3] *= 1e-3
    gaps = {
        "noise": 2.0**-8 * exact * draw.uniform(-1, 1, (4, size)),
        "slope": 0.125 * exact,
        "shift": 0.0625 + 0 * exact,
        "one entry": 0.5 * np.eye(4, size),
        "unknown": np.where(np.arange(size) == 3, np.nan, 0 * exact),
    }
    for runs, points, cut in ((3, 1, False), (0, 2, True), (2, 4, False)):
        honest = 2.0**-8 * draw.uniform(-1, 1, (runs, 4, size)) * (abs(exact) + 0.1)
        honest[:, :, 1::7] *= 64
        for name, gap in gaps.items():
            of = Samples(gap, exact, honest, shape, 2.0**-7, 2.0**-24, points, cut)
            kept, aside = well_conditioned(of)
            for what, samples in (("all", of), ("known", kept)):
                found = statistics(samples)
                told = [(one.name, one.value, one.allowed, one.where) for one in found]
                lines.append((f"{runs} {name} {what}", told))
            worst = [one.name for one in refuted(statistics(of))]
            lines.append((f"{runs} {name} wrong", [worst, aside]))
    recorded.compare(request, GOLDEN / f"statistics of {shape}.txt", lines)


def test_roundings_are_those_recorded(request: pytest.FixtureRequest) -> None:
    values = np.array([0.3, -1.7, 1.0, 0.0, 2.0**-26, 7e4, np.inf, 1 + 2.0**-20, 6.1e-5, -3.3])
    lines: list[tuple[str, Any]] = []
    for name in ("single", "half", "bfloat16"):
        unit, tiny = GRAINS[name].unit, GRAINS[name].tiny
        for least in (tiny, 0.0):
            for draws in (None, 0.1, 0.4, 0.6, 0.9):
                drawn = None if draws is None else np.full(10, draws)
                found = rounding.rounded_at_random(values, drawn, unit, least)
                with np.errstate(all="ignore"):
                    moved = (found - values) / (unit * np.abs(values))
                lines.append((f"{name} {least} {draws}", moved))
            with np.errstate(all="ignore"):
                nearest = (rounding.nearest(values, unit, least) - values) / unit
            lines.append((f"{name} {least} nearest", nearest))
    recorded.compare(request, GOLDEN / "roundings.txt", lines)
