"""How inaccurate an operator is in low precision: what speaks for its failure being its own."""

from __future__ import annotations

import warnings
from dataclasses import replace

import _common as common
import _opdb
import torch
from torch.utils import _pytree as pytree


def inaccuracy(sample: _opdb.Sample) -> str:
    """The error of the low-precision gradient, and what one ulp of the inputs changes.

    Both in units of eps of the entry where the error exceeds the change by the largest factor:
    an error far above the change is the operator's own. Never raises.
    """
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _inaccuracy(sample)
        except Exception as error:
            return f"no float64 gradient: {type(error).__name__}: {common.first_line(str(error))}"


def _inaccuracy(sample: _opdb.Sample) -> str:
    wide = sample.in_double()
    eps = max(torch.finfo(sample.inputs[i].dtype).eps for i in sample.differentiable)
    low, exact = _gradients(sample, seed=1), _gradients(wide, seed=1)
    error = (low - exact).abs()
    moved = torch.stack([(_gradients(_nudged(wide, eps, k), seed=1) - exact).abs()
                         for k in range(8)]).amax(0)  # fmt: skip
    # An entry below a thousandth of the rms counts as one of that size.
    size = torch.maximum(exact.abs(), 1e-3 * exact.abs().square().mean().sqrt())
    size = torch.where(size > 0, size, torch.ones_like(size))
    worst = int((error / (moved + eps * size)).nan_to_num(torch.inf).argmax())
    rms = float(exact.abs().square().mean().sqrt())
    total = float(error.square().mean().sqrt()) / (eps * rms) if rms else torch.nan
    off, change = (float(t[worst] / size[worst] / eps) for t in (error, moved))
    claimed, true = (complex(t[worst]) for t in (low, exact))
    return (
        f"gradient[{worst}] = {claimed:.6g}, in float64 {true:.6g}: off by {off:.3g} eps; "
        f"one ulp of the inputs moves it by {change:.3g} eps; rms error {total:.3g} eps"
    )


def _gradients(sample: _opdb.Sample, *, seed: int) -> torch.Tensor:
    """All gradients of one random functional of the outputs, end to end in double precision."""
    _opdb.seed_everything(0)
    leaves = [x.detach().requires_grad_() if i in sample.differentiable else x
              for i, x in enumerate(sample.inputs)]  # fmt: skip
    outputs = [y for y in pytree.tree_leaves(sample.function(*leaves))
               if isinstance(y, torch.Tensor) and y.requires_grad]  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    # Sixteenths: the same number in every precision.
    cotangents = [torch.randint(-16, 17, y.shape, generator=generator).div(16).to(y.dtype)
                  for y in outputs]  # fmt: skip
    wanted = [leaves[i] for i in sample.differentiable]
    grads = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
    return torch.cat([
        (torch.zeros_like(x) if g is None else g).to_dense().reshape(-1).to(torch.complex128)
        for g, x in zip(grads, wanted, strict=True)
    ])  # fmt: skip


def _nudged(sample: _opdb.Sample, eps: float, seed: int) -> _opdb.Sample:
    """The sample with each input entry moved up or down by one unit in the last place."""
    generator = torch.Generator().manual_seed(seed)
    moved = list(sample.inputs)
    for i, x in enumerate(moved):
        if isinstance(x, torch.Tensor):
            sign = 2 * torch.randint(2, x.shape, generator=generator) - 1
            moved[i] = (x.detach() * (1 + eps * sign)).requires_grad_(x.requires_grad)
    return replace(sample, inputs=tuple(moved))


# Where there is nothing to test ------------------------------------------------------------------

_STEPS = (2.0**-4, 2.0**-8, 2.0**-16)  # in parts of the inputs
_ROUNDING = 64 * 2.0**-53  # of the largest output


def nothing_to_test(sample: _opdb.Sample) -> bool:
    """Whether the derivative is zero here, and the function constant as far as one looks.

    Decided in float64, whatever a tool said, to rounding of the outputs: what all entries of two
    random gradients together would change, and every change of an output along two random
    directions, at three sizes of step both ways, is below it. (A correlation of one variable with
    itself is 1, and its gradient 1e-17.) False where the function does not run in float64. Never
    raises.
    """
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _is_constant(sample.in_double())
        except Exception:  # the operator may raise anything in another precision
            return False


def _is_constant(wide: _opdb.Sample) -> bool:
    start = _values(wide, [None] * len(wide.inputs), 0.0)
    sizes = torch.cat([_size(wide.inputs[i].detach()).reshape(-1) for i in wide.differentiable])
    most = _ROUNDING * float(start.abs().nan_to_num(0.0, 0.0).max()) if start.numel() else 0.0
    changes = [(_gradients(wide, seed=seed).abs() * sizes).sum() for seed in (1, 2)]
    return max(map(float, changes)) <= most and all(
        _stands_still(wide, start, most, seed) for seed in (1, 2)
    )


def _stands_still(wide: _opdb.Sample, start: torch.Tensor, most: float, seed: int) -> bool:
    generator = torch.Generator().manual_seed(seed)
    moves = [torch.randn(x.shape, generator=generator, dtype=torch.float64)
             if i in wide.differentiable else None
             for i, x in enumerate(wide.inputs)]  # fmt: skip
    moved = (_values(wide, moves, way * step) for step in _STEPS for way in (1, -1))
    return all(bool(((end == start) | ((end - start).abs() <= most)).all()) for end in moved)


def _values(sample: _opdb.Sample, moves: list[torch.Tensor | None], step: float) -> torch.Tensor:
    """All outputs as one vector, the differentiable inputs moved by a part of their size."""
    _opdb.seed_everything(0)
    with torch.no_grad():
        inputs = [x if move is None else x.detach() + step * move * _size(x)
                  for x, move in zip(sample.inputs, moves, strict=True)]  # fmt: skip
        outputs = pytree.tree_leaves(sample.function(*inputs))
    return torch.cat([
        y.to_dense().reshape(-1).to(torch.complex128)
        for y in outputs
        if isinstance(y, torch.Tensor) and (y.is_floating_point() or y.is_complex())
    ])  # fmt: skip


def _size(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x == 0, torch.ones_like(x), x).abs()
