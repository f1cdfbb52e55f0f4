"""What is allowed never grows with the size: copies side by side change no verdict, in any check.

One entry is wrong by 1 %, among a hundred, ten thousand or a million that are right; for each check
in the way that it asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._C import _functorch as functorch

import gradproof
from exhibits.frame import ruled

SIZES = [100, 10_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
Kernel = Callable[[Tensor], Any]


def spoil(values: Tensor) -> Tensor:
    """The values, one of them a hundredth larger."""
    weights = torch.ones(values.shape[-1], dtype=values.dtype)
    weights[values.shape[-1] // 3] = 1.01
    return values * weights


def times_slope(probe: Tensor, x: Tensor) -> Tensor:
    return probe * x.cos()


def wrong_where(is_wrong: Callable[[Tensor, Tensor], bool]) -> Kernel:
    """The sine, one entry of whose gradient is wrong for some cotangents or inputs."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return spoil(g * x.cos()) if is_wrong(g, x) else g * x.cos()

    return ruled(torch.sin, backward, times_slope)


def wrong_from_the_second_call_on() -> Kernel:
    calls = itertools.count()
    return wrong_where(lambda g, x: next(calls) > 0)


def wrong_where_one_is_missing() -> Kernel:
    """The sine and the cosine."""

    def backward(g: Tensor | None, h: Tensor | None, x: Tensor) -> Tensor | None:
        given = [v * slope for v, slope in ((g, x.cos()), (h, -x.sin())) if v is not None]
        whole = sum(given) if given else None
        return spoil(whole) if len(given) == 1 else whole

    def jvp(u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return u * x.cos(), -u * x.sin()

    return ruled(lambda x: (x.sin(), x.cos()), backward, jvp, materialize=False)


def of_the_first_point() -> Kernel:
    """The slope of one entry is nearer to that at the first point."""
    points: list[Tensor] = []

    def value(x: Tensor) -> Tensor:
        points.append(x.detach().clone())
        return x.sin()

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * x.cos() + (spoil(g) - g) * (points[0].cos() - x.cos())

    return ruled(value, backward, times_slope)


def wrong_when_differentiated() -> Kernel:
    slope = ruled(times_slope, lambda w, g, x: (w * x.cos(), spoil(-w * g * x.sin())), vmap=False)
    return ruled(torch.sin, slope, times_slope)


def is_large(g: Tensor, x: Tensor) -> bool:
    return not functorch.is_batchedtensor(g) and bool(g.abs().max() > 1e3)


# The check that must fail, and a kernel with a wrong entry that it must find.
KERNELS: dict[str, Callable[[], Kernel]] = {
    "backward": lambda: wrong_where(lambda g, x: True),
    "forward": lambda: ruled(torch.sin, times_slope, lambda u, x: spoil(u * x.cos())),
    "linearity": lambda: wrong_where(is_large),
    "memory_layout": lambda: wrong_where(lambda g, x: not g.is_contiguous()),
    "determinism": wrong_from_the_second_call_on,
    "missing_grad_output": wrong_where_one_is_missing,
    "second_point": of_the_first_point,
    "batched": lambda: wrong_where(lambda g, x: functorch.is_batchedtensor(g)),
    "second_order": wrong_when_differentiated,
    "functional_vjp": lambda: wrong_where(lambda g, x: functorch.is_functorch_wrapped_tensor(x)),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "determinism": {"checks": ["determinism"]},
    "second_order": {"order": 2},
    "functional_vjp": {"transforms": ["functional_vjp"]},
}


def point(size: int) -> Tensor:
    generator = torch.Generator().manual_seed(size)
    x = torch.rand(size, generator=generator, dtype=torch.float64)
    return (0.5 + 0.5 * x).requires_grad_()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("check", KERNELS)
def test_one_wrong_entry_fails_however_many_are_right(check: str, size: int) -> None:
    if check == "second_point" and size > 10_000:
        pytest.xfail(
            "the other point is compared along one probe, in which 1 % of 10^6 is too little"
        )
    # Half of the entries are large in the cotangents of linearity: with this seed the wrong one is.
    report = gradproof.check(KERNELS[check](), (point(size),), seed=10, **OPTIONS.get(check, {}))
    expected = {check, "forward_vs_backward"} if check in ("backward", "forward") else {check}
    assert {row.name for row in report.checks if str(row.verdict) == "failed"} == expected


# 140,000 outputs are the least of which only few and short vectors are kept.
@pytest.mark.parametrize("size", [*SIZES, 140_000])
def test_the_right_function_passes_however_large(size: int) -> None:
    for fn, order in ((wrong_where(lambda g, x: False), 1), (torch.sin, 2 if size <= 100 else 1)):
        report = gradproof.check(fn, (point(size),), seed=0, order=order)
        assert str(report.verdict) == "passed"
