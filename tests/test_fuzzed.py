"""Whatever is handed over: a report, an error of ours in one sentence, or what the user raised.

`GRADPROOF_FUZZ=10 pytest -m slow tests/test_fuzzed.py --hypothesis-seed=3` tries ten times as many
examples, and others.
"""

from __future__ import annotations

import contextlib
import json
import os
import traceback
import warnings

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradproof
from flat_options import check
from gradproof.cli import main
from gradproof.errors import DerivativeError, UsageError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def fuzz(examples: int):
    """So many examples, the same in every run."""
    more = os.environ.get("GRADPROOF_FUZZ")
    return hypothesis.settings(
        max_examples=examples * int(more or 1),
        deadline=None,
        derandomize=more is None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


# Functions, right and wrong, and such that no face can make sense of ------------------------------


class TheirError(Exception):
    """What a function of the user's raises."""


def sine(x, *more, **others):
    return x.sin() if hasattr(x, "sin") else np.sin(x)


def product(x, y=2.0, *more, **others):
    return x * y


def raises(*args, **kwargs):
    raise TheirError("no such luck")


def nothing(*args, **kwargs):
    return None


FUNCTIONS = [
    *(sine, product, raises, nothing),
    lambda x, *more, **others: x.astype(int) if hasattr(x, "astype") else x.long(),
    lambda x, *more, **others: np.ones((np.size(x) + 1, 2)),
    lambda *args, **kwargs: "text",
]


class Hostile:
    """An object of which nothing can be asked."""

    def __repr__(self):
        raise TheirError("repr")

    def __bool__(self):
        raise TheirError("bool")

    __iter__ = __len__ = __eq__ = __float__ = __repr__
    __hash__ = object.__hash__


# No container that holds itself, or has thousands of levels: PyTorch's pytree meets RecursionError.
ODD = [None, True, 0, 2, -1, 1j, 10**5000, "text", "x" * 10**5, b"bytes", range(3), object]
ODD += ["backward", "native", "x", memoryview(b"abc"), Hostile()]


class Named:
    """A value with a name that Hypothesis can print, where it could not print the value."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value = name, value

    def __repr__(self) -> str:
        return f"<{self.name}>"


def some_of(values) -> st.SearchStrategy:
    """One of these values, one time in eight any odd one, or a container of some."""
    named = values.items() if isinstance(values, dict) else enumerate(values)
    likely = st.sampled_from([Named(f"likely {name}", value) for name, value in named])
    odd = st.sampled_from([Named(f"odd {k}", value) for k, value in enumerate(ODD)])
    containers = st.one_of(st.lists(odd, max_size=2), st.lists(odd, max_size=2).map(tuple))
    return st.integers(0, 7).flatmap(lambda k: st.one_of(odd, containers) if k == 5 else likely)


def options_of(**chances) -> st.SearchStrategy:
    """At most three of the options, each a likely value or any."""
    each = {name: some_of(values) for name, values in chances.items()}
    # Sorted: a set of words has another order in every process, and so would the draws.
    chosen = st.sets(st.sampled_from(sorted(each)), max_size=3).map(sorted)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({n: each[n] for n in names}))


def made(drawn):
    """The value of a name, and of all names in containers."""
    if isinstance(drawn, Named):
        return drawn.value
    if isinstance(drawn, (list, tuple)):
        return type(drawn)(map(made, drawn))
    if isinstance(drawn, dict):
        return {key: made(value) for key, value in drawn.items()}
    return drawn


@contextlib.contextmanager
def lawful(*more):
    """Only what is allowed leaves the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (UsageError, DerivativeError, *more) as error:
            sentence = str(error)
            assert sentence.strip()
            if isinstance(error, UsageError):
                assert "\n" not in sentence, sentence
                assert len(sentence) < 2000, sentence
        except TheirError:
            pass
        except Exception as error:
            if not arose_in_the_users_code(error):
                raise


def arose_in_the_users_code(error: Exception) -> bool:
    """Whether it arose below a line of a function above, or in a call that it does not take."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [k for k, code in enumerate(codes) if "/gradproof/" in code.co_filename]
    theirs = [k for k, code in enumerate(codes) if code.co_filename == __file__]
    if max(theirs) > max(ours, default=0):
        return True
    called = str(error).partition("()")[0].rpartition(".")[2]
    return isinstance(error, TypeError) and called in {fn.__name__ for fn in FUNCTIONS}


# check of NumPy, by hand -------------------------------------------------------------------------

ARRAYS = {
    "array": np.array([0.3, -0.7]),
    "no dimension": np.array(0.5),
    "float32": np.array([[0.1, 0.2]], dtype=np.float32),
    "complex": np.array([1 + 2j]),
    "integers": np.arange(3),
    "nan": np.array([np.nan, 1.0]),
    "inf": np.array([np.inf, 1.0]),
    "empty": np.zeros(0),
    "strings": np.array(["a"]),
    "objects": np.array([None, 1.0], dtype=object),
    "masked": np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    "record": np.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i4")]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "number": 0.5,
    "ragged": [[1.0], [2.0, 3.0]],
}
OPTIONS = {
    "kwargs": [{}, {"y": 2.0}],
    "checks": [["backward"], ["backward", "linearity"], [], ["backwrd"]],
    "order": [1, 2, 3],
    "transforms": [True, False, ["hooks"]],
    "rtol": [1e-3, 0, np.inf],
    "atol": [1e-3],
    "budget": [1, 50],
    "budget_seconds": [1e-3, 10],
    "masked": [True],
    "names": [["x"], ["x", "y"]],
    "reference": [sine, gradproof.by_hand(np.sin, vjp=lambda x, v: np.cos(x) * v)],
    "references": [["double", "reference", "native"], ["native"]],
    "accumulate": ["float32", "float64"],
    "domain": [(0, 1), {"x": (-1, None)}, (None, None)],
    "wrt": ["x", 0, ["x"]],
    "sweep": [False, True],
    "trusted": [True],
}
BY_HAND = {
    "args": [(), (1.0,)],
    "vjp": [lambda x, v: np.cos(x) * v, lambda x, v: 1.5 * v, raises],
    "jvp": [lambda x, u: np.cos(x) * u],
    "jac": [np.eye(2), True, nothing, np.diag],
    "grad": [np.cos, True],
    "hess": [lambda x: np.eye(2)],
}


@fuzz(600)
@given(some_of(FUNCTIONS), some_of(ARRAYS), options_of(**OPTIONS, **BY_HAND))
def test_check_of_numpy(fn, inputs, chosen):
    asked = {"vjp": lambda x, v: np.cos(x) * v, "seed": 0, "budget": 300, **made(chosen)}
    with lawful():
        report = check(made(fn), made(inputs), **asked)
        assert str(report)


# PyTorch -----------------------------------------------------------------------------------------


def tensors():
    import torch

    generator = torch.Generator().manual_seed(0)

    def drawn(*shape, dtype=torch.float64):
        return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()

    with warnings.catch_warnings():  # sparse ones are announced as unfinished
        warnings.simplefilter("ignore")
        return {
            "tensor": drawn(2),
            "no gradient": drawn(2).detach(),
            "no dimension": drawn(),
            "empty": drawn(0, 2),
            "bfloat16": drawn(2, dtype=torch.bfloat16),
            "complex": drawn(2, dtype=torch.complex128),
            "integers": torch.arange(2),
            "nan": torch.tensor([float("nan"), 1.0], requires_grad=True),
            "infinite": torch.tensor([float("inf"), 1.0], requires_grad=True),
            "part of a graph": drawn(2) * 1,
            "expanded": drawn(1).expand(3),
            "sparse": torch.eye(2).to_sparse().requires_grad_(),
            "csr": torch.eye(2).to_sparse_csr().requires_grad_(),
            "mkldnn": torch.ones(2).to_mkldnn(),
            "meta": torch.ones(2, device="meta", requires_grad=True),
            "uninitialised": torch.nn.UninitializedParameter(),
            "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "array of NumPy": np.ones(2),
            "layer": torch.nn.Linear(2, 2, dtype=torch.float64),
            "lazy layer": torch.nn.LazyLinear(2),
            "generator": torch.Generator(),
        }


FLAGS = ("raise_exception", "check_undefined_grad", "check_batched_grad", "fast_mode", "masked")
COMMON = {"eps": [1e-6, 1e-3], "atol": [1e-5], "rtol": [1e-3], "nondet_tol": [0.0, 1e-6]}
COMMON |= dict.fromkeys(FLAGS, (True, False, None))
FIRST = ("check_grad_dtypes", "check_batched_forward_grad", "check_forward_ad", "check_backward_ad")
SECOND = ("gen_non_contig_grad_outputs", "check_fwd_over_rev", "check_rev_over_rev")
# Face -> examples, options.
FACES = {
    "check": (250, OPTIONS),
    "gradcheck": (150, COMMON | dict.fromkeys(FIRST, (True, False))),
    "gradgradcheck": (100, COMMON | dict.fromkeys(SECOND, (True, False))),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("face", FACES)
def test_faces_of_pytorch(face):
    import torch

    import gradproof.torch

    def ask(*arguments, **options):
        if face == "check":
            return str(check(*arguments, **{"seed": 0, "budget": 300, **options}))
        return getattr(gradproof.torch, face)(*arguments, **options) in (True, False)

    examples, options = FACES[face]
    points = tensors()
    kept, state = points["tensor"], torch.get_rng_state()
    before = kept.detach().clone()
    # PyTorch's own, for modes that exclude each other, and for overlapping memory.
    more = () if face == "check" else (AssertionError,)

    @fuzz(examples)
    @given(
        some_of(FUNCTIONS),
        some_of(points) | st.lists(some_of(points), max_size=2),
        options_of(**options),
    )
    def draw(fn, inputs, chosen):
        answer = True
        with lawful(*more):
            answer = ask(made(fn), made(inputs), **made(chosen))
        assert answer

    draw()
    assert torch.equal(kept, before)
    assert kept.grad is None
    assert torch.equal(torch.get_rng_state(), state)


# Reports ---------------------------------------------------------------------------------------


documents = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
HAND = gradproof.by_hand(np.sin, vjp=lambda x, v: 1.5 * v)
REPORT = gradproof.check(HAND, np.array([0.3]), seed=0)


def exchange(document, steps, change):
    """The document with one place exchanged."""
    place = document
    for step in steps:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[step % len(keys)]
        if not isinstance(place[key], (dict, list)) or not place[key]:
            place[key] = change
            break
        place = place[key]
    return document


def require_shown_or_refused(text, tmp_path, capsys):
    """`gradproof explain` of a file with this text: a report is shown, or a sentence refuses."""
    (tmp_path / "report.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    status = main(["explain", str(tmp_path / "report.json")])
    out, err = capsys.readouterr()
    assert (status, bool(out), err.count("\n")) in ((0, True, 0), (2, False, 1))


@fuzz(300)
@given(st.lists(st.integers(0, 50), max_size=8), documents)
def test_a_report_with_a_place_exchanged(tmp_path, capsys, steps, change):
    text = json.dumps(exchange(REPORT.to_dict(), steps, change))
    require_shown_or_refused(text, tmp_path, capsys)


@fuzz(200)
@given(st.one_of(documents.map(json.dumps), st.binary().map(lambda b: b.decode("latin1"))))
def test_any_text_as_a_report(tmp_path, capsys, text):
    require_shown_or_refused(text, tmp_path, capsys)
