"""The state of PyTorch that belongs to a thread or to the process, and random generators of it.

Every check runs with gradients enabled and outside of inference mode, whatever it is called in,
and puts back what it found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from gradproof._guard import drawn_from, kept
from gradproof._guard.random import GENERATORS as OTHERS
from gradproof._guard.random import Source, source_of
from gradproof.errors import UsageError

GENERATORS = (torch.Generator, *OTHERS)

_HOOKS: Any = torch._C._autograd
_KEYS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)  # as rounding sets them


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


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(_same_state, some, others))  # devices that came into use later are left out


_DRAW = partial(torch.rand, (), device="cpu")
drawn_from(
    "PyTorch",
    Source(_generators, _set_generators, _same, _DRAW)
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


def _recorded() -> tuple[Callable[[], None], Callable[[], None]]:
    """What makes the state of PyTorch again what it is, and what makes it the usual one."""
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        raise UsageError(
            "the check was called under FakeTensorMode, where tensors have no numbers to measure; "
            "call it outside"
        )
    return _State().restore, _usual


def _usual() -> None:
    """Gradients, forward mode and hooks as at the top of a program."""
    # NaN is for the check to find: to look for it in every node reads tensors under vmap.
    torch.set_anomaly_enabled(False)
    _HOOKS._saved_tensors_hooks_enable()
    torch._C._set_grad_enabled(True)
    torch._C._set_fwd_grad_enabled(True)


def default_device() -> Any:
    """The mode that makes a device the default one; None where nobody has set one.

    To ask PyTorch for the device takes six calls.
    """
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def put_device_back(kept: Any) -> None:
    """Make what `default_device` told the default device again."""
    if default_device() is not kept:
        torch.set_default_device(kept and kept.device)


class _State:
    """Defaults, anomalies, gradients, hooks, modes, transforms and levels of forward mode.

    Default hooks of saved tensors that are there stay, and further ones are allowed.
    """

    def __init__(self) -> None:
        self._dtype, self._device = torch.get_default_dtype(), default_device()
        self._anomalies = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        self._why = _HOOKS._saved_tensors_hooks_get_disabled_error_message()
        self._hooks = _HOOKS._top_saved_tensors_default_hooks(True)
        self._gradients = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()
        self._modes = []
        for length, at, _, _ in _STACKS:
            self._modes.append(list(map(at, range(length()))))
        self._depth = torch._C._functorch.get_dynamic_layer_stack_depth()
        self._level = forward_ad._current_level
        self._excluded = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in _KEYS]

    def restore(self) -> None:
        """Make this the state again."""
        functorch = torch._C._functorch
        if functorch.get_dynamic_layer_stack_depth() > self._depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(self._depth)
        while forward_ad._current_level > self._level:
            forward_ad.exit_dual_level()
        for key, out in zip(_KEYS, self._excluded, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, out)
        for modes, (length, at, pop, push) in zip(self._modes, _STACKS, strict=True):
            while (height := length()) > len(modes) or (
                height and at(height - 1) is not modes[height - 1]
            ):
                pop()
            for mode in modes[height:]:
                push(mode)
        torch._C._set_grad_enabled(self._gradients[0])
        torch._C._set_fwd_grad_enabled(self._gradients[1])
        self._restore_hooks()
        torch.set_anomaly_enabled(*self._anomalies)
        put_device_back(self._device)
        if torch.get_default_dtype() is not self._dtype:  # to ask takes less than to say so
            torch.set_default_dtype(self._dtype)

    def _restore_hooks(self) -> None:
        _HOOKS._saved_tensors_hooks_enable()
        while (top := _HOOKS._top_saved_tensors_default_hooks(True)) and top != self._hooks:
            _HOOKS._pop_saved_tensors_default_hooks()
        if self._why is not None:
            _HOOKS._saved_tensors_hooks_disable(self._why, fail_if_non_empty=False)


# Stacks of modes, of functions first: length, the one at a place, what takes the last, and adds.
_STACKS: tuple[tuple[Callable[..., Any], ...], ...] = (
    (
        torch._C._len_torch_function_stack,
        torch._C._get_function_stack_at,
        torch._C._pop_torch_function_stack,
        torch._C._push_on_torch_function_stack,
    ),
    (
        torch._C._len_torch_dispatch_stack,
        torch._C._get_dispatch_stack_at,
        partial(torch._C._pop_torch_dispatch_stack, None),
        torch._C._push_on_torch_dispatch_stack,
    ),
)


def _outside_inference() -> tuple[Callable[[], object], Callable[[], object]] | None:
    if not torch.is_inference_mode_enabled():
        return None
    outside = torch._C._InferenceMode(False)
    return partial(outside.__exit__, None, None, None), outside.__enter__


def _uncompiled() -> tuple[Callable[[], object], Callable[[], object]] | None:
    """Compile the function under test where a check says so, and no check with its caller."""
    if "torch._dynamo" not in sys.modules:  # nobody compiles, and to import it takes seconds
        return None
    from torch._C._dynamo.eval_frame import get_eval_frame_callback, set_eval_frame

    return partial(set_eval_frame, get_eval_frame_callback()), partial(set_eval_frame, None)


kept("compiler", _uncompiled)  # first, or the compiler is given what follows
kept("torch", _recorded)
kept("inference mode", _outside_inference)
