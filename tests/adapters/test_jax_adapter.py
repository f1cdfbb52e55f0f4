"""JAX functions as maps: right derivatives pass, wrong rules fail, whatever they are wrapped in."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradproof
from gradproof._data.records import Verdict
from gradproof._maps.contract import Unsupported
from gradproof.errors import UsageError
from gradproof.jax import check_grads
from gradproof.jax._adapter import build
from x64 import enable_x64

REFERENCE_ALONE = gradproof.Settings(oracles=["reference"])

PASSED, FAILED, SKIPPED = Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED


@pytest.fixture
def x64():
    with enable_x64(True):
        yield


def normal(*shape, seed=0, dtype=jnp.float32):
    values = np.random.default_rng(seed).normal(size=(2, *shape))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jnp.asarray(values[0] + 1j * values[1], dtype)
    return jnp.asarray(values[0], dtype)


def check(fn, inputs, kwargs=None, **options):
    return gradproof.check(fn, inputs, kwargs, **{"seed": 3, **options})


def verdicts(report):
    return {each.name: each.verdict for each in report.checks}


def summaries(report):
    return {each.name: f"{each.verdict}: {each.summary}" for each in report.checks}


# Rules written by users.


@jax.custom_jvp
def sine(x, w):
    return jnp.sin(x) * w


sine.defjvps(
    lambda t, out, x, w: t * jnp.cos(x) * w,
    lambda t, out, x, w: t * jnp.sin(x),
)


@jax.custom_jvp
def wrong_sine(x, w):
    return jnp.sin(x) * w


@wrong_sine.defjvp
def _(primals, tangents):
    (x, w), (dx, dw) = primals, tangents
    return wrong_sine(x, w), 1.01 * dx * jnp.cos(x) * w + dw * jnp.sin(x)


def with_backward(backward):
    @jax.custom_vjp
    def fn(x, w):
        return jnp.sin(x) * w

    fn.defvjp(lambda x, w: (fn(x, w), (x, w)), backward)
    return fn


good = with_backward(lambda kept, g: (g * jnp.cos(kept[0]) * kept[1], g * jnp.sin(kept[0])))
bad = with_backward(lambda kept, g: (g * jnp.cos(kept[0]) * kept[1], g * jnp.cos(kept[0])))


def test_a_plain_function_passes_every_check_in_double_precision(x64):
    report = check(lambda x: jax.nn.softmax(x) @ x.T, normal(3, 4, dtype=jnp.float64), order=2)
    ran = {name for name, verdict in verdicts(report).items() if verdict is PASSED}
    assert report.verdict is PASSED, str(report)
    assert {
        "backward",
        "forward",
        "forward_vs_backward",
        "linearity",
        "grad_metadata",
        "determinism",
    } <= ran
    assert {"batched", "batched_forward", "second_order", "forward_over_forward"} <= ran


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_function_that_widens_its_narrow_inputs_at_once_is_checked(dtype):
    """Compiled, it was taken to other points in a format of which NumPy knows no limits."""
    x = jnp.asarray(np.random.default_rng(1).standard_normal(6), dtype)
    assert check(jnp.fft.fft, x, seed=0).verdict is not FAILED
    assert check(lambda x: jnp.sin(x.astype(jnp.float32)), x).verdict is PASSED


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64"])
def test_low_precision_is_held_against_double_precision_without_the_users_configuration(dtype):
    assert not jax.config.jax_enable_x64
    report = check(lambda x: jnp.sin(x) * x, normal(40, dtype=dtype))
    assert report.verdict is PASSED, str(report)
    assert "float64" in report["backward"].oracle
    assert not jax.config.jax_enable_x64
    wrong = check(lambda x: wrong_sine(x, x), normal(40, dtype=dtype), checks=["forward"])
    assert wrong["forward"].verdict is FAILED


def test_an_array_of_64_bits_made_in_a_context_stays_one():
    with enable_x64(True):
        x = normal(5, dtype=jnp.float64)
    report = check(jnp.sin, x)
    assert report.inputs == ("x: float64[5]",)
    assert report["backward"].resolution < 1e-6
    assert report.verdict is PASSED


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_functions_that_are_not_holomorphic(dtype):
    with enable_x64(dtype == "complex128"):
        z, w = normal(4, dtype=dtype), normal(4, seed=1, dtype=dtype)
        for fn in (lambda z, w: z * jnp.conj(w), lambda z, w: jnp.abs(z) ** 2 + w.imag):
            report = check(fn, (z, w))
            assert report.verdict is PASSED, str(report)
        conjugated = jax.custom_vjp(lambda z, w: z * w)
        conjugated.defvjp(lambda z, w: (z * w, (z, w)), lambda k, g: (g * k[1].conj(), g * k[0]))
        found = check(conjugated, (z, w))["backward"]
        assert {each.input_name for each in found.findings} == {"z"}


WRAPPED = {
    "bare": lambda fn: fn,
    "jit": jax.jit,
    "vmap": jax.vmap,
    "remat": jax.checkpoint,
    "jit of vmap of remat": lambda fn: jax.jit(jax.vmap(jax.checkpoint(fn))),
    "scan": lambda fn: lambda x, w: jax.lax.scan(lambda c, xw: (c, fn(*xw)), 0.0, (x, w))[1],
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_rules_are_seen_through_transforms(wrap, x64):
    inputs = normal(5, dtype=jnp.float64), normal(5, seed=1, dtype=jnp.float64)
    for fn in (good, sine):
        report = check(wrap(fn), inputs)
        assert report.verdict is PASSED, summaries(report)
    found = check(wrap(bad), inputs)["backward"]
    assert {each.input_name for each in found.findings} <= {"w", "input 1"}
    assert found.verdict is FAILED
    assert check(wrap(wrong_sine), inputs)["forward"].verdict is FAILED


def test_a_custom_vjp_has_no_forward_mode_and_says_so(x64):
    report = check(good, (normal(3, dtype=jnp.float64),) * 2, order=2)
    assert report["forward"].verdict is SKIPPED
    assert "custom_vjp" in report["forward"].summary
    assert report["second_order"].verdict is PASSED


def test_arguments_that_are_not_differentiated(x64):
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0, 2))
    def apply(f, x, power):
        return f(x) ** power

    def backward(f, power, x, g):
        return (jax.vjp(lambda x: f(x) ** power, x)[1](g)[0] * (1.0 if power == 2 else 0.5),)

    apply.defvjp(lambda f, x, power: (apply(f, x, power), x), backward)
    x = normal(4, dtype=jnp.float64)
    assert check(apply, (jnp.sin, x, 2)).verdict is PASSED
    assert check(apply, (jnp.sin, x), {"power": 3}).verdict is FAILED


def test_a_rule_with_symbolic_zeros_is_checked_where_it_is_handed_none(x64):
    def ruled(factor):
        fn = jax.custom_jvp(lambda x: jnp.sin(x))
        fn.defjvp(lambda x, t: (jnp.sin(x[0]), factor * t[0] * jnp.cos(x[0])), symbolic_zeros=True)
        return fn

    assert check(ruled(1.0), normal(3, dtype=jnp.float64)).verdict is PASSED
    assert check(ruled(1.01), normal(3, dtype=jnp.float64)).verdict is FAILED


def test_pytrees_in_and_out_have_names(x64):
    def loss(params, batch, *, scale, mode):
        assert mode == "mean"
        y = jnp.tanh(batch["x"] @ params["w"] + params["b"][0]) * scale
        return {"loss": (y**2).mean(), "parts": [y, jnp.argmax(y)]}

    params = {
        "w": normal(3, 2, dtype=jnp.float64),
        "b": (normal(2, dtype=jnp.float64), jnp.arange(2)),
    }
    batch = {"x": normal(4, 3, seed=2, dtype=jnp.float64), "flag": jnp.array(True)}
    report = check(loss, (params, batch), {"scale": 2.0, "mode": "mean"})
    assert report.verdict is PASSED, str(report)
    names = [line.split(":")[0] for line in report.inputs]
    assert names == ["params['b'][0]", "params['w']", "batch['x']"]
    assert [line.split(":")[0] for line in report.outputs] == [
        "output['loss']",
        "output['parts'][0]",
    ]
    only = check(loss, (params, batch), {"scale": 2.0, "mode": "mean"}, wrt="params['w']")
    assert only.inputs == ("params['w']: float64[3, 2]",)


def dropout(key, x, p):
    return jnp.where(jax.random.bernoulli(key, p, x.shape), x, 0.0) * 2 + jnp.arange(30)


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["typed", "legacy"])
def test_random_keys_are_arguments_like_any_other(key):
    report = check(lambda x: dropout(key, x, jnp.float32(0.5)), normal(30))
    assert report.verdict is PASSED, str(report)


def test_random_numbers_that_follow_the_default_dtype_are_no_reason_to_accuse():
    """Under x64 bernoulli(key, 0.5) draws in 64 bits, another mask: it is another function."""
    report = check(dropout, (jax.random.key(0), normal(30), 0.5), checks=["backward"])
    assert report.verdict is not Verdict.FAILED, str(report)
    assert "draws other random numbers" in report["backward"].oracle


def test_float0_tangents_of_integer_outputs_are_left_out(x64):
    def top(x, k):
        values, places = jax.lax.top_k(x, 2)
        return values * k, places

    assert check(top, (normal(6, dtype=jnp.float64), jnp.array(3))).verdict is PASSED


def test_second_order_of_a_rule_whose_derivative_is_wrong(x64):
    def backward(kept, g):
        x, w = kept
        return g * jax.lax.stop_gradient(jnp.cos(x)) * w, g * jnp.sin(x)

    inputs = (normal(3, dtype=jnp.float64), normal(3, seed=1, dtype=jnp.float64))
    report = check(with_backward(backward), inputs, order=2)
    assert report["backward"].verdict is PASSED
    assert report["second_order"].verdict is FAILED


def test_third_order(x64):
    report = check(jnp.sin, normal(3, dtype=jnp.float64), order=3)
    assert report["third_order"].verdict is PASSED, str(report)


def test_a_batching_rule_that_is_wrong_is_found(x64):
    @jax.custom_batching.custom_vmap
    def scaled(g, factor):
        return g * factor

    @scaled.def_vmap
    def _(size, batched, g, factor):
        return (g * factor).at[1:].set(0.0), True

    fn = with_backward(
        lambda kept, g: (scaled(g, jnp.cos(kept[0]) * kept[1]), g * jnp.sin(kept[0]))
    )
    inputs = (normal(3, dtype=jnp.float64), normal(3, seed=1, dtype=jnp.float64))
    report = check(fn, inputs)
    assert report["backward"].verdict is PASSED, summaries(report)
    assert report["batched"].verdict is FAILED


def test_control_flow_without_a_backward_is_checked_forward_only():
    def loop(x):
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[
            1
        ]

    report = check(loop, normal(4))
    assert report["backward"].verdict is SKIPPED
    assert report["forward"].verdict is PASSED, str(report)


def test_a_loop_that_is_batched_ends_for_each_entry_by_itself():
    """JAX keeps the entries whose condition is false; honest runs raised here, and accused expi."""

    @jax.vmap
    def doubled(x):
        return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (2 * s[0], s[1] * x), (x, x))[1]

    report = check(doubled, jnp.array([0.3, 0.7, 1.2, 2.0]), checks=["forward"])
    assert report["forward"].verdict is PASSED, str(report)


def test_a_function_that_steers_by_values_is_not_compiled():
    def branchy(x):
        return jnp.sin(x) if x.sum() > 0 else jnp.cos(x)

    assert check(branchy, normal(4) + 5).verdict is PASSED


def test_a_reference_is_verified_and_believed():
    def reference(x, w):
        return jnp.sin(x) * w

    inputs = normal(20), normal(20, seed=1)
    report = check(good, inputs, reference=reference, settings=REFERENCE_ALONE)
    assert report.verdict is PASSED
    assert "reference" in report["backward"].oracle
    assert check(bad, inputs, reference=reference, settings=REFERENCE_ALONE).verdict is FAILED


def test_partial_sums_inside_a_cumulated_sum_are_rounded_in_honest_runs():
    """Rounded once at the end they explained too little: JAX's own sum in bfloat16 was accused."""

    def total(x):
        return jnp.cumsum(x * x)

    def reversed_sums(x):
        return jnp.flip(jnp.cumsum(jnp.flip(x)))

    def ruled(slope):
        fn = jax.custom_vjp(total)
        fn.defvjp(lambda x: (total(x), x), lambda x, g: (slope * x * reversed_sums(g),))
        return fn

    def reference(x):
        return jnp.cumsum(x * x)

    options = {"reference": reference, "settings": REFERENCE_ALONE, "checks": ["backward"]}
    x = normal(200, dtype=jnp.bfloat16)
    report = check(total, x, **options)
    assert report.verdict is PASSED, str(report)
    assert check(ruled(jnp.bfloat16(2.125)), x, **options).verdict is FAILED


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_number_in_the_program_is_rounded_in_honest_runs(factor):
    """x * 0.3 was accused in bfloat16, where 0.3 is 0.3008."""

    @jax.custom_vjp
    def share(x):
        return x * 0.3

    scale = factor * 0.3  # in the deployed precision; right in float64
    share.defvjp(
        lambda x: (share(x), x),
        lambda x, g: (g * (scale if x.dtype == jnp.bfloat16 else 0.3),),
    )
    x = jnp.asarray(np.random.default_rng(1).standard_normal((64, 32)), jnp.bfloat16)
    report = check(share, (x,), checks=["backward"], seed=1)
    assert report.verdict is (PASSED if factor == 1 else FAILED)


def test_sums_of_few_bits_are_off_by_their_partial_sums_and_others_not_at_all():
    terms = jnp.asarray(np.random.default_rng(0).standard_normal((400, 64)), jnp.bfloat16)
    exact = np.asarray(terms, float).sum(1)

    def summed(x):  # as it is in the VJP of a bias: jnp.sum widens first
        zeros = jnp.zeros(400, x.dtype)
        return jax.vjp(lambda b: jnp.broadcast_to(b[:, None], x.shape), zeros)[1](x)[0]

    kernel = np.asarray(summed(terms), float)

    def told(fn, x):
        run = rounded(fn, x)
        return run.value(run.point)

    ratio = np.std(told(summed, terms) - exact) / np.std(kernel - exact)
    assert 0.3 < ratio < 3

    whole = jnp.ones((3, 64), jnp.bfloat16)
    assert (told(lambda x: x.sum(1), whole) == 64).all()
    into = np.zeros(200, int)
    scattered = told(lambda x: jnp.zeros(2).at[into].add(x), terms[:200, 0])
    assert scattered[0] != np.asarray(terms[:200, 0], float).sum()
    assert scattered[1] == 0


def rounded(fn, x, seed=0):
    """An honest run of `fn` in the arithmetic of bfloat16."""
    with enable_x64(True):
        return build(fn, (x.astype(jnp.float64),)).rounded_map(2.0**-8, 2.0**-133, seed)


PREFIXES = {
    "cumsum": (jax.lax.cumsum, np.cumsum),
    "cumprod": (jax.lax.cumprod, np.cumprod),
    "cumlogsumexp": (jax.lax.cumlogsumexp, np.logaddexp.accumulate),
    "associative_scan": (
        lambda x, **options: jax.lax.associative_scan(jnp.multiply, x, **options),
        np.cumprod,
    ),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_each_partial_result_of_a_prefix_operation_is_rounded(name):
    fn, exact = PREFIXES[name]
    signs = np.resize([1.0, 1.0, -1.0], 40)
    x = jnp.asarray(signs * np.random.default_rng(0).uniform(1.0, 1.1, 40), jnp.bfloat16)
    runs = [rounded(functools.partial(fn, reverse=True), x, seed) for seed in range(6)]
    honest = np.stack([run.value(run.point) for run in runs])
    values = exact(np.asarray(x, float)[::-1])[::-1]
    errors = np.abs(honest / values - 1).max(axis=0) / 2.0**-7
    assert errors[-1] == 0  # the first of them is copied
    assert errors.max() > 1.2  # one rounding is 1 at most
    assert np.median(errors) < 10
    assert not (np.frexp(honest)[0] * 2**8 % 1).any()  # numbers of bfloat16


def test_what_a_backward_saved_is_rounded_once_for_all_cotangents():
    honest, other = (rounded(jnp.sin, normal(30), seed) for seed in (0, 1))
    v = np.resize([1.0, -2.0, 0.5], 30)  # powers of two: the product is not rounded
    assert np.array_equal(honest.vjp(v) / v, honest.vjp(4 * v) / (4 * v))
    assert np.array_equal(honest.jvp(v), honest.vjp(v))
    assert np.array_equal(honest.value(honest.point), honest.value(honest.point))
    assert not np.array_equal(honest.vjp(v), other.vjp(v))


@pytest.mark.slow
def test_the_sine_of_a_cumulated_product_passes_in_16_bits():
    """It was accused: honest runs rounded the product afresh for each cotangent, and averaged."""

    def right(x):
        return jnp.sin(3 * jnp.cumprod(x))

    @jax.custom_vjp
    def wrong(x):
        return right(x)

    def backward(x, g):
        # Honest runs of 64 products in a row are off by 10 % in the slope: 6 % would pass.
        return (jnp.bfloat16(1.1875) * jax.vjp(right, x)[1](g)[0],)

    wrong.defvjp(lambda x: (right(x), x), backward)
    x = jnp.asarray(np.random.default_rng(0).uniform(0.9, 1.1, 64), jnp.bfloat16)
    options = {"reference": lambda x: jnp.sin(3 * jnp.cumprod(x)), "settings": REFERENCE_ALONE}
    options |= {"checks": ["backward"], "seed": 0}
    report = check(right, x, **options)
    assert report.verdict is PASSED, str(report)
    assert check(wrong, x, **options).verdict is FAILED


@pytest.mark.parametrize("custom", [jax.custom_jvp, jax.custom_vjp])
def test_a_rule_that_reads_a_differentiated_array_from_around_it_is_told_what_to_do(custom):
    def outer(x, w):
        fn = custom(lambda x: jnp.sin(x) * w)
        if custom is jax.custom_jvp:
            fn.defjvp(lambda x, u: (fn(*x), jnp.cos(x[0]) * w * u[0]))
        else:
            fn.defvjp(lambda x: (fn(x), x), lambda x, g: (jnp.cos(x) * w * g,))
        return fn(x)

    report = check(outer, (normal(3), normal(3, seed=1)))
    assert report["backward"].verdict is FAILED
    assert report["backward"].summary.endswith(
        "a custom rule, or a cache, holds a differentiated array from outside: make it an argument"
    )
    assert "the traceback names the line" in " ".join(str(report).split())
    assert check(outer, (normal(3), normal(3, seed=1)), wrt="x").verdict is PASSED


def test_of_an_input_that_nothing_depends_on_the_derivative_is_zero(x64):
    inputs = (normal(3, dtype=jnp.float64),) * 2
    assert check(lambda x, y: jnp.sin(x), inputs)["backward"].verdict is PASSED

    @jax.custom_jvp
    def fn(x, y):
        return jnp.sin(x)

    fn.defjvps(lambda t, out, x, y: t * jnp.cos(x), lambda t, out, x, y: t)
    assert check(fn, inputs)["backward"].verdict is FAILED


def test_domain_and_projection(x64):
    x = jnp.abs(normal(4, dtype=jnp.float64)) + 0.1
    assert check(jnp.sqrt, x, domain=(0, None)).verdict is PASSED
    a = normal(3, 3, dtype=jnp.float64)
    spd = a @ a.T + jnp.eye(3)
    report = check(lambda a: jnp.linalg.cholesky((a + a.T) / 2, symmetrize_input=False), spd)
    assert report.verdict is PASSED, str(report)


@pytest.mark.parametrize("drawn", [0, 5, 623], ids=["fresh", "used", "used up"])
def test_numpys_random_state_is_left_alone(drawn):
    np.random.seed(0)  # noqa: NPY002
    np.random.randint(2**32, size=drawn, dtype=np.uint32)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    report = check(lambda x: x * np.random.rand(), normal(3))  # noqa: NPY002
    after = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(after[1], before[1])
    assert after[2] == before[2]
    assert report["side_effects"].verdict is PASSED


def test_a_function_that_seeds_numpys_generator_is_a_finding():
    def seeding(x):
        np.random.seed(3)  # noqa: NPY002
        return jnp.sin(x)

    report = check(seeding, normal(3))
    assert report["side_effects"].verdict is FAILED


@pytest.mark.parametrize(
    ("fn", "inputs", "options", "sentence"),
    [
        (jnp.sin, (jnp.arange(3),), {}, "at least one array of floating numbers"),
        (jnp.argmax, (jnp.ones(3),), {}, "returned no array of floating numbers"),
        (jnp.sin, (jnp.array([1.0, jnp.nan]),), {}, "[1] is nan"),
        (jnp.sin, (jnp.ones(2),), {"names": ["a", "b"]}, "names: expected 1"),
        (
            jnp.sin,
            (jnp.ones(2),),
            {"settings": gradproof.Settings(masked=True)},
            "masked: JAX's sparse arrays",
        ),
        (jnp.sin, (jnp.ones(2),), {"wrt": "q"}, "wrt: 'q' selects no differentiable input"),
    ],
)
def test_bad_input_gets_one_sentence(fn, inputs, options, sentence):
    with pytest.raises(UsageError) as caught:
        check(fn, inputs, **options)
    assert sentence in str(caught.value)


def test_arrays_of_numpy_alone_are_refused_with_what_to_do():
    with pytest.raises(UsageError, match=r"got ndarray; pass .* or jax arrays, jnp\.asarray"):
        check(jnp.sin, np.linspace(0.1, 1.0, 5))


def test_a_tracer_is_refused():
    with pytest.raises(UsageError, match="outside jit, grad and vmap"):
        jax.jit(lambda x: check(jnp.sin, x) and x)(jnp.ones(2))


def test_projections_need_a_differentiable_cotangent_rule():
    callback = with_backward(
        lambda kept, g: (
            jax.pure_callback(lambda g: np.asarray(g), jax.ShapeDtypeStruct(g.shape, g.dtype), g),
            g,
        )
    )
    target = build(callback, (normal(3), normal(3)))
    with pytest.raises(Unsupported):
        target.transposed_vjp(target.point, np.ones(3))


# Layers.


def test_layers_of_equinox_bring_their_parameters():
    eqx = pytest.importorskip("equinox")
    layer = eqx.nn.MLP(3, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    report = check(layer, normal(3))
    assert report.verdict is PASSED, str(report)
    names = [line.split(":")[0] for line in report.inputs]
    assert names == [f"layers[{k}].{what}" for k in (0, 1) for what in ("weight", "bias")] + ["x"]
    assert check(eqx.filter_jit(layer), normal(3), checks=["backward"]).verdict is PASSED


def test_layers_of_flax_nnx_bring_their_parameters_and_keep_their_statistics():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(3, 4, rngs=rngs)
            self.norm = nnx.BatchNorm(4, rngs=rngs)

        def __call__(self, x):
            return self.norm(jnp.tanh(self.linear(x)))

    net = Net(nnx.Rngs(0))
    before = np.asarray(net.norm.mean[...]).copy()
    report = check(net, normal(6, 3))
    assert report.verdict is PASSED, str(report)
    names = [line.split(":")[0] for line in report.inputs]
    assert names == ["linear.bias", "linear.kernel", "norm.bias", "norm.scale", "x"]
    np.testing.assert_array_equal(np.asarray(net.norm.mean[...]), before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_wrt_leaves_out_stays_left_out_in_double_precision(dtype):
    """The oracle differentiated every array again: a rule was accused of an input not asked for."""

    @jax.custom_jvp
    def fn(x, y):
        return x * jnp.sin(y)

    fn.defjvps(lambda t, out, x, y: t * jnp.sin(y), None)
    inputs = normal(3, dtype=dtype), normal(3, seed=1, dtype=dtype)
    report = check(fn, inputs, wrt="x")
    assert report["backward"].verdict is PASSED, str(report)
    assert report.verdict is not FAILED, str(report)
    assert "float64" in report["backward"].oracle
    found = check(fn, inputs, wrt="y")["backward"]
    assert found.verdict is FAILED
    assert {each.input_name for each in found.findings} == {"y"}


def test_a_function_without_any_derivative_does_not_pass():
    def callback(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    report = check(callback, normal(4))
    assert report["side_effects"].verdict is PASSED
    assert report.verdict is SKIPPED


def test_batched_rules_are_read_where_nothing_may_cross_to_the_device_unasked():
    x = normal(3)
    with jax.transfer_guard("disallow"):
        report = check(jnp.sin, x, checks=["batched", "batched_forward"])
    assert report.verdict is PASSED, str(report)


def test_a_named_tuple_is_one_argument_of_a_function_of_one():
    class State(NamedTuple):
        a: Any
        count: int

    report = check(lambda s: State(s.a**2, s.count), State(normal(3), 3), checks=["backward"])
    assert report.verdict is PASSED, str(report)
    assert report.inputs == ("s.a: float32[3]",)
    two = check(lambda a, count: a**count, State(normal(3), 3), checks=["backward"])
    assert two.inputs == ("a: float32[3]",)


def test_arrays_on_several_devices_stay_on_them():
    program = """
        import jax, jax.numpy as jnp, numpy as np, gradproof
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

        assert jax.device_count() == 4
        sharding = NamedSharding(Mesh(np.array(jax.devices()), "i"), P("i"))
        x = jax.device_put(jnp.linspace(0.1, 1, 8), sharding)
        seen = set()

        def fn(x):
            if not isinstance(x, jax.core.Tracer):
                seen.add(x.sharding)
            return jnp.sin(x) * x.sum()

        report = gradproof.check(fn, x, seed=0)
        assert report.verdict == "passed", str(report)
        assert seen == {sharding}, seen
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("chosen", [False, True], ids=["factor", "entries"])
def test_a_function_of_random_values_is_inconclusive_in_every_check(chosen):
    """What JAX traces again draws again: no two runs agree, and nothing can be accused."""
    drawn = np.random.default_rng(0)

    def fn(x):
        return x[drawn.integers(0, 6, 50)] if chosen else x * drawn.standard_normal()

    report = check(fn, (normal(6),))
    assert report.verdict is Verdict.INCONCLUSIVE, str(report)
    assert "fix the random state" in report["backward"].summary


def valued(value, *, jvp):
    """The logarithm of a sum of exponentials, whose rule returns `value` beside its derivative."""
    if jvp:
        fn = jax.custom_jvp(lambda x: jnp.log(jnp.exp(x).sum()))
        fn.defjvp(lambda x, u: (value(*x), jax.nn.softmax(*x) @ u[0]))
    else:
        fn = jax.custom_vjp(lambda x: jnp.log(jnp.exp(x).sum()))
        fn.defvjp(lambda x: (value(x), x), lambda x, g: (g * jax.nn.softmax(x),))
    return fn


@pytest.mark.parametrize("jvp", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_rule_returns_the_functions_value_beside_its_derivative(dtype, jvp):
    """A loss whose logged value is another than the one that training sees passed."""
    with enable_x64(dtype == "float64"):
        x = normal(6, dtype=dtype)
        right = valued(lambda x: jax.nn.logsumexp(x), jvp=jvp)  # another way to the same value
        wrong = valued(lambda x: 1.2 * jax.nn.logsumexp(x), jvp=jvp)
        assert check(right, x).verdict is not FAILED
        report = check(wrong, x)
        assert verdicts(report)["side_effects"] is FAILED
        assert "another value" in report["side_effects"].findings[0].message
        assert "the forward of the rule" in " ".join(str(report).split())
        check_grads(right, (x,), 1, modes="rev")
        with pytest.raises(AssertionError, match="another value"):
            check_grads(wrong, (x,), 1, modes="rev")


@pytest.mark.needs("flax")
def test_the_variables_of_a_flax_module_are_one_argument():
    from flax import linen

    model, x = linen.Dense(2), normal(3)
    variables = model.init(jax.random.key(0), x)
    assert check(lambda params: model.apply(params, x), {"params": variables["params"]})
    report = check(model.apply, (variables, x))
    assert report.verdict is PASSED, str(report)
    assert len(report.inputs) == 3
