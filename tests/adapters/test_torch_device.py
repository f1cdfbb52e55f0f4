"""Vectors as tensors on the device of the inputs, proven on the CPU.

There is no accelerator here. A switch puts the vectors of inputs on the CPU into tensors as well,
and two traps show what would go wrong on a device: new arrays without a place of their own go to
PyTorch's "meta" device, which has no numbers, and in half precision; and every number that crosses
to the host is counted, and may cross in two functions only.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import gradproof
from exhibits.frame import normal
from gradproof._adapters.torch import build, leaves
from gradproof._data.settings import CHECK_NAMES
from gradproof._data.space import namespace, on_host
from gradproof._data.vectors import two_to
from gradproof.torch import gradcheck, jacobians
from museum import EXHIBITS

# The functions that may take a vector to the host: whole, and once. The second reads what another
# library's reference is called with.
MAY_READ = ("on_host", "as_numpy")
SOURCE = str(Path(gradproof.__file__).parent)
READS = ("__array__", "numpy", "tolist", "__iter__")
SCALARS = ("__float__", "__bool__", "__int__", "__index__", "item")


@pytest.fixture(autouse=True)
def on_device(monkeypatch):
    monkeypatch.setenv(leaves.SWITCH, "device")


class Crossings(TorchFunctionMode):
    """Counts what is read from tensors: whole ones by who reads them, and single numbers.

    Attributes:
        number: of transfers.
        entries: in them.
        elsewhere: readers of whole arrays that may not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number, self.entries = 0, 0
        self.elsewhere: Counter[str] = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in READS + SCALARS and isinstance(args[0], torch.Tensor):
            self.number += 1
            self.entries += args[0].numel()
            reader = _reader() if name in READS else ""
            if reader and reader not in MAY_READ:
                self.elsewhere[reader] += 1
        return func(*args, **(kwargs or {}))


def _reader() -> str:
    """The innermost function of gradproof's that is running."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCE):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else ""


@contextmanager
def nowhere() -> Iterator[None]:
    """New tensors without a device have no numbers, and those without a dtype have few bits."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)


class Scaled(torch.autograd.Function):
    """tanh; the derivative is scaled in one entry, or in all, or left out in a tail."""

    mistake = "none"

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, v):
        (y,) = ctx.saved_tensors
        found = v * (1 - y * y)
        if Scaled.mistake == "entry":
            found[..., 3] = 1.01 * found[..., 3]
        elif Scaled.mistake == "all":
            found = 1.01 * found
        elif Scaled.mistake == "tail":
            found[..., -5:] = 0
        return found


@pytest.fixture
def mistaken(request, monkeypatch):
    monkeypatch.setattr(Scaled, "mistake", request.param)
    return request.param


def rows(report):
    return {result.name: result.verdict for result in report.checks}


FUNCTIONS = {
    "tanh": (torch.tanh, (normal(6, 5),)),
    "softmax": (lambda x: torch.softmax(x, -1), (normal(4, 5),)),
    "matmul": (torch.matmul, (normal(3, 4), normal(4, 2, seed=1))),
    "complex": (lambda z: z @ z.conj(), (normal(3, 3).to(torch.complex128),)),
    "relu": (torch.relu, (torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64),)),
    "clamp": (lambda x: torch.clamp(x, 5.0, 6.0), (normal(4),)),
    "norm": (lambda x: x.norm(), (torch.zeros(3, dtype=torch.float64),)),
    "floor": (torch.floor, (normal(2),)),
    "float32": (lambda x: torch.softmax(x, -1), (normal(4, 5).to(torch.float32),)),
    "bfloat16": (lambda x: x * x.sum(), (normal(8).to(torch.bfloat16),)),
    "two outputs": (lambda x: (x.sin(), x.sum(-1)), (normal(4, 3),)),
    "transposed input": (torch.exp, (normal(4, 3).detach().T,)),
}


def checked(fn, inputs, **options):
    """A report with every trap set."""
    seen = Crossings()
    with nowhere(), seen:
        report = gradproof.check(fn, inputs, seed=0, **options)
    assert not seen.elsewhere, "a vector is read elsewhere than in `on_host`"
    return report, seen


def test_vectors_are_tensors_where_the_inputs_are_and_arrays_of_numpy_by_default(monkeypatch):
    inputs = (normal(3, 2), normal(2, seed=2))
    map_ = build(torch.matmul, inputs)
    v = namespace(map_.point).zeros(map_.codomain.size) + 1.0
    for vector in (map_.point, map_.value(map_.point), map_.vjp(v), map_.jvp(map_.point)):
        assert isinstance(vector, torch.Tensor)
        assert vector.dtype is torch.float64
        assert not vector.requires_grad
    given = map_.vjp(np.ones(map_.codomain.size))  # those of NumPy are taken as well
    assert torch.equal(given, map_.vjp(v))
    map_.close()
    monkeypatch.delenv(leaves.SWITCH)
    map_ = build(torch.matmul, inputs)
    assert type(map_.point) is np.ndarray
    assert map_.home is None
    map_.close()


def test_what_a_namespace_makes_lies_where_the_vector_lies_and_in_double_precision():
    like = torch.zeros(2, dtype=torch.float64)
    xp = namespace(like)
    mask = like == 0
    with nowhere():
        made = [
            xp.zeros(2),
            xp.empty((2, 3)),
            xp.full((2,), float("nan")),
            xp.asarray([0.1, 0.2]),
            xp.asarray(0.1),
            xp.where(mask, 0.1, 1.0),
        ]
        counted = [xp.arange(3), xp.asarray([1, 2])]
    assert {each.dtype for each in made} == {torch.float64}
    assert {each.dtype for each in counted} == {torch.int64}
    assert {each.device.type for each in made + counted} == {"cpu"}
    assert float(made[4]) == 0.1


class Inexact(torch.Tensor):
    """Numbers of a device whose power function is off by a unit in the last place."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        found = super().__torch_function__(func, types, args, kwargs or {})
        return found * (1 + 2.0**-52) if func.__name__ in ("__rpow__", "pow") else found


def test_powers_of_two_are_exact_also_where_the_power_function_is_not():
    exponents = torch.arange(-1022, 900, dtype=torch.float64)
    expected = torch.from_numpy(np.ldexp(1.0, np.arange(-1022, 900)))
    assert torch.equal(two_to(exponents), expected)
    off = exponents.as_subclass(Inexact)
    assert not torch.equal((2.0**off).as_subclass(torch.Tensor), expected)
    assert torch.equal(two_to(off).as_subclass(torch.Tensor), expected)
    ends = two_to(torch.tensor([-torch.inf, torch.inf, torch.nan, 1000.0], dtype=torch.float64))
    assert ends.isnan().tolist() == [False, False, True, False]
    assert ends[[0, 1, 3]].tolist() == [0.0, torch.inf, 2.0**1000]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_report_is_the_one_of_vectors_on_the_host(name, monkeypatch):
    fn, given = FUNCTIONS[name]
    inputs = tuple(tensor.detach().requires_grad_() for tensor in given)
    there, seen = checked(fn, inputs)
    assert seen.number > 0
    monkeypatch.setenv(leaves.SWITCH, "host")
    here = gradproof.check(fn, inputs, seed=0)
    assert rows(there) == rows(here)


@pytest.mark.parametrize(
    ("mistaken", "size"),
    [("entry", 20), ("all", 20), ("tail", 20), ("entry", 5000), ("all", 5000), ("tail", 140_000)],
    indirect=["mistaken"],
)
def test_a_mistake_is_located_and_named_as_on_the_host(mistaken, size, monkeypatch):
    checks = ("backward",) if size > 1000 else CHECK_NAMES
    there, _ = checked(Scaled.apply, (normal(size),), checks=checks)
    monkeypatch.setenv(leaves.SWITCH, "host")
    here = gradproof.check(Scaled.apply, (normal(size),), seed=0, checks=checks)
    one, other = there["backward"], here["backward"]
    assert one.verdict == other.verdict == "failed"
    assert one.where == other.where != ""
    assert [cause.name for cause in one.causes] == [cause.name for cause in other.causes] != []
    if size == 20:
        assert {str(f.input) for f in one.findings} == {str(f.input) for f in other.findings}


@pytest.mark.parametrize("size", [1000, 40_000, 280_000])
def test_what_crosses_to_the_host_does_not_grow_with_the_size(size):
    checks = ("backward", "linearity", "undefined", "determinism", "batched")
    report, seen = checked(lambda x: x * x, (normal(size),), checks=checks)
    assert report.verdict == "passed"
    assert seen.number <= 160
    assert seen.entries <= 160  # single numbers: no vector crosses at all


@pytest.mark.parametrize("mistaken", ["entry"], indirect=True)
def test_locating_reads_whole_vectors_a_few_times_for_every_call(mistaken):
    report, seen = checked(Scaled.apply, (normal(60_000),), checks=("backward",))
    assert not report
    assert seen.number <= 8 * sum(report.calls.values())
    assert seen.entries <= 20 * 60_000


@pytest.mark.parametrize("mistaken", ["none", "entry"], indirect=True)
def test_second_order_limits_and_the_drop_in_work(mistaken):
    x = normal(2, 4)
    expected = mistaken == "none"
    report, _ = checked(Scaled.apply, (x,), order=2, domain=(-9.0, 9.0))
    assert bool(report) is expected
    assert gradcheck(Scaled.apply, (x,), raise_exception=False) is expected
    assert type(jacobians(Scaled.apply, (x,))[0, 0].measured) is np.ndarray


def test_an_input_without_a_number_is_refused_as_on_the_host():
    x = torch.tensor([1.0, float("nan")], dtype=torch.float64, requires_grad=True)
    with pytest.raises(gradproof.errors.UsageError, match=r"x\[1\] is nan"):
        gradproof.check(lambda x: x * x, (x,), seed=0)


def test_devices_without_double_precision_and_inputs_that_are_not_plain_use_the_host(monkeypatch):
    there = torch.empty(2, device="meta")  # a device, for all that is asked here
    dense = torch.ones(2)
    assert leaves.home_of([there]) is None
    monkeypatch.setattr(leaves, "_has_double", lambda device: True)
    assert leaves.home_of([there, dense]) == there.device
    assert leaves.home_of([dense.to_sparse()]) is None
    assert leaves.home_of([]) is None
    monkeypatch.delenv(leaves.SWITCH)
    assert leaves.home_of([there]) == there.device
    assert leaves.home_of([dense, there]) is None  # the first input's
    monkeypatch.setenv(leaves.SWITCH, "host")
    assert leaves.home_of([there]) is None


# To hear every backward is two reads each, and to look at an output again is one: of vectors on a
# device neither is done.
UNREAD = {"backward_off_in_every_fourth_run", "output_in_a_buffer_that_the_next_call_overwrites"}
SAID = [exhibit for exhibit in EXHIBITS if exhibit.name not in UNREAD]
WRONG = [exhibit for exhibit in SAID if exhibit.wrong is not None]


def judged(exhibit):
    """What is said of a wrong derivative and of its right twin."""
    report = gradproof.check(exhibit.wrong, exhibit.make_inputs(), order=exhibit.order, seed=0,
                             **exhibit.options)  # fmt: skip
    failed = {one.name for one in report.checks if one.verdict == "failed"}
    assert exhibit.check in failed
    assert failed <= {exhibit.check} | exhibit.also
    right(exhibit)


def right(exhibit):
    report = gradproof.check(exhibit.right, exhibit.make_inputs(), order=exhibit.order, seed=0,
                             **exhibit.options)  # fmt: skip
    assert str(report.verdict) in exhibit.verdict_of_right


@pytest.mark.parametrize("exhibit", WRONG[::12], ids=str)
def test_a_part_of_the_museum_says_the_same(exhibit):
    judged(exhibit)


@pytest.mark.slow
@pytest.mark.parametrize("exhibit", SAID, ids=str)
def test_the_whole_museum_says_the_same(exhibit):
    judged(exhibit) if exhibit.wrong is not None else right(exhibit)


def test_one_reading_takes_a_vector_to_the_host_whole():
    seen = Crossings()
    with seen:
        found = on_host(torch.arange(1000, dtype=torch.float64))
    assert found.shape == (1000,)
    assert seen.number == 1
    assert not seen.elsewhere
