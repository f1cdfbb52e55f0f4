"""Where the fast path of the drop-in says that a derivative passed, the engine says so too."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seeds import seeds

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import _wrappers
from _mistakes import Mistake, Site, mistakes
from _more_mistakes import FUNCTIONS as FORMULAS
from _more_mistakes import more_mistakes

from gradproof._guard.random import RandomState
from gradproof.errors import DerivativeWarning
from gradproof.torch import _judge, gradcheck, gradgradcheck
from gradproof.torch._fast_path import decide_quickly
from gradproof.torch._modes import FunctionMode
from gradproof.torch._state import ThreadState
from museum import EXHIBITS

F = torch.nn.functional
Function = Callable[..., Any]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Function:
    """The drop-in without its fast path: whether it accepts a function without any doubt."""
    monkeypatch.setattr(_judge, "decide_quickly", lambda *_, **__: None)

    def accepts(fn: Function, inputs: Any) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", DerivativeWarning)
            try:
                return gradcheck(fn, inputs)
            except Exception:  # of the function, or of the check
                return False

    return accepts


def is_quick(fn: Function, inputs: Any, seed: int = 0) -> bool:
    inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return decide_quickly(lambda: (fn, tuple(inputs)), seed, undefined=True) is not None


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    return tuple(
        torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes
    )


ORDINARY: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "sin": (torch.sin, normal((5, 5))),
    "relu": (torch.relu, normal((5, 5))),
    "softmax": (lambda x: x.softmax(1), normal((4, 6))),
    "cumsum": (lambda x: x.cumsum(0), normal((7,))),
    "sum": (torch.sum, normal((3, 4))),
    "max": (lambda x: x.max(1), normal((3, 4))),
    "scalar": (torch.exp, normal(())),
    "two outputs": (lambda x: (x.sin(), x.exp().sum(0)), normal((3, 4))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), normal((4, 6), (6,), (6,))),
    "matmul": (torch.matmul, normal((3, 4), (4, 2))),
    "conv2d": (F.conv2d, normal((2, 2, 5, 5), (3, 2, 3, 3), (3,))),
    "complex": (torch.exp, normal((3, 2), dtype=torch.complex128)),
    "complex and real": (
        torch.mul,
        (*normal((3,)), *normal((3,), dtype=torch.complex128)),
    ),
    "identity": (lambda x: x, normal((3,))),
    "an index": (lambda x: x[[0, 2, 2]], normal((4, 2))),
    "a constant and a tensor": (
        lambda x, p, y: (x**p) * y,
        (*normal((3,)), 2, torch.arange(1.0, 4, dtype=torch.float64)),
    ),
}


NO_MISTAKE = Mistake("none", lambda _, v, pull: pull(v))


@pytest.mark.parametrize("name", ["sin", "softmax", "matmul", "layer norm", "conv2d", "complex"])
def test_backwards_that_are_differentiable_once_are_decided(name: str, engine: Function) -> None:
    fn, inputs = ORDINARY[name]
    once = with_mistake(fn, NO_MISTAKE, None, twice=False)
    assert all(is_quick(once, inputs, seed) for seed in range(5))
    assert engine(once, inputs)


@pytest.mark.parametrize("twice", [True, False], ids=["twice", "once"])
def test_long_outputs_are_decided_where_they_are_right(twice: bool) -> None:
    """More outputs than vectors of special cotangents, or a finer table of all of them, are for."""

    def a_row_scaled(_: Site | None, v: Tensor, pull: Callable[[Tensor], Any]) -> list[Tensor]:
        (gradient,) = pull(v)
        return [torch.cat([gradient[:1] * (1 + 1e-4), gradient[1:]])]

    (x,), fn = normal((400, 400)), partial(torch.softmax, dim=1)
    assert is_quick(with_mistake(fn, NO_MISTAKE, None, twice=twice), x)
    assert not is_quick(with_mistake(fn, Mistake("a row", a_row_scaled), None, twice=twice), x)


def with_faint_input(factor: float, size: float) -> Function:
    """10^4 tanh(x) and a little of b, whose gradient is wrong by a factor; differentiable once."""

    class Faint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return 1e4 * x.tanh() + size * b

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor]:
            (x,) = ctx.saved_tensors
            return 1e4 * v * (1 - x.tanh() ** 2), factor * size * v.sum(0)

    return Faint.apply


def test_a_faint_input_of_a_long_output_is_asked_alone() -> None:
    """The noise of tanh, which differs from processor to processor, may leave a seed undecided."""
    inputs, seeds = normal((400, 400), (400,)), range(4)
    assert sum(is_quick(with_faint_input(1.0, 1e-3), inputs, seed) for seed in seeds) > 1
    assert not any(is_quick(with_faint_input(2.0, 1e-4), inputs, seed) for seed in seeds)


def test_nothing_claimed_is_no_wrong_entry(engine: Function) -> None:
    """Of a column of which one row is known the others were held against zero."""
    inputs = normal((30, 30), (30,))
    with pytest.warns(DerivativeWarning, match="by no entry that is wrong"):
        assert gradcheck(with_faint_input(1.003, 1e-3), inputs)  # 3e-6, of 1e-5 that is tolerated
    assert not engine(with_faint_input(1.1, 1e-3), inputs)


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_functions_are_decided_as_the_engine_does(name: str, engine: Function) -> None:
    fn, inputs = ORDINARY[name]
    assert all(is_quick(fn, inputs, seed) for seed in range(5))
    assert engine(fn, inputs)


def with_mistake(
    fn: Function, mistake: Mistake, site: Site | None, *, twice: bool = True
) -> Function:
    """The function of tensors that require grad, with a mistake in its backward.

    The backward can be differentiated, as those of the benchmarks cannot, or not. Each has a memory
    of its own.
    """
    site = site and replace(site, memory={})

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return fn(*inputs).clone()

        @staticmethod
        @(lambda backward: backward if twice else once_differentiable(backward))
        def backward(ctx: Any, v: Tensor) -> Any:
            def pull(v: Tensor) -> tuple[Tensor, ...]:
                create = torch.is_grad_enabled()
                with torch.enable_grad():
                    inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                    return torch.autograd.grad(fn(*inputs), inputs, v, create_graph=create)

            return tuple(mistake.plant(site, v, pull))

    return Planted.apply


def sites(seed: int) -> Iterator[tuple[Function, tuple[Tensor, ...], Site]]:
    """Ordinary functions of one output, and an entry of the Jacobian to spoil."""
    for fn, inputs in ORDINARY.values():
        if not all(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            continue
        output = fn(*inputs)
        if isinstance(output, Tensor):
            generator = torch.Generator().manual_seed(seed)
            slot = seed % len(inputs)
            row, column = (int(torch.randint(t.numel(), (), generator=generator))
                           for t in (output, inputs[slot]))  # fmt: skip
            site = Site(inputs, output.detach(), row, slot, column, 1.0, 1e-3, generator)
            yield fn, inputs, site


def assert_engine_agrees(
    engine: Function, makes: Callable[[], Function], inputs: Any, what: object, seed: int = 0
) -> bool:
    """Whether it was decided; each asks of a function of its own, since some keep a state."""
    decided = is_quick(makes(), inputs, seed)
    assert not decided or engine(makes(), inputs), what
    return decided


CHANGES_OF_THE_COTANGENT = (
    _wrappers.flushed,
    _wrappers.clamped,
    _wrappers.overflowing,
    _wrappers.rows_with_a_zero_skipped,
    _wrappers.end_skipped,
    _wrappers.in_steps,
    _wrappers.in_float16,
    _wrappers.whole_numbers,
    lambda v: v if v.dim() < 1 or bool((v[:1] != 0).any()) else 0 * v,
    lambda v: 2 * v if bool((v == v.reshape(-1)[0]).all()) else v,
    lambda v: 2 * v if bool((v == 1).all()) else v,
    lambda v: 2 * v if float(v.sum()) == 0 else v,
    lambda v: 2 * v if int((v != 0).sum()) == 1 else v,
    lambda v: v if v.is_contiguous() else v.contiguous().flip(-1),
    lambda v: v if 0 not in v.stride() else 2 * v,
    lambda v: v if not v.is_neg() else -v,
    lambda v: v * v.abs(),
    lambda v: v.abs(),
    lambda v: v + 1,
)


def of_cotangent(number: int, change: Callable[[Tensor], Tensor]) -> Mistake:
    return Mistake(f"change {number} of the cotangent", lambda _, v, pull: pull(change(v)))


CHANGED = itertools.starmap(of_cotangent, enumerate(CHANGES_OF_THE_COTANGENT))
PLANTED = (*mistakes(), *more_mistakes(), *CHANGED)


@pytest.mark.parametrize("twice", [True, False], ids=["twice", "once"])
@seeds(0, more=range(1, 6))
def test_planted_mistakes(seed: int, twice: bool, engine: Function) -> None:
    decided = tried = 0
    for fn, inputs, site in sites(seed):
        for mistake in PLANTED:
            if mistake.fits(site):
                tried += 1
                decided += assert_engine_agrees(
                    engine,
                    partial(with_mistake, fn, mistake, site, twice=twice),
                    inputs,
                    (fn, mistake.name),
                    seed,
                )
    assert tried > 300
    assert decided < tried / 4  # those that change nothing


def sine(backward: Callable[..., Tensor]) -> Function:
    """Sine, whose backward is right where it is to be differentiated again."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.x, slope = x, x.cos()
            ctx.save_for_backward(x, slope)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, v: Tensor) -> Tensor:
            x, slope = ctx.saved_tensors
            return v * x.cos() if torch.is_grad_enabled() else backward(ctx, v, slope)

    return Sine.apply


def kept_by(key: Callable[[Tensor], Any]) -> Callable[[], Function]:
    """Gradients are kept by a key of the cotangent."""

    def make() -> Function:
        kept: dict[Any, Tensor] = {}
        return sine(lambda ctx, v, slope: kept.setdefault(key(v), v * slope))

    return make


def changing(change: Callable[[Any, Tensor, Tensor], object]) -> Callable[[], Function]:
    """The backward changes something beside."""

    def backward(ctx: Any, v: Tensor, slope: Tensor) -> Tensor:
        gradient = v * slope
        change(ctx, v, slope)
        return gradient

    return lambda: sine(backward)


EFFECTS: dict[str, Callable[[], Function]] = {
    "kept by the cotangent": kept_by(id),
    "kept by the place of the cotangent": kept_by(lambda v: (v.data_ptr(), v._version)),
    "kept by the shape": kept_by(lambda v: v.shape),
    "writes to the cotangent": changing(lambda ctx, v, slope: v.mul_(2)),
    "writes past the version of the cotangent": changing(lambda ctx, v, slope: v.data.mul_(2)),
    "writes to what is saved": changing(lambda ctx, v, slope: slope.data.mul_(1.0 + 2.0**-50)),
    "writes to its input": changing(lambda ctx, v, slope: ctx.x.data.mul_(2)),
    "draws": changing(lambda ctx, v, slope: torch.rand(1)),
    "seeds": changing(lambda ctx, v, slope: torch.manual_seed(0)),
    "sets the default dtype": changing(lambda *_: torch.set_default_dtype(torch.float64)),
    "sets .grad": changing(lambda ctx, v, slope: setattr(ctx.x, "grad", v.clone())),
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_effects_are_not_decided_and_leave_nothing(effect: str) -> None:
    torch.manual_seed(0)
    (x,) = normal((3, 4))
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    values = x.detach().clone()
    assert not is_quick(EFFECTS[effect](), x)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() is dtype
    assert torch.equal(x, values)
    assert x.grad is None


def test_states_that_a_function_leaves_are_put_back() -> None:
    def leave(x: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        torch.set_anomaly_enabled(True)
        torch.autograd.forward_ad.enter_dual_level()
        torch.autograd.graph.save_on_cpu().__enter__()
        FunctionMode(lambda func, args, kwargs: func(*args, **kwargs)).__enter__()
        warnings.filters = list(warnings.filters)
        torch.set_default_dtype(torch.float16)
        torch.rand(2)
        return x.sin()

    state, filters, random = ThreadState.now(), warnings.filters, RandomState()
    assert state.is_usual()
    assert not is_quick(leave, normal((3,)))
    assert ThreadState.now() == state
    assert warnings.filters is filters
    assert not random.moved_generators()


def test_an_unusual_state_is_not_decided() -> None:
    (x,) = normal((3,))
    assert is_quick(torch.sin, x)
    with torch.no_grad():
        assert not is_quick(torch.sin, x)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda one: one.name)
def test_mistakes_of_one_formula(formula: Any, engine: Function) -> None:
    for fn in (formula.wrong, formula.right):
        assert_engine_agrees(engine, lambda: fn, formula.inputs(), formula.name)  # noqa: B023


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=str)
def test_exhibits(exhibit: Any, engine: Function) -> None:
    for fn in (exhibit.wrong, exhibit.right):
        if fn is not None:
            assert_engine_agrees(engine, lambda: fn, exhibit.make_inputs(), exhibit)  # noqa: B023


def test_gradgradcheck_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_judge, "judge", lambda *_: pytest.fail("the engine was asked"))
    assert gradgradcheck(torch.sin, normal((3, 4)))
    assert gradcheck(torch.sin, normal((3, 4)), inconclusive="error")
