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

from gradproof._guard import kept
from gradproof._guard.random import GENERATORS as OTHERS
from gradproof._guard.random import GLOBAL, Source, source_of
from gradproof.errors import UsageError

GENERATORS = (torch.Generator, *OTHERS)

_HOOKS: Any = torch._C._autograd
_KEYS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)  # as rounding sets them


def _generators() -> list[torch.Tensor]:
    """The states of the global generators, on the CPU and on devices in use."""
    found = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found += torch.cuda.get_rng_state_all()
    return found


def _set_generators(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state_all(states[1:])


def _same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, some, others))  # devices that came into use later are left out


GLOBAL["PyTorch"] = Source(
    _generators, _set_generators, _same, partial(torch.rand, (), device="cpu")
)


def sources_in(values: Iterable[object]) -> list[Source]:
    """Every generator of random numbers among some values, PyTorch's and others."""
    return [source for value in values if (source := _source_of(value)) is not None]


def _source_of(value: object) -> Source | None:
    if isinstance(value, torch.Generator):
        return Source(value.get_state, value.set_state, torch.equal)
    return source_of(value)


def _recorded() -> tuple[Callable[[], None], Callable[[], None]]:
    """What makes the state of PyTorch again what it is, and what makes it the usual one."""
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        raise UsageError(
            "the check was called under FakeTensorMode, where tensors have no numbers to measure; "
            "call it outside"
        )
    restores: list[Callable[[], object]] = [
        partial(_set_generators, _generators()),
        *_of_defaults(),
        _of_anomalies(),
        _of_hooks(),
        _of_gradients(),
        *_of_stacks(),
    ]

    def restore() -> None:
        for each in reversed(restores):
            each()

    return restore, _usual


def _usual() -> None:
    """Gradients, forward mode and hooks as at the top of a program."""
    # NaN is for the check to find: to look for it in every node reads tensors under vmap.
    torch.set_anomaly_enabled(False)
    _HOOKS._saved_tensors_hooks_enable()
    torch._C._set_grad_enabled(True)
    torch._C._set_fwd_grad_enabled(True)


def _of_defaults() -> list[Callable[[], object]]:
    device, dtype = torch.get_default_device(), torch.get_default_dtype()

    def restore() -> None:
        if torch.get_default_device() != device:
            torch.set_default_device(device)

    return [partial(torch.set_default_dtype, dtype), restore]


def _of_anomalies() -> Callable[[], object]:
    before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    return partial(torch.set_anomaly_enabled, *before)


def _of_gradients() -> Callable[[], None]:
    grad, forward = torch.is_grad_enabled(), torch._C._is_fwd_grad_enabled()

    def restore() -> None:
        torch._C._set_grad_enabled(grad)
        torch._C._set_fwd_grad_enabled(forward)

    return restore


def _outside_inference() -> tuple[Callable[[], object], Callable[[], object]]:
    if not torch.is_inference_mode_enabled():
        return _nothing, _nothing
    outside = torch._C._InferenceMode(False)
    return partial(outside.__exit__, None, None, None), outside.__enter__


def _of_hooks() -> Callable[[], None]:
    """Default hooks of saved tensors: those that are there stay, and further ones are allowed."""
    why = _HOOKS._saved_tensors_hooks_get_disabled_error_message()
    hooks = _HOOKS._top_saved_tensors_default_hooks(True)

    def restore() -> None:
        _HOOKS._saved_tensors_hooks_enable()
        while (top := _HOOKS._top_saved_tensors_default_hooks(True)) and top != hooks:
            _HOOKS._pop_saved_tensors_default_hooks()
        if why is not None:
            _HOOKS._saved_tensors_hooks_disable(why, fail_if_non_empty=False)

    return restore


def _uncompiled() -> tuple[Callable[[], object], Callable[[], object]]:
    """Compile the function under test where a check says so, and no check with its caller."""
    if "torch._dynamo" not in sys.modules:  # nobody compiles, and to import it takes seconds
        return _nothing, _nothing
    from torch._C._dynamo.eval_frame import get_eval_frame_callback, set_eval_frame

    return partial(set_eval_frame, get_eval_frame_callback()), partial(set_eval_frame, None)


def _nothing() -> None:
    pass


def _of_stacks() -> list[Callable[[], object]]:
    """Modes, transforms and levels of forward mode; dispatch keys that are left out."""
    c, functorch = torch._C, torch._C._functorch
    dispatch = _stack(
        c._len_torch_dispatch_stack,
        c._get_dispatch_stack_at,
        partial(c._pop_torch_dispatch_stack, None),
        c._push_on_torch_dispatch_stack,
    )
    function = _stack(
        c._len_torch_function_stack,
        c._get_function_stack_at,
        c._pop_torch_function_stack,
        c._push_on_torch_function_stack,
    )
    depth, level = functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level
    excluded = [(key, c._dispatch_tls_is_dispatch_key_excluded(key)) for key in _KEYS]

    def restore() -> None:
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        while forward_ad._current_level > level:
            forward_ad.exit_dual_level()
        for key, out in excluded:
            c._dispatch_tls_set_dispatch_key_excluded(key, out)

    return [dispatch, function, restore]


def _stack(
    length: Callable[[], int],
    at: Callable[[int], Any],
    pop: Callable[[], Any],
    push: Callable[[Any], object],
) -> Callable[[], None]:
    """What makes a stack of modes again what it is now."""
    modes = [at(place) for place in range(length())]

    def restore() -> None:
        while (height := length()) and (
            height > len(modes) or at(height - 1) is not modes[height - 1]
        ):
            pop()
        for mode in modes[length() :]:
            push(mode)

    return restore


kept("compiler", _uncompiled)  # first, or the compiler is given what follows
kept("torch", _recorded)
kept("inference mode", _outside_inference)
