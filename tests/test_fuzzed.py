"""Whatever is handed over: a report, an error of ours, or what the user's function raised."""

from __future__ import annotations

import contextlib
import io
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradproof
from flat_options import check
from fuzzing import Values, fuzz, nothing, raises, text
from gradproof.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def sine(x, *more, **others):
    return np.sin(x)


def cosine(x, v=1.0, *more, **others):
    return np.cos(x) * v


def total(x, *more, **others):
    return np.sum(np.sin(x))


def diagonal(x, *more, **others):
    return np.diag(np.cos(x))


def wrong(x, v=1.0, *more, **others):
    return 1.5 * v


def ring(*args, **kwargs):
    made = [np.ones(2)]
    made.append(made)
    return made


def deep(*args, **kwargs):
    made = np.ones(2)
    for _ in range(3000):
        made = (made,)
    return made


def other_shape(x, *more, **others):
    return np.ones((np.size(x) + 1, 2))


def strange(x, *more, **others):
    return np.array([{}, None], dtype=object)


POINTS = {
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
    "booleans": np.array([True]),
    "masked": np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    "record": np.array([(1.0, 2)], dtype=[("a", "f8"), ("b", "i4")]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "number of NumPy": np.float64(0.5),
    "number": 0.5,
    "list": [0.3, -0.7],
    "ragged": [[1.0], [2.0, 3.0]],
}
V = Values(
    POINTS,
    (sine, cosine, total, diagonal, wrong, raises, nothing, text, ring, deep, other_shape, strange),
    ["sine", "cosine", "total", "diagonal"],
)

CHECK = {
    "kwargs": [{}, {"v": 2.0}],
    "checks": [["backward"], ["backward", "linearity"], []],
    "order": [1, 2, 3],
    "transforms": [True, False, ["hooks"]],
    "rtol": [1e-3, 0, np.inf],
    "atol": [1e-3],
    "seed": [0, 2**64],
    "budget": [1, 50],
    "budget_seconds": [1e-3, 10],
    "masked": [True],
    "names": [["x"], ["x", "y"]],
    "reference": [np.sin, sine, gradproof.by_hand(sine, vjp=cosine)],
    "oracles": [["double", "reference", "native"], ["native"]],
    "domain": [(0, 1), {"x": (-1, None)}, (None, None)],
    "wrt": ["x", 0, ["x"]],
    "sweep": [False],
    "args": [(), (1.0,)],
    "vjp": [cosine, wrong, raises],
    "jvp": [cosine, wrong],
    "jac": [np.eye(2), True, nothing],
    "grad": [cosine, True],
    "hess": [wrong, np.sin],
}
BY_HAND = [{"vjp": cosine}, {"jvp": cosine}, {"jac": np.diag}, {"grad": cosine}, {}]


@fuzz(600)
@given(V.calls, V.points, st.sampled_from(range(5)), V.options(**CHECK))
def test_check(fn, inputs, claims, chosen):
    asked = {"seed": 0, "budget": 300, **BY_HAND[claims], **V.made(chosen)}
    with V.lawful():
        report = check(V.made(fn), V.made(inputs), **asked)
        assert str(report)
        assert report.verdict in ("passed", "failed", "inconclusive", "skipped")


TARGETS = ["numpy:sin", "numpy:sin", "numpy:add", "math:sin", "numpy:nothing", "nowhere:at_all",
           "numpy", "numpy:pi", "::", "no.py:f", "\x00", "\udc80"]  # fmt: skip
SPECS = ["float64[3]", "float64[3]", "float32[2]", "complex128[]", "float64[0]", "float64[-1]",
         "float64[" + "9" * 5000 + "]", "float32[" + "9" * 15 + "]",
         "int64[2]:uniform(0,2)", "x=float64[2]", "[1, 2]", "0.5", "sum", "no.npy",
         "{'a':float64[1]}", "[" * 3000, "uint9[1]", "", "1" * 5000, "\udc80"]  # fmt: skip
TEXTS = [
    "",
    "x",
    "a,b",
    "-1",
    "nan",
    "1e999",
    "9" * 5000,
    "[" * 3000,
    "\x00",
    "\udc80",
    "numpy:sin",
]
FLAGS = ["--sweep", "--help", "--version", "--transforms", "--nothing"]
TAKING = {
    "--vjp": ["numpy:multiply", "numpy:sin"],
    "--jvp": ["numpy:multiply"],
    "--jac": ["numpy:diag"],
    "--grad": ["numpy:cos"],
    "--checks": ["backward", "backward,linearity", "backwrd"],
    "--seed": ["0", "1"],
    "--order": ["1", "2"],
    "--atol": ["1e-3", "0"],
    "--rtol": ["1e-3"],
    "--budget": ["100"],
    "--budget-seconds": ["1"],
    "--device": ["cpu", "cuda:99"],
    "--framework": ["numpy", "torch", "jax"],
    "--reference": ["numpy:sin"],
    "--wrt": ["x", "0"],
    "--json": ["report.json"],
    "--kwarg": ["v=0.5", "v=float64[3]"],
}
taking = st.sampled_from(sorted(TAKING)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.integers(0, 3).flatmap(lambda k: st.sampled_from(TAKING[name] if k else TEXTS)),
    )
)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@fuzz(250)
@given(
    st.sampled_from(["check", "check", "check", "explain", "nothing"]),
    st.sampled_from(TARGETS),
    st.lists(st.sampled_from(SPECS), max_size=2),
    st.lists(st.one_of(taking, st.sampled_from(FLAGS).map(lambda flag: (flag,))), max_size=3),
)
def test_the_command_line(nowhere, command, target, specs, chosen):
    words = [command, target, *specs, "--vjp", "numpy:multiply", *sum(chosen, ())]
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            status = main(words)
        except SystemExit as ended:  # argparse
            status = ended.code
    assert status in (None, 0, 1, 2, 3), words
    if status == 2:
        assert err.getvalue().strip()
        assert "/gradproof/" not in err.getvalue(), err.getvalue()


REPORT = gradproof.check(
    gradproof.by_hand(np.sin, vjp=lambda x, v: 1.5 * v), np.array([0.3]), seed=0
)
documents = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.floats(), st.text(max_size=5),
        st.integers(-(10**400), 10**400),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)  # fmt: skip


def mutated(document, steps, change):
    """The document with one place exchanged, and whether there was one."""
    place = document
    for step in steps:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return document
        key = keys[step % len(keys)]
        if not isinstance(place[key], (dict, list)) or not place[key]:
            place[key] = change
            return document
        place = place[key]
    return document


def explained(text, tmp_path):
    """`gradproof explain` of a file with this text: a report is shown, or a sentence refuses."""
    (tmp_path / "report.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["explain", str(tmp_path / "report.json")])
    assert (status, bool(out.getvalue()), err.getvalue().count("\n")) in (
        (0, True, 0),
        (2, False, 1),
    )


@fuzz(300)
@given(st.lists(st.integers(0, 50), max_size=8), documents)
def test_a_report_with_a_place_exchanged(tmp_path, steps, change):
    explained(json.dumps(mutated(REPORT.to_dict(), steps, change)), tmp_path)


@fuzz(200)
@given(st.one_of(documents.map(json.dumps), st.binary().map(lambda b: b.decode("latin1"))))
def test_any_text_as_a_report(tmp_path, text):
    explained(text, tmp_path)
