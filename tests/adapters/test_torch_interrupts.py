"""An interrupt at any line of ours leaves PyTorch, the user's layers and tensors as they were."""

from __future__ import annotations

import linecache
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.autograd.function import FunctionCtx

import gradproof
from exhibits.frame import normal
from gradproof.torch import gradcheck

OURS = Path(gradproof.__file__).parent
# The code that puts something in place, and puts it back.
CHANGING = tuple(str(OURS / folder) for folder in ("_guard", "_adapters", "torch"))
SAMPLED = 20  # interrupts of each case in the default suite


class Lines:
    """Follows a run through the lines of that code, and sends SIGINT at one of them.

    Args:
        at: which one; none where negative.

    Attributes:
        seen: every line that was run, as often as it was.
    """

    def __init__(self, at: int = -1) -> None:
        self.at, self.seen = at, list[tuple[str, int]]()

    def call(self, run: Callable[[], Any]) -> bool:
        """Whether the run was interrupted."""
        before, handler = sys.gettrace(), signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(self._entered)
        try:
            run()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            signal.signal(signal.SIGINT, handler)
        return False

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(CHANGING) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        # Python lets no interrupt in where nothing is called, nor between the end of a block and
        # the release of its lock.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and line not in ("with _turns, _Turn():", "try:"):
            self.seen.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.seen) - 1 == self.at:
                signal.raise_signal(signal.SIGINT)
        return self._line


class Everything:
    """What a check may not change: a layer, tensors, random states, and PyTorch's own."""

    def __init__(self, layer: torch.nn.Module | None, tensors: list[torch.Tensor]) -> None:
        self._layer, self._tensors = layer, list(tensors)
        if layer is not None:
            self._tensors += layer.state_dict(keep_vars=True).values()
        self.before = self.now()

    def now(self) -> dict[str, Any]:
        c, autograd = torch._C, torch._C._autograd
        found: dict[str, Any] = {
            "python": random.getstate(),
            "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002  # the global one
            "torch": torch.get_rng_state().tolist(),
            "filters": (id(warnings.filters), list(warnings.filters), warnings.showwarning),
            "grad mode": (torch.is_grad_enabled(), c._is_fwd_grad_enabled()),
            "inference": torch.is_inference_mode_enabled(),
            "anomaly": torch.is_anomaly_enabled(),
            "level": forward_ad._current_level,
            "dispatch": [c._get_dispatch_stack_at(k) for k in range(c._len_torch_dispatch_stack())],
            "function": [c._get_function_stack_at(k) for k in range(c._len_torch_function_stack())],
            "functorch": c._functorch.get_dynamic_layer_stack_depth(),
            "hooks": autograd._top_saved_tensors_default_hooks(True),
            "allowed": autograd._saved_tensors_hooks_get_disabled_error_message(),
            "defaults": (torch.get_default_dtype(), torch.get_default_device()),
            "declared": FunctionCtx.mark_non_differentiable,
            "errstate": np.geterr(),
            "handler": signal.getsignal(signal.SIGINT),
        }
        for k, tensor in enumerate(self._tensors):
            values = tensor.detach().tolist()
            grad = None if tensor.grad is None else (id(tensor.grad), tensor.grad.tolist())
            hooks = tuple(tensor._backward_hooks or ())
            found[f"tensor {k}"] = (id(tensor), values, tensor._version, grad, hooks)
        for name, module in self._layer.named_modules() if self._layer is not None else ():
            for store in (vars(module), module._parameters, module._buffers):
                held = {key: id(value) for key, value in store.items()}
                found[f"{name} {len(found)}"] = (list(held.items()), module.training)
        return found

    def changed(self) -> list[str]:
        after = self.now()
        return [name for name in self.before if after.get(name) != self.before[name]]


@pytest.fixture(autouse=True)
def unusual() -> Iterator[None]:
    """A check has a grad mode to change, and to put back."""
    torch.set_anomaly_enabled(True)
    torch.set_grad_enabled(False)
    yield
    torch.set_grad_enabled(True)
    torch.set_anomaly_enabled(False)


def of_layer() -> tuple[Callable[[], Any], Everything]:
    layer = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Dropout(0.5)
    ).double()
    x = normal(4, 3)
    with torch.enable_grad():
        layer(x).sum().backward()
    x.register_hook(lambda v: v)
    checks = ["backward", "forward", "side_effects", "batched", "grad_metadata", "memory_layout"]
    run = lambda: gradproof.check(layer, (x,), checks=checks, seed=0)  # noqa: E731
    return run, Everything(layer, [x])


def of_captured() -> tuple[Callable[[], Any], Everything]:
    held, weight, x = {"w": [normal(2)]}, normal(2), normal(2)

    def fn(x, scale=weight):
        return (x * held["w"][0]).sin() * scale * torch.rand(2, dtype=x.dtype) * random.random()

    checks = ["backward", "forward", "second_order", "side_effects"]
    run = lambda: gradproof.check(fn, (x,), checks=checks, order=2, seed=0)  # noqa: E731
    return run, Everything(None, [*held["w"], weight, x])


def of_outer() -> tuple[Callable[[], Any], Everything]:
    """The function reads the very tensor that is given, which is moved and put back."""
    x = normal(2)
    run = lambda: gradcheck(lambda _: x.sin(), (x,))  # noqa: E731
    return run, Everything(None, [x])


def of_single() -> tuple[Callable[[], Any], Everything]:
    """In single precision: other maps, dispatch modes."""
    x = normal(2).detach().float().requires_grad_()
    run = lambda: gradproof.check(torch.tanh, (x,), checks=["backward", "forward"], seed=0)  # noqa: E731
    return run, Everything(None, [x])


CASES = {"layer": of_layer, "captured": of_captured, "outer": of_outer, "single": of_single}


def faults(case: str, chosen: Callable[[list[Any]], Iterable[int]]) -> list[str]:
    """Interrupts after which something was changed."""
    run, _ = CASES[case]()
    run()  # imports
    run, everything = CASES[case]()
    lines = Lines()
    assert not lines.call(run)
    assert everything.changed() == []
    found = []
    for at in chosen(lines.seen):
        interrupted = Lines(at)
        if interrupted.call(run):
            assert interrupted.seen[at] == lines.seen[at], "a check runs the same lines each time"
        if changed := everything.changed():
            found.append(f"{interrupted.seen[at]}: {', '.join(changed)}")
            run, everything = CASES[case]()
    return found


@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_changes_nothing(case):
    drawn = random.Random(case)
    assert faults(case, lambda lines: drawn.sample(range(len(lines)), SAMPLED)) == []


def test_an_interrupt_of_what_puts_everything_back_changes_nothing():
    """At each of the last lines, which are the guard's."""
    assert faults("outer", lambda lines: range(len(lines) - 120, len(lines))) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_interrupt_at_any_line_changes_nothing(case):
    """The first time that it is run, the last, and one between."""
    drawn = random.Random(case)

    def thrice(lines: list[Any]) -> Iterable[int]:
        times: dict[Any, list[int]] = {}
        for k, line in enumerate(lines):
            times.setdefault(line, []).append(k)
        return sorted({k for at in times.values() for k in (at[0], drawn.choice(at), at[-1])})

    assert faults(case, thrice) == []
