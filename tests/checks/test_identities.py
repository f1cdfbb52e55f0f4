"""The checks that need no step: each is broken by its own kind of mistake and by no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradproof
from gradproof._data.records import CheckResult, Verdict
from gradproof._maps.contract import Trait, Unsupported
from numpy_map import FunctionMap, Linear, report_of, result_of

POINT = np.linspace(0.1, 1.0, 12)
SLOPES = np.cos(POINT)
OUTPUTS = [(3, 2), (6,)]
INPUTS = [(4,), (2, 4)]


def _map(
    claimed: Linear | None = None, forward: bool = True, **extra: Callable[..., Any]
) -> FunctionMap:
    return FunctionMap(
        np.sin,
        POINT,
        claimed or Linear.diagonal(SLOPES),
        forward=forward,
        inputs=INPUTS,
        outputs=OUTPUTS,
        extra=extra,
    )


def _backward(backward: Callable[[np.ndarray], np.ndarray]) -> FunctionMap:
    return _map(Linear(lambda u: SLOPES * u, backward))


def _without(vector: np.ndarray, missing: frozenset[int], shapes: list[tuple[int, ...]]):
    edges = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    kept = vector.copy()
    for slot in missing:
        kept[edges[slot] : edges[slot + 1]] = 0.0
    return kept


def _complete(**changed: Callable[..., Any]) -> FunctionMap:
    """A map with every capability, all of them right but for those changed."""
    right: dict[str, Callable[..., Any]] = {
        "vjp_batch": lambda vs, _: SLOPES * vs,
        "jvp_batch": lambda us: SLOPES * us,
        "vjp_undefined": lambda v, missing: SLOPES * _without(v, missing, OUTPUTS),
        "jvp_undefined": lambda u, missing: SLOPES * _without(u, missing, INPUTS),
        "layouts": lambda: ("transposed", "expanded"),
        "vjp_layout": lambda v, layout: SLOPES * v,
        "gradient_traits": lambda v: (),
        "outside_domain": lambda v: (),
        "side_effects": lambda v: (),
    }
    return _map(**(right | changed))


ALL = (
    "backward", "forward", "forward_vs_backward", "linearity", "memory_layout", "grad_metadata",
    "sparse", "missing_grad_output", "determinism", "side_effects", "batched", "batched_forward",
)  # fmt: skip


def _failing(map_: FunctionMap) -> set[str]:
    report = report_of(map_, *ALL)
    return {result.name for result in report.checks if result.verdict is Verdict.FAILED}


def test_a_right_map_passes_every_check() -> None:
    for seed in range(10):
        report = report_of(_complete(), *ALL, seed=seed)
        assert {result.name: str(result.verdict) for result in report.checks} == dict.fromkeys(
            ALL, "passed"
        )


def test_a_map_without_capabilities_is_skipped_with_the_reason_for_each() -> None:
    report = report_of(_map(forward=False), *ALL)
    skipped = [result for result in report.checks if result.verdict is Verdict.SKIPPED]
    run = {"backward", "linearity", "determinism"}
    assert {result.name for result in skipped} == set(ALL) - run
    assert all(result.summary for result in skipped)
    assert report["forward"].summary == "no forward mode"


def _broken(**extra: Callable[..., Any]) -> FunctionMap:
    return _complete(**extra)


MISTAKES: dict[str, tuple[Callable[[], FunctionMap], set[str]]] = {
    "batch of which every row is the first": (
        lambda: _broken(vjp_batch=lambda vs, _: np.stack([SLOPES * vs[0]] * len(vs))),
        {"batched"},
    ),
    "batch with the second row negated": (
        lambda: _broken(vjp_batch=lambda vs, _: SLOPES * vs * np.asarray([[1.0], [-1.0]])),
        {"batched"},
    ),
    "batch of not-a-number": (
        lambda: _broken(vjp_batch=lambda vs, _: np.nan * vs),
        {"batched"},
    ),
    "forward batch off by a thousandth": (
        lambda: _broken(jvp_batch=lambda us: 1.001 * SLOPES * us),
        {"batched_forward"},
    ),
    "layout that transposes": (
        lambda: _broken(
            vjp_layout=lambda v, layout: SLOPES * (v[::-1] if layout == "transposed" else v)
        ),
        {"memory_layout"},
    ),
    "stride 0 read as dense": (
        lambda: _broken(vjp_layout=lambda v, name: SLOPES * v * (1 + (name == "expanded"))),
        {"memory_layout"},
    ),
    "undefined cotangents read as one": (
        lambda: _broken(
            vjp_undefined=lambda v, missing: SLOPES * (_without(v - 1, missing, OUTPUTS) + 1)
        ),
        {"missing_grad_output"},
    ),
    "undefined cotangent that drops the others too": (
        lambda: _broken(vjp_undefined=lambda v, missing: 0 * v),
        {"missing_grad_output"},
    ),
    "missing tangent that drops the others too": (
        lambda: _broken(jvp_undefined=lambda u, missing: 0 * u),
        {"missing_grad_output"},
    ),
    "gradient of the wrong dtype": (
        lambda: _broken(gradient_traits=lambda v: (Trait(1, "dtype", "float32", "float64"),)),
        {"grad_metadata"},
    ),
    "gradient outside the domain": (
        lambda: _broken(outside_domain=lambda v: ((0, (3,), 0.5),)),
        {"sparse"},
    ),
    "cotangent overwritten": (
        lambda: _broken(side_effects=lambda v: (("cotangent", "it was changed"),)),
        {"side_effects"},
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_fails_in_its_own_check_and_in_no_other(name: str) -> None:
    build, checks = MISTAKES[name]
    assert _failing(build()) == checks


def _said(map_: FunctionMap, check: str) -> CheckResult:
    result = result_of(map_, check)
    assert result.verdict is Verdict.FAILED
    assert result.findings
    assert all(finding.check == check and finding.message for finding in result.findings)
    return result


@pytest.mark.parametrize(
    "backward",
    [
        lambda v: SLOPES * np.abs(v),
        lambda v: SLOPES * v**2,
        lambda v: SLOPES * v + 1e-4,
        lambda v: SLOPES * np.clip(v, -1, 1),
        lambda v: SLOPES * np.where(np.arange(12) == 7, np.abs(v), v),
    ],
    ids=["abs", "square", "offset", "clip", "one entry"],
)
def test_a_backward_that_is_not_linear_fails(backward) -> None:
    _said(_backward(backward), "linearity")


def test_the_entry_that_is_not_linear_is_named() -> None:
    squares = _backward(lambda v: SLOPES * np.where(np.arange(12) == 7, v**2, v))
    (finding,) = _said(squares, "linearity").findings
    assert (finding.input_name, finding.input_index) == ("x1", (0, 3))


def test_a_backward_that_ignores_its_cotangent_is_told_so() -> None:
    ignores = _backward(lambda v: SLOPES.copy())
    assert _said(ignores, "linearity").summary == "the backward ignores the cotangent"


@pytest.mark.parametrize("seed", range(5))
def test_a_forward_mode_without_a_backward_must_be_linear_too(seed) -> None:
    """Every entry is right, for a unit tangent is its own square and its own absolute value."""
    verdicts = {}
    for push in (np.abs, np.square, np.positive):
        report = gradproof.check(
            gradproof.by_hand(np.sin, jvp=lambda x, u, push=push: np.cos(x) * push(u)),
            (POINT,),
            seed=seed,
        )
        told = {result.name: result.verdict for result in report.checks}
        assert told["backward"] is Verdict.SKIPPED
        verdicts[push] = told["linearity"]
    assert verdicts == {
        np.abs: Verdict.FAILED,
        np.square: Verdict.FAILED,
        np.positive: Verdict.PASSED,
    }


def test_a_right_backward_of_any_scale_is_linear() -> None:
    for scale in (1e-200, 1e-8, 1e8, 1e200):
        map_ = _map(Linear.diagonal(scale * SLOPES))
        assert result_of(map_, "linearity").verdict is Verdict.PASSED


@pytest.mark.parametrize("factor", [1.0001, -1.0, 0.0, np.nan, np.inf])
def test_modes_that_disagree_fail(factor: float) -> None:
    _said(_map(Linear(lambda u: factor * SLOPES * u, lambda v: SLOPES * v)), "forward_vs_backward")


@pytest.mark.parametrize("copies", [1, 1 << 20])
def test_an_entry_that_is_wrong_in_one_mode_fails_however_often_it_is_tiled(copies: int) -> None:
    cosines = np.cos(np.full(copies, 0.7))
    wrong = cosines.copy()
    wrong[copies // 3] *= 1.01
    claimed = Linear(lambda u: wrong * u, lambda v: cosines * v)
    map_ = FunctionMap(np.sin, np.full(copies, 0.7), claimed, forward=True)
    assert result_of(map_, "forward_vs_backward").verdict is Verdict.FAILED
    right = FunctionMap(np.sin, map_.point, Linear.diagonal(cosines), forward=True)
    assert result_of(right, "forward_vs_backward").verdict is Verdict.PASSED


def test_modes_that_are_wrong_alike_agree() -> None:
    assert (
        result_of(_map(Linear.diagonal(2 * SLOPES)), "forward_vs_backward").verdict
        is Verdict.PASSED
    )


def test_layouts_are_named() -> None:
    wrong = _complete(vjp_layout=lambda v, layout: SLOPES * v * (1 + (layout == "expanded")))
    result = _said(wrong, "memory_layout")
    assert {finding.kind for finding in result.findings} == {"layout: expanded"}
    assert "expanded" in result.summary
    assert "transposed" not in result.summary


def test_a_layout_that_raises_is_a_finding() -> None:
    def raising(v: np.ndarray, layout: str) -> np.ndarray:
        raise RuntimeError("view size is not compatible")

    (first, *_) = _said(_complete(vjp_layout=raising), "memory_layout").findings
    assert "RuntimeError" in first.message
    assert "view size is not compatible" in first.message


def test_a_layout_that_cannot_be_made_is_no_finding() -> None:
    def missing(v: np.ndarray, layout: str) -> np.ndarray:
        raise Unsupported("no such layout")

    assert result_of(_complete(vjp_layout=missing), "memory_layout").verdict is not Verdict.FAILED


def test_the_output_whose_undefined_cotangent_matters_is_named() -> None:
    def wrong(v: np.ndarray, missing: frozenset[int]) -> np.ndarray:
        return SLOPES * _without(v, missing - {1}, OUTPUTS)

    result = _said(_complete(vjp_undefined=wrong), "missing_grad_output")
    assert any("y1" in finding.message for finding in result.findings)


def test_an_undefined_cotangent_that_raises_is_a_finding() -> None:
    def raising(v: np.ndarray, missing: frozenset[int]) -> np.ndarray:
        raise AttributeError("'NoneType' object has no attribute 'mul'")

    (finding, *_) = _said(_complete(vjp_undefined=raising), "missing_grad_output").findings
    assert finding.kind == "undefined: raised"
    assert "NoneType" in finding.message


def test_a_backward_that_always_raises_is_no_matter_of_undefined_cotangents() -> None:
    def raising(*_: Any) -> np.ndarray:
        raise ArithmeticError("not written yet")

    result = _said(_complete(vjp=raising, vjp_undefined=raising), "missing_grad_output")
    assert result.summary == "it raised ArithmeticError: not written yet"
    assert not any("undefined" in finding.message for finding in result.findings)


def _drifting(amount: float) -> FunctionMap:
    calls: list[int] = []

    def backward(v: np.ndarray) -> np.ndarray:
        calls.append(1)
        return SLOPES * v + amount * (len(calls) % 2) * (np.arange(12) == 5)

    return _backward(backward)


def test_a_backward_that_differs_from_run_to_run_fails_at_the_entry() -> None:
    (finding,) = _said(_drifting(1e-3), "determinism").findings
    assert (finding.input_name, finding.input_index) == ("x1", (0, 1))


def test_nondeterminism_is_excused_up_to_its_tolerance() -> None:
    assert result_of(_drifting(1e-9), "determinism").verdict is Verdict.PASSED
    excused = result_of(_drifting(1e-3), "determinism", nondeterminism=1.1e-3)
    assert excused.verdict is Verdict.PASSED


def test_a_value_that_differs_from_run_to_run_is_remarked() -> None:
    rng = np.random.default_rng(0)
    map_ = FunctionMap(
        lambda x: np.sin(x) + 1e-9 * rng.standard_normal(12), POINT, Linear.diagonal(SLOPES)
    )
    result = result_of(map_, "determinism")
    assert result.verdict is Verdict.PASSED
    assert "varies" in result.notes[0]


def test_a_missing_tangent_is_not_asked_for_where_forward_mode_is_not() -> None:
    map_ = _complete(jvp_undefined=lambda u, missing: 0 * u)
    assert result_of(map_, "missing_grad_output").verdict is Verdict.PASSED
    assert map_.calls["jvp_undefined"] == 0


@pytest.mark.parametrize("size", [0, 1])
def test_gradients_without_entries_are_compared(size) -> None:
    map_ = FunctionMap(lambda x: x, np.ones(size), Linear.diagonal(np.ones(size)))
    assert result_of(map_, "linearity").verdict is not Verdict.FAILED
