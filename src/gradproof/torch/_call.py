"""Runs of a PyTorch function and of its backward: counted, in place or on copies, in some mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from gradproof._adapters.raised import unsupported
from gradproof._data.inputs import name_of
from gradproof._guard.random import RandomState
from gradproof._maps.contract import CallCounter, Unsupported
from gradproof.torch._arguments import Arguments
from gradproof.torch._compat import run_engine, run_engine_with_devices
from gradproof.torch._in_double import InDouble
from gradproof.torch._leaves import Inputs
from gradproof.torch._rounding import Rounding


class Call:
    """A PyTorch function, run at other differentiable tensors.

    Args:
        mode: active whenever the user's function or backward runs, if any.
        in_double: how a function of few bits runs in double precision, if this one does.
        like: another call of the same function, whose runs are counted with these. Both draw random
            numbers from the same state, or both draw none.

    Attributes:
        counts: runs of the user's function and of its backward so far.
        random: the state of random numbers that the first run started from.
        fixed_random: each run starts from that state, as the first drew; None before it.
        raised: a list that keeps the exception of the last run that raised; None keeps none.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        *,
        mode: Rounding | None = None,
        in_double: InDouble | None = None,
        like: Call | None = None,
    ) -> None:
        self.fn, self.arguments, self.mode = fn, arguments, mode
        self.in_double = in_double
        self.name, self.inputs = name_of(fn), Inputs(arguments.leaves)
        self.counts: CallCounter = like.counts if like else CallCounter()
        self.random: RandomState = like.random if like else RandomState(arguments.generators)
        self.raised: list[Exception] | None = like.raised if like else None
        self.fixed_random: bool | None = like.fixed_random if like else None

    def first_run(self) -> tuple[list[torch.Tensor], Any]:
        """The run to keep: its differentiable tensors, and what it returned."""
        tensors = self.inputs.copy_inputs()
        result = self(tensors)
        if self.fixed_random is None:
            self.fixed_random = bool(self.random.moved_generators())
        if self.in_double is not None and not self.in_double.needed:
            self.in_double = None
        return tensors, result

    def __call__(
        self, tensors: Sequence[torch.Tensor], fn: Callable[..., Any] | None = None
    ) -> Any:
        """The function, or another form of it, at these differentiable tensors."""
        if self.fixed_random:
            self.random.restore()
        self.counts.add("function")
        fn = self.fn if fn is None else fn
        try:
            if self.mode is None and self.in_double is None and torch.is_grad_enabled():
                return self.arguments.call(fn, tensors)
            with torch.enable_grad(), self._active_modes(tensors):
                return self.arguments.call(fn, tensors)
        except Exception as error:
            if self.raised is not None:
                own = error.__cause__ if isinstance(error, Unsupported) else None
                self.raised[:] = [own if isinstance(own, Exception) else error]
            raise

    def grad(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        *,
        at: Sequence[torch.Tensor] | None = None,
        create_graph: bool = False,
    ) -> tuple[torch.Tensor | None, ...]:
        """Run the user's backward; the graph stays, and what is unused gets None.

        `at` are all differentiable tensors of that run, where `tensors` are not all.
        """
        if outputs:
            self.counts.add("vjp")
        is_plain = self.mode is None and self.in_double is None
        pull = partial(backward_gradients, outputs, tensors, cotangents, create_graph=create_graph)
        if is_plain and self.arguments.captured.is_empty:
            return pull()

        def run(*_: object) -> tuple[torch.Tensor | None, ...]:
            with nullcontext() if is_plain else self._active_modes(cotangents, backward=True):
                return pull()

        return tuple(self.arguments.run_exchanged(at or tensors, run))

    @contextmanager
    def _active_modes(
        self, given: Sequence[torch.Tensor], *, backward: bool = False
    ) -> Iterator[None]:
        """The modes around the user's function or backward: rounding, and double precision.

        An exception where operations are rounded is no finding, since rounding may have led out of
        the domain of the function.
        """
        with ExitStack() as modes:
            if self.mode is not None:
                modes.enter_context(unsupported())
                modes.enter_context(self.mode.entered_with(given))
            if self.in_double is not None:
                modes.enter_context(self.in_double.backward if backward else self.in_double.forward)
            yield


def backward_gradients(
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
    retain_graph: bool = True,
) -> tuple[torch.Tensor | None, ...]:
    """One gradient for each tensor, None where it is not used; the graph stays if it is retained.

    The cotangents are of the shapes of their outputs. `torch.autograd.grad` would look at that
    first, which takes longer than the backward of an operation on a few numbers, and in a process
    for the first time imports SymPy. Threads of devices, of which the CPU has none, want a context.
    """
    if not outputs:
        return (None,) * len(tensors)
    given = tuple(outputs), tuple(cotangents), retain_graph, create_graph, tuple(tensors), True
    run = run_engine if outputs[0].is_cpu else run_engine_with_devices
    return tuple(run(*given, accumulate_grad=False))
