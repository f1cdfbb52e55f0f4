"""A function of one framework held against one of another: values, derivatives, the odd one out."""

from __future__ import annotations

import functools
import importlib
import itertools
import math

import numpy as np
import pytest

import gradproof
from columns import is_installed
from gradproof import Reference
from gradproof._adapters import foreign
from gradproof.errors import UsageError

X, W = np.linspace(0.1, 1.2, 5), np.linspace(-1.0, 1.5, 5)
FRAMEWORKS = ("numpy", "torch", "jax")
PAIRS = list(itertools.permutations(FRAMEWORKS, 2))


def pair(ours, theirs):
    """The pair as a parameter: where both are there; two large ones by `make test-slow`."""
    marks = [pytest.mark.needs(*({ours, theirs} - {"numpy"}))]
    if "numpy" not in (ours, theirs):
        marks.append(pytest.mark.slow)
    return pytest.param(ours, theirs, marks=marks, id=f"{ours} against {theirs}")


pairs = pytest.mark.parametrize(("ours", "theirs"), [pair(*each) for each in PAIRS])


def module_of(framework):
    if framework == "torch":
        import torch

        return torch
    import jax.numpy as jnp

    return jnp


def function(framework, change=0.0):
    """x -> (sin(x) + change) * w, in this framework."""
    if framework == "numpy":
        return lambda x, w: (np.sin(x) + change) * w
    if framework == "torch":
        import torch

        def fn(x, w):
            return (torch.sin(x) + change) * w
    else:
        import jax.numpy as jnp

        def fn(x, w):
            return (jnp.sin(x) + change) * w

    return fn


def backward(factor=1.0, change=0.0):
    return lambda x, w, v: (factor * v * np.cos(x) * w, v * (np.sin(x) + change))


def arrays(framework, dtype="float64"):
    if framework == "torch":
        import torch

        kind = getattr(torch, dtype)
        return [torch.tensor(each, dtype=kind, requires_grad=True) for each in (X, W)]
    if framework == "jax":
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(True):
            return [jnp.asarray(each, dtype) for each in (X, W)]
    return [X.astype(dtype), W.astype(dtype)]


def check(ours, reference, dtype="float64", **options):
    if ours == "numpy":
        options["vjp"] = backward()
    asked = {"seed": 0, "checks": ["backward"], **options}
    return gradproof.check(function(ours), arrays(ours, dtype), reference=reference, **asked)


def reference(framework, factor=1.0, change=0.0):
    if framework == "numpy":
        return Reference(function(framework, change), vjp=backward(factor, change))
    return function(framework, change)


@pairs
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_right_function_agrees_with_a_reference_of_another_framework(ours, theirs, dtype):
    report = check(ours, reference(theirs), dtype)
    assert report.verdict == "passed", str(report)
    assert f"the {theirs} reference in float64" in report["backward"].oracle
    assert not [note for note in report["backward"].notes if "value" in note]


@pairs
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_reference_with_another_value_is_no_agreement(ours, theirs, dtype):
    """A constant more: the derivatives agree, and the functions are two. It passed once."""

    def shifted(value):
        return lambda x, w: value(x, w) + 1e-5

    right = reference(theirs)
    if isinstance(right, Reference):
        other = Reference(shifted(right.fn), vjp=right.vjp)
    else:
        other = shifted(right)
    found = check(ours, other, dtype)["backward"]
    assert found.verdict == "inconclusive"
    said = f"the value of the {theirs} reference in float64 is another, by 1"
    assert found.summary.startswith(said)
    assert "the derivatives agree: 5 x 10 Jacobian verified" in found.summary


@pytest.mark.parametrize(
    "framework", [pytest.param(f, marks=pytest.mark.needs(f)) for f in FRAMEWORKS[1:]]
)
def test_a_value_that_another_way_to_compute_it_rounds_away_is_the_same(framework):
    """sqrt(s + w) - sqrt(s) loses eight digits, and w / (sqrt(s + w) + sqrt(s)) none."""

    def cancelling(x, w):
        large = 1e8 * (1.5 + x * x)
        return (large + w) ** 0.5 - large**0.5

    def reference(x, w):
        large = 1e8 * (1.5 + x * x)
        return w / ((large + w) ** 0.5 + large**0.5)

    other = Reference(reference, framework=framework)
    options = {"seed": 0, "checks": ["backward"], "rtol": 1e-3, "reference": other}
    found = gradproof.check(cancelling, arrays(framework), **options)["backward"]
    assert "is another" not in found.summary + " ".join(found.notes)


OTHERWISE = {
    "an eighth more": np.full(5, 1.125),
    "one entry is no number": np.array([1.0, 1.0, np.nan, 1.0, 1.0]),
    "fewer entries": np.ones(3),
}


def otherwise(framework, factors):
    """The function times other factors, and a derivative that is right for that."""
    kept, value = len(factors), function(framework)
    if framework == "torch":
        import torch

        return lambda x, w: torch.from_numpy(factors) * value(x, w)[:kept]
    if framework == "jax":
        import jax.numpy as jnp

        return lambda x, w: jnp.asarray(factors) * value(x, w)[:kept]

    def vjp(x, w, v):
        return backward()(x, w, np.pad(factors * v, (0, 5 - kept)))

    return Reference(lambda x, w: factors * value(x, w)[:kept], vjp=vjp)


@pairs
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", OTHERWISE)
def test_a_function_of_another_value_than_its_reference_never_passes(ours, theirs, dtype, case):
    """Its right twin is `test_a_right_function_agrees_with_a_reference_of_another_framework`."""
    found = check(ours, otherwise(theirs, OTHERWISE[case]), dtype)["backward"]
    assert found.verdict == "inconclusive", found.summary
    said = f"not held against the {theirs} reference in float64: it returns "
    assert found.summary.startswith(said + ("outputs" if "fewer" in case else "another value"))
    assert "without it: 5 x 10 Jacobian verified" in found.summary


@pairs
def test_a_reference_that_raises_is_no_agreement(ours, theirs):
    def raises(x, w):
        raise ValueError("not written yet")

    other = Reference(raises, framework=theirs, vjp=backward() if theirs == "numpy" else None)
    found = check(ours, other)["backward"]
    assert found.verdict == "inconclusive"
    assert "not written yet" in found.summary


@pairs
def test_of_three_opinions_the_odd_one_out_is_named(ours, theirs):
    report = check(ours, reference(theirs, change=0.01))
    assert report.verdict == "inconclusive"
    assert f"the {theirs} reference in float64 is the odd one out" in report["backward"].summary


@pairs
def test_arguments_keep_their_places_and_numbers(ours, theirs):
    seen = []
    base = reference(theirs)
    inner = base.fn if isinstance(base, Reference) else base

    def watched(x, w, *rest):
        seen.append((str(x.dtype).rpartition(".")[2], str(w.dtype).rpartition(".")[2]))
        return inner(x, w)

    if isinstance(base, Reference):
        watched = Reference(watched, vjp=base.vjp)
    else:
        watched = Reference(watched, framework=theirs)
    report = check(ours, watched, "float32")
    assert report.verdict == "passed", str(report)
    assert set(seen) == {("float64", "float64")}


@pytest.mark.parametrize(
    "framework", [pytest.param(f, marks=pytest.mark.needs(f)) for f in FRAMEWORKS[1:]]
)
def test_a_reference_whose_own_derivative_is_wrong_is_refused_and_named(framework):
    report = check(framework, reference("numpy", factor=1.02))
    assert report.verdict == "passed"
    expected = "not the numpy reference in float64: it fails its own check"
    assert expected in report["backward"].oracle


@pytest.mark.needs("jax", "torch")
@pytest.mark.slow
def test_containers_and_what_is_not_differentiated_reach_the_reference():
    import jax
    import jax.numpy as jnp
    import torch

    def ours(params, x, *, scale, places):
        y = torch.tanh(params["w"] * x[places] + params["b"][0]) * scale
        return {"z": y, "a": y.sum()}

    def theirs(params, x, *, scale, places):
        y = jnp.tanh(params["w"] * x[places] + params["b"][0]) * scale
        return {"z": y, "a": y.sum()}

    def leaf(*values):
        return torch.tensor(values, requires_grad=True)

    inputs = ({"w": leaf(0.5, 0.2), "b": (leaf(0.1, -0.3),)}, torch.tensor([0.3, 0.4, 0.9]))
    kwargs = {"scale": 2.0, "places": torch.tensor([2, 0])}
    options = {"seed": 0, "checks": ["backward"], "reference": theirs}
    report = gradproof.check(ours, inputs, kwargs, **options)
    assert report.verdict == "passed", str(report)
    assert "the jax reference in float64" in report["backward"].oracle
    given = (
        {"w": jnp.array([0.5, 0.2]), "b": (jnp.array([0.1, -0.3]),)},
        jnp.array([0.3, 0.4, 0.9]),
    )
    options["reference"] = ours
    report = gradproof.check(theirs, given, {"scale": 2.0, "places": jnp.array([2, 0])}, **options)
    assert report.verdict == "passed", str(report)
    assert "the torch reference in float64" in report["backward"].oracle
    assert not jax.config.jax_enable_x64


@pytest.mark.needs("jax", "torch")
@pytest.mark.slow
def test_second_order_and_the_random_state_across_frameworks():
    import torch

    torch.manual_seed(5)
    before = torch.get_rng_state()

    def draws(x, w):
        return torch.sin(x) * w + 0.0 * torch.rand(5)

    report = check("jax", draws, order=2, checks=["backward", "second_order"])
    assert report.verdict == "passed", str(report)
    assert "the torch reference" in report["second_order"].oracle
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.needs("torch")
def test_a_reference_that_gets_the_wrong_arrays_is_told_how_to_say_so():
    def theirs(x, w):
        return x.at[0].set(1.0)

    report = check("torch", theirs)
    assert "gradproof.Reference(fn, framework=...) says so" in report["backward"].oracle


def wrapped(fn):
    return lambda x: fn(x, x)


def test_the_framework_of_a_function_is_read_from_its_code():
    for framework in FRAMEWORKS[1:]:
        if not is_installed(framework):
            continue
        fn, module = function(framework), module_of(framework)
        layers = [fn, module.sin, functools.partial(fn, w=1.0), wrapped(fn)]
        assert [foreign.framework_of(each) for each in layers] == [framework] * len(layers)
    assert foreign.framework_of(math.sin) == ""
    assert foreign.framework_of(lambda x: x + 1) == ""


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        (Reference(np.sin, framework="cupy"), "framework is one of 'numpy', 'torch', 'jax'"),
        (Reference(np.sin, framework="numpy"), "has no derivative of its own"),
        (Reference(np.sin, framework="jax", vjp=np.sin), "belongs to a function of NumPy"),
        (Reference(3), "expected a function, got int"),
    ],
)
def test_a_reference_that_cannot_be_one_gets_one_sentence(reference, sentence):
    with pytest.raises(UsageError, match=sentence):
        check("numpy", reference)


@pytest.mark.parametrize(("ours", "theirs"), [pair("torch", "jax"), pair("jax", "torch")])
def test_infinite_entries_reach_the_reference_too(ours, theirs):
    softmax = {
        "torch": lambda x: module_of("torch").softmax(x, -1),
        "jax": lambda x: importlib.import_module("jax").nn.softmax(x, -1),
    }
    given = np.array([[0.5, -np.inf, 1.0], [2.0, 0.25, -1.0]])
    lift = importlib.import_module(f"gradproof._adapters.{ours}").from_numpy
    x = lift(given, differentiated=True)
    reference = Reference(softmax[theirs], framework=theirs)
    report = gradproof.check(softmax[ours], (x,), reference=reference)
    assert report.verdict == "passed"
    assert any("1 of the 6 entries of x are infinite" in note for note in report.notes)
    twice = Reference(lambda x: softmax[theirs](2 * x), framework=theirs)
    other = gradproof.check(softmax[ours], (x,), reference=twice)
    assert other.verdict == "inconclusive"


def test_an_infinite_entry_of_a_function_of_numpy_is_held():
    def size(x):
        return np.exp(-np.abs(x)).sum()

    def gradient(x):
        return -np.sign(x) * np.exp(-np.abs(x))

    x = np.array([0.5, np.inf, -1.5])
    assert gradproof.check(size, x, grad=gradient).verdict == "passed"
    wrong = gradproof.check(size, x, grad=lambda x: np.where(np.isinf(x), 1.0, gradient(x)))
    assert wrong.verdict == "failed"
    assert wrong.findings[0].claimed == 1.0
