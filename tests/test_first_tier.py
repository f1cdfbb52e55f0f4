"""The first tier says "right" or nothing, and "right" only where each check says it by itself."""

from __future__ import annotations

import dataclasses
import functools
import gc
import itertools
import json
import re
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gradproof
from gradproof._adapters.torch import build
from gradproof._data.records import Verdict
from gradproof._data.settings import CHECK_NAMES, Settings
from gradproof._engine import run
from gradproof._engine._first import settled
from gradproof._maps.metered import Metered
from gradproof.errors import UsageError
from gradproof.torch import gradcheck
from gradproof.torch._judge import CHOOSE_EPS, Options
from museum import EXHIBITS
from test_cost import Counted

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

DROP_IN = Options(
    *(CHOOSE_EPS, 1e-5, 1e-3, 0.0),
    undefined=True,
    dtypes=False,
    forward=False,
    backward=True,
    masked=False,
    inconclusive="warn",
).settings()
QUESTIONS = {
    "drop-in": DROP_IN,
    "check": Settings(checks=CHECK_NAMES, derived=True),
    "backward alone": Settings(checks=("backward",)),
}


def asked(fn: Callable[..., Any], inputs: Any, question: str, seed: int) -> dict[str, str]:
    """What the first tier settles, by check; refuted where the check by itself says otherwise."""
    settings = dataclasses.replace(QUESTIONS[question], seed=seed)
    map_ = build(fn, inputs)
    with np.errstate(all="ignore"):  # as the engine runs it
        found = settled(Metered(map_, settings.budget), settings)
    map_.close()
    for name, result in found.items():
        alone = dataclasses.replace(settings, checks=(name,))
        [by_itself] = run(build(fn, inputs), alone, target="the check by itself").checks
        usual = Verdict.SKIPPED if name == "sparse" else Verdict.PASSED
        assert by_itself.verdict is usual, (name, str(by_itself.findings), fn)
        assert result.verdict is usual
    return {name: result.summary for name, result in found.items()}


def of_exhibits() -> Iterator[Any]:
    for exhibit in EXHIBITS:
        # An id or an address given again is the interpreter's chance, and another in a second run,
        # as is which run of a backward is the fourth.
        chance = ("kept_by_id", "kept_by_the_", "kept_by_address", "off_in_every_fourth")
        if any(part in str(exhibit) for part in chance):
            continue
        for which in ("wrong", "right"):
            fn = getattr(exhibit, which)
            if fn is not None and exhibit.order == 1 and not set(exhibit.options) - {"checks"}:
                yield pytest.param(exhibit, fn, id=f"{exhibit}-{which}")


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(("exhibit", "fn"), list(of_exhibits()))
def test_what_it_settles_of_an_exhibit_the_checks_pass(exhibit, fn, question) -> None:
    for make in filter(None, (exhibit.make_inputs, exhibit.hidden_inputs)):
        try:
            asked(fn, make(), question, seed=1)
        except UsageError:  # which the engine raises too
            continue


# Mistakes in backwards that can be differentiated, so that slopes are compared row by row.


def planted(sample: Any, backward: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The operator with this backward, whose gradients have a graph to the cotangent."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return sample.function(*inputs).clone()

        @staticmethod
        def backward(ctx, v):
            inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            with torch.enable_grad():
                output = sample.function(*inputs)

                def pull(w):
                    return torch.autograd.grad(output, inputs, w, create_graph=True)

                return tuple(backward(v, pull))

    return Planted.apply


OPERATORS = ("sin", "matmul", "softmax", "nn.functional.layer_norm", "linalg.inv", "mul")


@functools.cache
def samples_of(operator: str) -> list[Any]:
    pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")
    import _planting

    found = _planting.picked(f"{operator} float64", 2)
    return [s for s in found if len(s.differentiable) == len(s.inputs)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_it_settles_of_a_planted_mistake_the_checks_pass(operator: str) -> None:
    samples = samples_of(operator)
    import _mistakes
    import planted as planting

    right = wrong = 0
    for sample in samples:
        site = dataclasses.replace(planting.site_of(sample, seed=0), delta=1e-3)
        found = asked(planted(sample, lambda v, pull: pull(v)), sample.inputs, "drop-in", seed=2)
        right += "backward" in found
        for mistake in _mistakes.mistakes():
            if mistake.fits(site):
                here = dataclasses.replace(site, memory={})
                fn = planted(sample, functools.partial(mistake.plant, here))
                found = asked(fn, sample.inputs, "drop-in", seed=2)
                wrong += not {"backward", "linearity", "layout", "hygiene"} <= set(found)
    assert right == len(samples)  # it settles what it is for
    assert wrong >= 10 * len(samples)


# What it costs, and what is said.


def normal(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_the_ordinary_case_takes_ten_runs_and_seven_backwards() -> None:
    counted = Counted(torch.sin)
    assert gradcheck(counted, (normal(5, 5),))
    assert counted.runs <= 10
    assert counted.backwards <= 7


class WrongSine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, v):
        (x,) = ctx.saved_tensors
        return 1.25 * v * x.cos()


def test_of_a_smooth_function_a_wrong_column_takes_four_calls() -> None:
    counted = Counted(WrongSine.apply)
    report = gradproof.check(counted, (normal(60),), seed=8)
    assert report["backward"].verdict is Verdict.FAILED
    assert [cause.name for cause in report["backward"].causes] == ["factor"]
    assert report["backward"].calls["value"] <= 4 * 60 + 80


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (torch.sin, (normal(5, 5),)),
        (torch.matmul, (normal(3, 4), normal(4, 2))),
        (lambda x: torch.softmax(x, -1), (normal(4, 6),)),
        (lambda x: (x.sin(), x.exp().sum()), (normal(7),)),
        (lambda x: x.t(), (normal(3, 4),)),
        (lambda x: torch.fft.fft(x).abs().sum(), (normal(6),)),
        (lambda x: torch.fft.fft(x), (normal(6),)),
    ],
)
def test_the_usual_function_is_settled_in_every_respect(fn, inputs) -> None:
    found = asked(fn, inputs, "drop-in", seed=3)
    several = isinstance(fn(*inputs), tuple)
    left = {"undefined"} if several else set()
    assert set(found) == set(DROP_IN.checks) - left


@pytest.mark.parametrize("fn", [torch.sin, lambda x: torch.softmax(x, 1), lambda x: x @ x])
def test_a_second_point_in_other_layouts_settles_state_and_what_layouts_it_had(fn) -> None:
    assert {"backward", "forward", "state"} <= set(asked(fn, (normal(5, 5),), "check", seed=3))
    report = gradproof.check(fn, (normal(5, 5),), seed=3)
    assert "vjp" not in report["layout"].calls
    assert "inputs transposed" in report["layout"].summary
    assert "expanded" in report["layout"].summary


def test_a_value_that_the_layout_of_the_inputs_changes_is_not_settled() -> None:
    def misread(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x.as_strided(x.shape, (x.shape[1], 1)))

    found = asked(misread, (normal(5, 5),), "check", seed=3)
    assert "backward" in found
    assert "state" not in found


@pytest.mark.parametrize("fn", [torch.linalg.norm, lambda x: torch.logaddexp(x, 3 * x.flip(0))])
def test_where_differences_see_too_little_it_reads_the_table(fn) -> None:
    found = asked(fn, (normal(25),), "check", seed=1)
    [alone] = gradproof.check(fn, (normal(25),), seed=1, checks=["backward"]).checks
    assert found["backward"] == alone.summary


def test_the_report_says_what_it_says_without_the_first_tier() -> None:
    x = normal(5, 5)
    names = [name for name in DROP_IN.checks if name != "sparse"]
    together = gradproof.check(torch.sin, (x,), checks=names, seed=4)
    for name in names:
        if name not in ("traits", "layout", "linearity"):  # which say what else was asked
            alone = gradproof.check(torch.sin, (x,), checks=[name], seed=4)[name]
            assert together[name].oracle == alone.oracle
            assert together[name].notes == alone.notes
            assert together[name].summary.split(" to ")[0] == alone.summary.split(" to ")[0]


def test_calls_are_those_that_were_made() -> None:
    counted = Counted(torch.sin)
    report = gradproof.check(counted, (normal(5, 5),), seed=5)
    assert report.calls["function"] == counted.runs
    by_check = [dict(result.calls) for result in report.checks]
    for kind in ("value", "jvp"):  # `traits` is not counted with its check
        assert sum(each.get(kind, 0) for each in by_check) == report.calls[kind]


class OfNothing(torch.autograd.Function):
    """An output without entries, of which no gradient can come."""

    @staticmethod
    def forward(ctx, x):
        return x[:0].clone()

    @staticmethod
    def backward(ctx, v):
        return torch.ones(6, dtype=v.dtype) + 0 * v.sum()


def test_of_arrays_without_entries_all_is_settled_but_that_there_are_none() -> None:
    settled = {"determinism", "hygiene", "linearity", "sparse", "traits", "undefined"}
    for shape in ((0,), (3, 0)):
        assert set(asked(torch.exp, (normal(*shape),), "drop-in", seed=6)) == settled
    assert set(asked(lambda x: x[:0], (normal(6),), "drop-in", seed=6)) == settled
    assert "linearity" not in asked(OfNothing.apply, (normal(6),), "drop-in", seed=6)
    assert not gradcheck(OfNothing.apply, (normal(6),), raise_exception=False)


COUNT = itertools.count(1)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: torch.relu(x - x.detach()), "a kink at the point"),
        (lambda x: x + next(COUNT), "another value every time"),
        (lambda x: torch.floor(x), "whole numbers"),
        (lambda x: x.detach() * 2 + 0 * x, "a derivative of zero"),
        (lambda x: (x.float() * 2).double() + x, "a part in single precision"),
        (lambda x: x.abs().sqrt() * 1e-9 + (1e8 * x[:1]).sum(), "inputs lost beside another"),
    ],
)
def test_the_extraordinary_is_not_settled(fn, why) -> None:
    assert "backward" not in asked(fn, (normal(6),), "drop-in", seed=6), why


def test_a_write_into_a_contiguous_cotangent_is_seen() -> None:
    """Which a cotangent in another layout hides behind the copy that `.contiguous()` makes."""

    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, v):
            (x,) = ctx.saved_tensors
            return v.contiguous().mul_(x.cos())

    found = asked(Writes.apply, (normal(5),), "drop-in", seed=7)
    assert "hygiene" not in found


def test_the_page_says_what_the_benchmark_recorded() -> None:
    root = Path(__file__).parents[1]
    told = json.loads((root / "benchmarks" / "results" / "speed.json").read_text())["ratios"]
    page = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = {
        "gradcheck": "gradproof.torch.gradcheck",
        "gradgradcheck": "gradproof.torch.gradgradcheck",
        "check": "gradproof.check",
    }
    for name, shown in rows.items():
        [row] = re.findall(rf"^\| `{re.escape(shown)}`.*? %? ?\|$", page, re.MULTILINE)[:1]
        cells = [float(cell.replace("%", "")) for cell in row.split("|")[2:-1]]
        fast, slow = (told[f"{name} / {other}, median"] for other in ("fast", "slow"))
        share = 100 * told[f"{name} / slow, share above 1"]
        expected = [fast, slow, told[f"{name} / slow, sum"], share]
        assert cells == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("face", [gradcheck, gradproof.check])
def test_a_check_leaves_nothing_to_the_garbage_collector(face) -> None:
    """What is kept in a cycle stays, with its vectors, until there is a collection."""

    class Function:
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    fn = Function()
    gone = weakref.ref(fn)
    gc.collect()
    gc.disable()
    try:
        face(fn, (normal(5, 5),))
        del fn
        assert gone() is None
    finally:
        gc.enable()


def test_what_the_first_tier_alone_does_not_see_is_no_doubt_of_a_right_function():
    """Along this tangent the smallest column all but cancels; the whole table sees it."""
    generator = torch.Generator().manual_seed(0)
    for shape in (16, 16, (8, 16)):
        x = torch.randn(shape, dtype=torch.float64, generator=generator)
    options = {"checks": ["backward"], "rtol": 1e-3, "atol": 1e-5, "seed": 1202}
    fn = lambda x: x.softmax(1)  # noqa: E731 (a local)
    result = gradproof.check(fn, (x.requires_grad_(),), **options)["backward"]
    assert (result.verdict, result.notes) == ("passed", ())
    assert result.resolution < 1e-3
