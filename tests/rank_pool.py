"""Processes that stay, in which functions that span ranks are checked together."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import gradproof
from exhibits.ranks import APART, BY_NAME, here, numbers, perceptron, ruled, summed
from gradproof.torch import distributed, gradcheck


class Pool:
    """Processes with a gloo group among them.

    Args:
        size: how many.
    """

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, store, rank, size), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def run(self, job: Callable[..., Any], *args: Any) -> list[Any]:
        """What a function of a module says on every rank; what it raises, as its type and text."""
        for pipe in self._pipes:
            pipe.send((job, args))
        return [pipe.recv() for pipe in self._pipes]


def _serve(pipe: Any, store: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    while True:
        job, args = pipe.recv()
        try:
            pipe.send(job(*args))
        except BaseException as error:
            pipe.send((type(error).__name__, str(error), traceback.format_exc()))  # on this rank


def checked(name: str, which: str) -> Any:
    """What is said of an exhibit on this rank: the verdict, the checks that fail, the places."""
    exhibit = BY_NAME[name]
    report = distributed.check(
        getattr(exhibit, which)(), exhibit.inputs(), **exhibit.options(), seed=3
    )
    failing = [result.name for result in report.checks if result.verdict == "failed"]
    places = [str(finding.input) for finding in report.findings if finding.input]
    return str(report.verdict), failing, places, str(report)


def asked(
    fn: Callable[..., Any],
    shapes: Sequence[tuple[int, ...] | None],
    options: Sequence[Mapping[str, Any]],
) -> str:
    """What is said of a function at an input of the rank's shape, or at none, with its options."""
    shape = shapes[here()]
    inputs = () if shape is None else (numbers(*shape),)
    return str(distributed.check(fn, inputs, **options[here()]))


def apart(name: str, backward: bool) -> Any:
    """What is said where the ranks do not do the same, in the function or in its backward."""
    fn = APART[name][0]
    return str(distributed.check(ruled(summed, fn) if backward else fn, (numbers(3),)))


def alone() -> Any:
    """Only rank 0 comes."""
    if here() == 1:
        return "elsewhere"
    return str(distributed.check(summed, (numbers(3),), budget_seconds=1))


def sleeping() -> Any:
    """Rank 1 does not come back for a while."""

    def late(x: Any) -> Any:
        if here() == 1:
            time.sleep(10)
        return x.sin()

    return str(distributed.check(late, (numbers(3),), budget_seconds=0.5))


def judged_here() -> Any:
    """What the faces for one rank say of themselves."""
    x = numbers(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = gradcheck(lambda x: x.sin(), (x,))
    said = [str(one.message) for one in caught if "rank" in str(one.message)]
    return answer, said, list(gradproof.check(lambda x: x.sin(), (x,)).notes)


def traces() -> Any:
    """Whether a check leaves parameters, gradients, random state and limits as they were."""
    layer, x = perceptron(), numbers(2, 3)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    state, wait = torch.get_rng_state(), dist.Work.wait
    limit = dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout
    report = distributed.check(layer, (x,))
    same = [torch.equal(*pair) for pair in zip(layer.parameters(), before, strict=True)]
    ones = [bool((parameter.grad == 1).all()) for parameter in layer.parameters()]
    return (
        str(report.verdict),
        all(same),
        all(ones),
        x.grad is None,
        torch.equal(state, torch.get_rng_state()),
        dist.Work.wait is wait,
        limit == dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout,
    )


def in_a_group() -> Any:
    """Ranks 1 and 2 of three, in a group of their own."""
    group = dist.new_group([1, 2])
    wrong = ruled(lambda x: summed(x, group=group), lambda g: g)
    return str(distributed.check(wrong, (numbers(2),), group=group, seed=1))
