"""Large functions with kinks beside the point: shorter steps to either side leave them behind.

Among 10^5 inputs some lie nearer to a kink than the steps of the screen, and all that those steps
say of them is a wide bar.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradproof

SIZE = 200_000  # outputs from which vectors are kept as few and as short as can be
NEAR = (3e-7, -9e-7, 2e-6, -4e-6, 5e-9)  # where kinks are put, between the steps that are tried
FIRST = 1000  # of these

SEEDS = range(5)


def near_kinks(seed: int) -> np.ndarray:
    point = np.random.default_rng(seed).normal(size=SIZE)
    point[FIRST : FIRST + len(NEAR)] = NEAR
    return point


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def slopes(x: np.ndarray, wrong: int | None) -> np.ndarray:
    """Of `relu`; of one input the slope on the other side of its kink."""
    found = (x > 0) * 1.0
    if wrong is not None:
        found[FIRST + wrong] = 1 - found[FIRST + wrong]
    return found


def asked(check: str, seed: int, wrong: int | None = None) -> gradproof.Report:
    def product(x: np.ndarray, probe: np.ndarray) -> np.ndarray:
        return probe * slopes(x, wrong)

    hand = gradproof.by_hand(relu, **{"vjp" if check == "backward" else "jvp": product})
    return gradproof.check(hand, (near_kinks(seed),), seed=seed, checks=[check])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("check", ["backward", "forward"])
def test_kinks_beside_the_point_are_left_behind(check: str, seed: int) -> None:
    report = asked(check, seed)
    assert report, report[check].summary
    assert report[check].calls["function"] <= 220  # two neighbours too


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("wrong", range(len(NEAR)))
def test_a_wrong_column_beside_a_kink_is_told(seed: int, wrong: int) -> None:
    """By a rule that gives columns; by one that gives projections alone it is not accepted."""
    assert asked("backward", seed, wrong).verdict != "passed"
    report = asked("forward", seed, wrong)
    assert report.verdict == "failed"
    [finding] = report.findings
    assert finding.output is not None
    assert finding.output.index == (FIRST + wrong,)


def test_numbers_that_change_places_within_the_steps_are_told() -> None:
    """What is sorted was refuted at some draws, and left open at all others."""
    point = np.random.default_rng(0).normal(size=(200, 1000))

    def vjp(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        back = np.zeros_like(x)
        np.put_along_axis(back, np.argsort(x, axis=-1), v, axis=-1)
        return back

    for seed in SEEDS:
        report = gradproof.check(
            gradproof.by_hand(lambda x: np.sort(x, axis=-1), vjp=vjp),
            (point,),
            seed=seed,
            checks=["backward"],
        )
        assert report, report["backward"].summary
