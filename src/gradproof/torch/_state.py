"""The state of PyTorch that belongs to a thread or to the process, and random generators of it.

Every check runs with gradients enabled and outside of inference mode, whatever it is called in,
and puts back what it found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd import forward_ad

from gradproof._guard import keep_context, keep_generator
from gradproof._guard.random import GENERATORS as OTHERS
from gradproof._guard.random import Source, source_of
from gradproof.errors import UsageError
from gradproof.torch._compat import (
    MODE_STACKS,
    default_device,
    forward_level,
    is_fake_mode_active,
    is_forward_grad_enabled,
    leave_transforms,
    saved_tensor_hooks,
    set_forward_grad_enabled,
    set_grad_enabled,
    transform_depth,
)

GENERATORS = (torch.Generator, *OTHERS)


def _generator_states() -> list[torch.Tensor]:
    """Those of the global generators, on the CPU and on devices in use."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.default_generator.get_state(), *devices]


def _set_generator_states(states: list[torch.Tensor]) -> None:
    torch.default_generator.set_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _are_same_states(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    # Devices that came into use later are left out. `torch.equal` takes three times as long.
    pairs = zip(some, others, strict=False)
    return all(one.numpy().tobytes() == other.numpy().tobytes() for one, other in pairs)


keep_generator(
    "PyTorch",
    Source(
        _generator_states,
        _set_generator_states,
        _are_same_states,
        partial(torch.rand, (), device="cpu"),
    ),
)


def sources_in(values: Iterable[object]) -> list[Source]:
    """Every generator of random numbers among some values, PyTorch's and others."""
    found = [
        Source(value.get_state, value.set_state, torch.equal)
        if isinstance(value, torch.Generator)
        else source_of(value)
        for value in values
    ]
    return [source for source in found if source is not None]


class ThreadState(NamedTuple):
    """What PyTorch keeps for this thread, or for the process, at one moment."""

    dtype: torch.dtype
    device: Any
    inference: bool  # in that mode, which a check leaves
    anomalies: tuple[bool, bool]  # looked for, and NaN among them
    gradients: tuple[bool, bool]  # of reverse mode, and of forward mode
    hooks: tuple[str | None, Any]  # of saved tensors: why they are refused, and the last ones
    modes: tuple[int, ...]  # how many are entered, of functions and of operators
    transforms: int  # of torch.func that are entered
    level: int  # of forward mode

    @classmethod
    def now(cls) -> ThreadState:
        """The state now."""
        return cls(
            torch.get_default_dtype(),
            default_device(),
            torch.is_inference_mode_enabled(),
            (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            (torch.is_grad_enabled(), is_forward_grad_enabled()),
            (
                saved_tensor_hooks._saved_tensors_hooks_get_disabled_error_message(),
                saved_tensor_hooks._top_saved_tensors_default_hooks(True),
            ),
            tuple([height() for height, _ in MODE_STACKS]),
            transform_depth(),
            forward_level(),
        )

    def is_usual(self) -> bool:
        """Whether it is that of a program that has changed nothing but the default dtype."""
        return self[1:] == _USUAL

    def restore(self) -> None:
        """Make this the state again; each part, also where another one raises."""
        if ThreadState.now() == self:
            return
        with ExitStack() as undo:
            undo.callback(torch.set_default_dtype, self.dtype)
            undo.callback(self._restore_device)
            undo.callback(torch.set_anomaly_enabled, *self.anomalies)
            undo.callback(self._restore_hooks)
            undo.callback(set_forward_grad_enabled, self.gradients[1])
            undo.callback(set_grad_enabled, self.gradients[0])
            undo.callback(self._leave_modes)
            for _ in range(forward_level() - self.level):
                undo.callback(forward_ad.exit_dual_level)
            if transform_depth() > self.transforms:
                undo.callback(leave_transforms, self.transforms)

    def _restore_device(self) -> None:
        if default_device() is not self.device:
            torch.set_default_device(self.device and self.device.device)

    def _restore_hooks(self) -> None:
        why, there = self.hooks
        saved_tensor_hooks._saved_tensors_hooks_enable()
        while (top := saved_tensor_hooks._top_saved_tensors_default_hooks(True)) and top != there:
            saved_tensor_hooks._pop_saved_tensors_default_hooks()
        if why is not None:
            saved_tensor_hooks._saved_tensors_hooks_disable(why, fail_if_non_empty=False)

    def _leave_modes(self) -> None:
        for kept, (height, leave_last) in zip(self.modes, MODE_STACKS, strict=True):
            for _ in range(height() - kept):
                leave_last()


_USUAL = ThreadState(
    dtype=torch.float32,  # or any other
    device=None,
    inference=False,
    anomalies=(False, True),
    gradients=(True, True),
    hooks=(None, None),
    modes=(0, 0),
    transforms=0,
    level=-1,
)[1:]


@contextmanager
def _usual_state() -> Iterator[None]:
    """Gradients, forward mode and hooks as at the top of a program; what is left of them goes.

    NaN is for the check to find: to look for it in every node reads tensors under vmap. Modes and
    default hooks that are there stay.
    """
    if is_fake_mode_active():
        raise UsageError(
            "the check was called under FakeTensorMode, where tensors have no numbers to measure; "
            "call it outside"
        )
    kept = ThreadState.now()
    try:
        torch.set_anomaly_enabled(False)
        saved_tensor_hooks._saved_tensors_hooks_enable()
        set_grad_enabled(True)
        set_forward_grad_enabled(True)
        yield
    finally:
        kept.restore()


keep_context(_usual_state)
keep_context(partial(torch.inference_mode, mode=False))
