"""The state of PyTorch that belongs to a thread or to the process, and random generators of it.

Every check runs with gradients enabled and outside of inference mode, whatever it is called in,
and puts back what it found.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from gradproof._guard import keep_context, keep_generator
from gradproof._guard.random import GENERATORS as OTHERS
from gradproof._guard.random import Source, source_of
from gradproof.errors import UsageError
from gradproof.torch._compat import (
    LAZY_BITS,
    MODE_STACKS,
    default_device,
    forward_level,
    frame_evaluation,
    is_fake_mode_active,
    is_forward_grad_enabled,
    is_key_excluded,
    leave_transforms,
    saved_tensor_hooks,
    set_forward_grad_enabled,
    set_grad_enabled,
    set_key_excluded,
    transform_depth,
)

GENERATORS = (torch.Generator, *OTHERS)


_CPU = torch.default_generator


def _generators() -> list[torch.Tensor]:
    """The states of the global generators, on the CPU and on devices in use."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [_CPU.get_state(), *devices]


def _set_generators(states: list[torch.Tensor]) -> None:
    _CPU.set_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _same_state(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two states are the same: to compare byte by byte takes twice as long."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def _are_same_states(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(_same_state, some, others))  # devices that came into use later are left out


_DRAW = partial(torch.rand, (), device="cpu")
keep_generator(
    "PyTorch",
    Source(_generators, _set_generators, _are_same_states, _DRAW)
    if torch.backends.cuda.is_built()
    else Source(_CPU.get_state, _CPU.set_state, _same_state, _DRAW),
)


def sources_in(values: Iterable[object]) -> list[Source]:
    """Every generator of random numbers among some values, PyTorch's and others."""
    others = (value for value in values if type(value) is not torch.Tensor)
    return [source for value in others if (source := _source_of(value)) is not None]


def _source_of(value: object) -> Source | None:
    if isinstance(value, torch.Generator):
        return Source(value.get_state, value.set_state, _same_state)
    return source_of(value)


def put_device_back(kept: Any) -> None:
    """Make what `default_device` told the default device again."""
    if default_device() is not kept:
        torch.set_default_device(kept and kept.device)


@contextmanager
def _defaults_kept() -> Iterator[None]:
    dtype, device = torch.get_default_dtype(), default_device()
    try:
        yield
    finally:
        put_device_back(device)
        if torch.get_default_dtype() is not dtype:  # to ask takes less than to say so
            torch.set_default_dtype(dtype)


@contextmanager
def _without_anomalies() -> Iterator[None]:
    """NaN is for the check to find: to look for it in every node reads tensors under vmap."""
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    try:
        torch.set_anomaly_enabled(False)
        yield
    finally:
        torch.set_anomaly_enabled(*before)


@contextmanager
def _allow_hooks() -> Iterator[None]:
    """Default hooks of saved tensors that are there stay, and further ones are allowed."""
    why = saved_tensor_hooks._saved_tensors_hooks_get_disabled_error_message()
    there = saved_tensor_hooks._top_saved_tensors_default_hooks(True)
    try:
        saved_tensor_hooks._saved_tensors_hooks_enable()
        yield
    finally:
        saved_tensor_hooks._saved_tensors_hooks_enable()
        while (top := saved_tensor_hooks._top_saved_tensors_default_hooks(True)) and top != there:
            saved_tensor_hooks._pop_saved_tensors_default_hooks()
        if why is not None:
            saved_tensor_hooks._saved_tensors_hooks_disable(why, fail_if_non_empty=False)


@contextmanager
def _enable_gradients() -> Iterator[None]:
    before = torch.is_grad_enabled(), is_forward_grad_enabled()
    try:
        set_grad_enabled(True)
        set_forward_grad_enabled(True)
        yield
    finally:
        set_grad_enabled(before[0])
        set_forward_grad_enabled(before[1])


@contextmanager
def _modes_kept() -> Iterator[None]:
    before = [list(map(at, range(length()))) for length, at, _, _ in MODE_STACKS]
    try:
        yield
    finally:
        for modes, (length, at, pop, push) in zip(before, MODE_STACKS, strict=True):
            while (height := length()) > len(modes) or (
                height and at(height - 1) is not modes[height - 1]
            ):
                pop()
            for mode in modes[height:]:
                push(mode)


@contextmanager
def _levels_kept() -> Iterator[None]:
    """Transforms of torch.func and levels of forward mode that were entered are left."""
    depth, level = transform_depth(), forward_level()
    try:
        yield
    finally:
        if transform_depth() > depth:
            leave_transforms(depth)
        while forward_level() > level:
            forward_ad.exit_dual_level()


@contextmanager
def _keys_kept() -> Iterator[None]:
    before = [is_key_excluded(key) for key in LAZY_BITS]
    try:
        yield
    finally:
        for key, out in zip(LAZY_BITS, before, strict=True):
            set_key_excluded(key, out)


@contextmanager
def _usual_state() -> Iterator[None]:
    """Gradients, forward mode, hooks and modes as at the top of a program."""
    if is_fake_mode_active():
        raise UsageError(
            "the check was called under FakeTensorMode, where tensors have no numbers to measure; "
            "call it outside"
        )
    with (
        _defaults_kept(),
        _without_anomalies(),
        _allow_hooks(),
        _enable_gradients(),
        _modes_kept(),
        _keys_kept(),
        _levels_kept(),
    ):
        yield


def _outside_inference() -> AbstractContextManager[object]:
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


class UsualState:
    """The state of this thread where nothing is unusual, so that no context has to be made for it.

    Every such state is `_USUAL` but for the default dtype and the filters of warnings.
    """

    def __init__(self) -> None:
        self._values = _state_of_thread()
        self._kept = torch.get_default_dtype(), warnings.filters, warnings.showwarning

    @classmethod
    def now(cls) -> UsualState | None:
        """The state now; None where it is not usual."""
        made = cls()
        return made if made._values == _USUAL else None

    def has_changed(self) -> bool:
        kept = torch.get_default_dtype(), warnings.filters, warnings.showwarning
        return _state_of_thread() != _USUAL or any(map(operator.is_not, kept, self._kept))

    def restore(self) -> None:
        """Make this the state again."""
        if not self.has_changed():
            return
        dtype, warnings.filters, warnings.showwarning = self._kept
        with ExitStack() as undo:
            undo.callback(torch.set_default_dtype, dtype)
            undo.callback(put_device_back, None)
            undo.callback(torch.set_anomaly_enabled, False)
            undo.callback(_enable_hooks)
            undo.callback(set_grad_enabled, True)
            undo.callback(set_forward_grad_enabled, True)
            for length, _, pop, _ in MODE_STACKS:
                for _ in range(length()):
                    undo.callback(pop)
            for key in LAZY_BITS:
                undo.callback(set_key_excluded, key, False)
            undo.callback(leave_transforms, 0)
            for _ in range(forward_level() + 1):
                undo.callback(forward_ad.exit_dual_level)


def _enable_hooks() -> None:
    saved_tensor_hooks._saved_tensors_hooks_enable()
    while saved_tensor_hooks._top_saved_tensors_default_hooks(True):
        saved_tensor_hooks._pop_saved_tensors_default_hooks()


def _state_of_thread() -> tuple[Any, ...]:
    compiler = frame_evaluation()
    return (
        compiler is None or compiler.get_eval_frame_callback() is None,
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
        is_forward_grad_enabled(),
        torch.is_anomaly_enabled(),
        default_device(),
        saved_tensor_hooks._saved_tensors_hooks_get_disabled_error_message(),
        saved_tensor_hooks._top_saved_tensors_default_hooks(True),
        *[length() for length, _, _, _ in MODE_STACKS],
        *map(is_key_excluded, LAZY_BITS),
        transform_depth(),
        forward_level(),
    )


_USUAL = (True, False, True, True, False, None, None, None, 0, 0, False, False, 0, -1)


@contextmanager
def _compiler_off() -> Iterator[None]:
    """Compile the function under test where a check says so, and no check with its caller."""
    compiler = frame_evaluation()
    if compiler is None:  # nobody compiles
        yield
        return
    before = compiler.get_eval_frame_callback()
    try:
        compiler.set_eval_frame(None)
        yield
    finally:
        compiler.set_eval_frame(before)


keep_context("compiler", _compiler_off)  # first, or the compiler is given what follows
keep_context("torch", _usual_state)
keep_context("inference mode", _outside_inference)
