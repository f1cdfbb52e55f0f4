"""What is asked of the graph of a run, however long it is."""

from __future__ import annotations

import inspect
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch

from gradproof._guard.random import RandomState
from gradproof.torch._adapter import build


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


def test_a_map_records_the_random_state_once_and_a_watched_run_once_more(monkeypatch):
    recorded = []
    record = RandomState.__init__
    monkeypatch.setattr(
        RandomState, "__init__", lambda self, *others: recorded.append(1) or record(self, *others)
    )
    map_ = build(torch.sin, (leaf(2),))
    assert len(recorded) == 1
    map_.map_at(map_.point + 1)
    assert len(recorded) == 1
    map_.side_effects(np.ones(2))
    assert len(recorded) == 2


def test_the_signature_of_a_plain_function_is_not_asked_of_inspect(monkeypatch):
    read = []
    signature = inspect.signature
    monkeypatch.setattr(inspect, "signature", lambda fn: read.append(fn) or signature(fn))
    build(
        lambda *tensors: sum(tensors), [leaf(2) for _ in range(20)]
    )  # the names of a plain one are in its code
    assert not read


def kept_itself(g: torch.Tensor, kept: dict) -> torch.Tensor:
    return kept.setdefault(id(g), (g, g * 2))[1]


def kept_as_a_view(g: torch.Tensor, kept: dict) -> torch.Tensor:
    key = g.data_ptr(), g._version, g.stride()
    return kept.setdefault(key, (g.detach(), g * 2))[1]


def kept_as_an_array(g: torch.Tensor, kept: dict) -> torch.Tensor:
    key = g.data_ptr(), g._version, g.stride()
    return kept.setdefault(key, (g.numpy(), g * 2))[1]


def known_while_it_lives(g: torch.Tensor, kept: dict) -> torch.Tensor:
    of, found = kept.get(id(g), (lambda: None, None))
    if of() is not g:
        found = g * 2
        kept[id(g)] = weakref.ref(g), found
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "keep", [kept_itself, kept_as_a_view, kept_as_an_array, known_while_it_lives]
)
def test_a_cotangent_that_a_backward_keeps_is_not_written_to(keep, dtype):
    kept: dict = {}

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return keep(g, kept)

    map_ = build(Doubled.apply, (torch.ones(5, dtype=dtype, requires_grad=True),))
    for number in range(1, 9):
        v = np.full(5, float(number))
        assert (map_.vjp(v) == 2 * v).all()


LONG = """
import torch
import gradproof
from gradproof.torch._adapter import build
from gradproof.torch import gradcheck

def long(x):
    for _ in range({nodes}):
        x = x * 1.0
    return x

x = torch.ones(1, dtype=torch.float64, requires_grad=True)
{asked}
"""
ASKED = {
    "check": "assert gradproof.check(long, (x,)).verdict is gradproof.Verdict.PASSED",
    "gradcheck": "assert gradcheck(long, (x,), check_forward_ad=True)",
    "map": "m = build(long, (x,)); assert m.notes == []; del m",
}


def ends_well(nodes: int, asked: str) -> None:
    program = LONG.format(nodes=nodes, asked=ASKED[asked])
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0  # -11 where the stack overflows


def test_a_long_graph_is_released_after_it_was_looked_at():
    ends_well(100_000, "map")


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["check", "gradcheck"])
def test_a_function_of_100_000_operations_is_checked(asked):
    ends_well(100_000, asked)
