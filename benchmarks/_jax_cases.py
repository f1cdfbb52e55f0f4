"""Differentiable functions of JAX, each with inputs inside its domain, away from kinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax, nn
from jax.scipy import linalg as slinalg
from jax.scipy import stats

SHAPE = (3, 4)


@dataclass(frozen=True)
class Case:
    """A function, and the domain letter and shape of each input."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[tuple[str, tuple[int, ...]], ...]

    def arrays(self, dtype: str) -> tuple[Any, ...]:
        rng = np.random.default_rng(sum(map(ord, self.name)))
        return tuple(
            jnp.asarray(DOMAINS[letter](rng, shape), dtype) for letter, shape in self.inputs
        )


def _away_from_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 2, shape)


def _definite(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    a = rng.normal(size=shape)
    return a @ a.T + shape[0] * np.eye(shape[0])


def _distinct(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Entries that lie apart, so that their order is settled."""
    count = int(np.prod(shape))
    return rng.permutation(np.linspace(-2, 2, count) + 0.1 * rng.random()).reshape(shape)


DOMAINS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "R": lambda rng, shape: rng.normal(size=shape),  # any real number
    "S": _away_from_zero,
    "P": lambda rng, shape: rng.uniform(0.5, 2, shape),
    "U": lambda rng, shape: rng.uniform(-0.8, 0.8, shape),
    "I": lambda rng, shape: rng.uniform(0.1, 0.9, shape),  # a probability
    "G": lambda rng, shape: rng.uniform(1.2, 3, shape),
    "D": _definite,
    "M": lambda rng, shape: rng.normal(size=shape) + 3 * np.eye(*shape),  # well conditioned
    "O": _distinct,
}

# Functions of one array, by domain. Names are looked up in these modules, in this order.
MODULES = {"jnp": jnp, "lax": lax, "nn": nn, "special": special}
ELEMENTWISE = {
    "jnp R": "sin cos tanh sinh cosh arctan arcsinh exp exp2 expm1 square negative sinc i0 deg2rad",
    "jnp S": "abs cbrt reciprocal",
    "jnp P": "log log2 log1p sqrt tan",
    "jnp U": "arcsin arccos arctanh",
    "jnp G": "arccosh",
    "lax R": "erf erfc bessel_i0e bessel_i1e",
    "lax P": "rsqrt lgamma digamma",
    "lax U": "erf_inv",
    "nn R": "sigmoid softplus silu log_sigmoid elu celu selu gelu mish squareplus soft_sign "
    "softmax log_softmax standardize glu",
    "nn S": "relu leaky_relu",
    "nn U": "relu6 hard_sigmoid hard_silu hard_tanh sparse_sigmoid sparse_plus",
    "special R": "expit log_ndtr ndtr i0e i1 i1e",
    "special P": "gamma gammaln entr expi exp1 spence",
    "special I": "logit ndtri",
}
REDUCTIONS = (
    "sum prod mean var std cumsum cumprod nanvar transpose flip rot90 tril trace cov gradient diff"
)
ORDERED = "max ptp sort median"
BINARY = {
    "R R": "add subtract multiply logaddexp kron outer inner vdot",
    "R P": "divide",
    "P R": "power",
    "S S": "hypot arctan2",
    "O O": "maximum minimum",
}


def one(module: str, letter: str, name: str) -> Case:
    return Case(f"{module}.{name}", getattr(MODULES[module], name), ((letter, SHAPE),))


def own(name: str, fn: Callable[..., Any], *inputs: str) -> Case:
    """Inputs as "R34": a domain letter and the sizes."""
    made = tuple((text[0], tuple(int(size) for size in text[1:])) for text in inputs)
    return Case(name, fn, made)


def _scan(x: Any, w: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry @ w + row)
        return carry, carry.sum()

    return lax.scan(step, jnp.zeros(x.shape[1], x.dtype), x)


def _convolved(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x[None, None], w[None, None], (1, 1), "SAME")


ROWS = (((1,), (0,)), ((), ()))  # contract the second dimension with the first
SPECIAL = [
    own("jnp.clip", lambda x: jnp.clip(x, -0.95, 0.95), "U34"),
    own("jnp.where", lambda x, y: jnp.where(jnp.arange(4) > 1, x, y), "R34", "R34"),
    own("jnp.concatenate", lambda x, y: jnp.concatenate([x, y], 1), "R34", "R34"),
    own("jnp.pad", lambda x: jnp.pad(x, 1), "R34"),
    own("jnp.take_along_axis", lambda x: jnp.take_along_axis(x, jnp.array([[0, 2]]), 1), "R34"),
    own("jnp.broadcast_to", lambda x: jnp.broadcast_to(x, (2, 3, 4)), "R34"),
    own("jnp.einsum", lambda x, y: jnp.einsum("ij,kj->ik", x, y), "R34", "R34"),
    own("jnp.tensordot", lambda x, y: jnp.tensordot(x, y, 1), "R34", "R43"),
    own("jnp.matmul", jnp.matmul, "R34", "R43"),
    own("jnp.dot", jnp.dot, "R34", "R43"),
    own("jnp.cross", jnp.cross, "R43", "R43"),
    own("jnp.convolve", jnp.convolve, "R5", "R3"),
    own("jnp.interp", lambda x, y: jnp.interp(x, jnp.linspace(-1, 1, 3), y), "I4", "R3"),
    own("jnp.polyval", jnp.polyval, "R4", "R3"),
    own("jnp.mod", lambda x: jnp.mod(x, 5.0), "P34"),
    own("jnp.cumulative_sum", lambda x: jnp.cumulative_sum(x, axis=1), "R34"),
    own("jnp.linalg.norm", jnp.linalg.norm, "R34"),
    own("jnp.linalg.inv", jnp.linalg.inv, "M33"),
    own("jnp.linalg.det", jnp.linalg.det, "M33"),
    own("jnp.linalg.solve", jnp.linalg.solve, "M33", "R32"),
    own("jnp.linalg.cholesky", jnp.linalg.cholesky, "D33"),
    own("jnp.linalg.qr", lambda x: jnp.linalg.qr(x), "M43"),
    own("jnp.linalg.eigh values", lambda x: jnp.linalg.eigh(x)[0], "D33"),
    own("jnp.linalg.svd values", lambda x: jnp.linalg.svd(x, compute_uv=False), "M34"),
    own("jnp.linalg.pinv", jnp.linalg.pinv, "M43"),
    own("jnp.linalg.lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], "M43", "R42"),
    own("jnp.linalg.multi_dot", lambda *x: jnp.linalg.multi_dot(x), "R23", "R34", "R42"),
    own("jnp.linalg.vector_norm 3", lambda x: jnp.linalg.vector_norm(x, ord=3), "S34"),
    own("jnp.fft.fft", jnp.fft.fft, "R6"),
    own("jnp.fft.irfft of rfft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x) ** 2), "R6"),
    own("lax.pow", lax.pow, "P34", "R34"),
    own("lax.integer_pow", lambda x: lax.integer_pow(x, 3), "R34"),
    own("lax.igamma", lambda x: lax.igamma(jnp.full_like(x, 1.5), x), "P34"),
    own("lax.igamma in a", lax.igamma, "P34", "P34"),
    own("lax.polygamma", lambda x: lax.polygamma(jnp.full_like(x, 1), x), "P34"),
    own("lax.zeta", lambda q: lax.zeta(jnp.full_like(q, 2.5), q), "P34"),
    own("lax.cumlogsumexp", lax.cumlogsumexp, "R34"),
    own("lax.cummax", lax.cummax, "O34"),
    own("lax.top_k", lambda x: lax.top_k(x, 2)[0], "O34"),
    own(
        "lax.dynamic_update_slice",
        lambda x, y: lax.dynamic_update_slice(x, y, (1, 1)),
        "R34",
        "R22",
    ),
    own("lax.conv_general_dilated", _convolved, "R45", "R32"),
    own(
        "lax.dot_general",
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))),
        "R34",
        "R42",
    ),
    own(
        "lax.reduce_window sum",
        lambda x: lax.reduce_window(x, np.zeros((), x.dtype)[()], lax.add, (2, 2), (1, 1), "VALID"),
        "R34",
    ),
    own("lax.scan", _scan, "R43", "R33"),
    own("lax.cond", lambda x: lax.cond(x.sum() > -99, jnp.sin, jnp.cos, x), "R34"),
    own("lax.associative_scan", lambda x: lax.associative_scan(jnp.multiply, x), "S34"),
    own("lax.fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) + x, x), "R34"),
    own("lax.select_n", lambda x, y: lax.select_n(jnp.arange(4) > 1, x, y), "R4", "R4"),
    own("index add", lambda x, y: x.at[jnp.array([0, 1, 1])].add(y), "R34", "R34"),
    own("index max", lambda x: x[jnp.array([2, 0, 0])], "R34"),
    own("nn.logsumexp", lambda x: nn.logsumexp(x, axis=1), "R34"),
    own("nn.dot_product_attention", nn.dot_product_attention, "R1212", "R1312", "R1312"),
    own("special.betaln", special.betaln, "P34", "P34"),
    own("special.betainc", lambda x: special.betainc(1.5, 2.5, x), "I34"),
    own("special.gammainc", lambda x: special.gammainc(1.5, x), "P34"),
    own("special.rel_entr", special.rel_entr, "P34", "P34"),
    own("special.xlogy", special.xlogy, "R34", "P34"),
    own("special.xlog1py", special.xlog1py, "R34", "P34"),
    own("special.multigammaln", lambda x: special.multigammaln(x, 2), "G34"),
    own("special.poch", special.poch, "P34", "P34"),
    own("special.hyp1f1", lambda x: special.hyp1f1(1.5, 2.5, x), "P34"),
    own("linalg.expm", slinalg.expm, "U33"),
    own("linalg.solve_triangular", lambda a, b: slinalg.solve_triangular(a, b), "M33", "R32"),
    own("linalg.cho_solve", lambda a, b: slinalg.cho_solve((a, True), b), "D33", "R32"),
    own("linalg.toeplitz", slinalg.toeplitz, "R4"),
    own("stats.norm.logpdf", stats.norm.logpdf, "R34", "R34", "P34"),
    own("stats.t.logpdf", stats.t.logpdf, "R34", "P34"),
    own("stats.beta.logpdf", stats.beta.logpdf, "I34", "P34", "P34"),
    own("stats.gamma.logpdf", stats.gamma.logpdf, "P34", "P34"),
    own("stats.cauchy.logpdf", stats.cauchy.logpdf, "R34"),
    own("stats.laplace.logpdf", stats.laplace.logpdf, "S34"),
    own("stats.expon.logpdf", stats.expon.logpdf, "P34"),
    own("stats.logistic.logpdf", stats.logistic.logpdf, "R34"),
    own("stats.dirichlet.logpdf", lambda a: stats.dirichlet.logpdf(jnp.full(4, 0.25), a), "P4"),
    own("stats.multivariate_normal.logpdf", stats.multivariate_normal.logpdf, "R3", "R3", "D33"),
    own("stats.poisson.logpmf", lambda mu: stats.poisson.logpmf(jnp.arange(4), mu), "P4"),
    own("jit of vmap of grad", jax.jit(jax.vmap(jax.grad(lambda x: jnp.sin(x) ** 2))), "R6"),
    own("remat", jax.checkpoint(lambda x: jnp.sin(jnp.exp(x))), "R34"),
]


def cases() -> list[Case]:
    """Every case once; functions of the same name in two modules are two cases."""
    found = [
        one(*key.split(), name) for key, names in ELEMENTWISE.items() for name in names.split()
    ]
    found += [one("jnp", "R", name) for name in REDUCTIONS.split()]
    found += [one("jnp", "O", name) for name in ORDERED.split()]
    for letters, names in BINARY.items():
        inputs = tuple((letter, SHAPE) for letter in letters.split())
        for name in names.split():
            found.append(Case(f"jnp.{name}", getattr(jnp, name), inputs))
    return found + SPECIAL
