"""Hand-written derivatives of published libraries, with inputs to check them at: `libraries.py`.

A function a library: what it yields is checked in a process that imports this library alone.
`defect` says what is wrong with a derivative, where something is; docs/defects shows it without
gradproof. Left out are derivatives by decree (tangents of Lie groups, samplers), which are not
derivatives of their forward, unless what is meant is written down, as for the surrogates of spikes:
that is then the definition. Left out is also what runs on a GPU only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PINNED = {
    "autograd": "1.9.1",
    "deepinv": "0.5.0",
    "diffsort": "0.2.0",
    "efficientnet_pytorch": "0.7.1",
    "entmax": "1.3",
    "gpytorch": "1.15.2",
    "jaxopt": "0.8.5",
    "kornia": "0.9.0",
    "kymatio": "0.3.0",
    "liger_kernel": "0.8.5",
    "linear_operator": "0.6.1",
    "memory_efficient_attention_pytorch": "0.1.6",
    "monai": "1.6.1",
    "numpyro": "0.22.0",
    "pylops": "2.8.0",
    "pytorch_finufft": "0.1.0",
    "pytorch_wavelets": "1.3.0",
    "snntorch": "1.0.0",
    "spikingjelly": "2.0.0",
    "tad_mctc": "0.11.3",
    "timm": "1.0.31",
    "torch_struct": "0.5",
    "torchkbnufft": "1.5.2",
    "xitorch": "0.5.1",
    "zuko": "1.6.0",
}


@dataclass(frozen=True)
class Case:
    """A derivative: the function, where it is checked, and what is known to be wrong with it."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    defect: str = ""
    order: int = 1
    options: dict[str, Any] = field(default_factory=dict)  # of gradproof.check alone
    torch: bool = True  # whether PyTorch's gradcheck can be asked


def normal(*shape: int, seed: int = 0, needs: bool = True, scale: float = 1.0) -> Any:
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(*shape, dtype=torch.float64, generator=generator) * scale
    return drawn.requires_grad_(needs)


def positive(*shape: int, seed: int = 0, needs: bool = True) -> Any:
    return (normal(*shape, seed=seed, needs=False).abs() + 0.5).requires_grad_(needs)


def definite(n: int, seed: int = 0, needs: bool = True) -> Any:
    import torch

    a = normal(n, n, seed=seed, needs=False)
    return (a @ a.mT + n * torch.eye(n, dtype=a.dtype)).requires_grad_(needs)


def zuko() -> Iterator[Case]:
    import torch
    from zuko.utils import bisection, gauss_legendre

    def inverted(y: Any, phi: Any) -> Any:
        a, b = torch.full_like(y, -9), torch.full_like(y, 9)
        return bisection(lambda x: x + phi * x.tanh(), y, a, b, n=60, phi=(phi,))

    def area(a: Any, b: Any, phi: Any) -> Any:
        return gauss_legendre(lambda x: phi * x**2 + x, a, b, n=4, phi=(phi,))

    def tied(phi: Any) -> Any:
        return gauss_legendre(lambda x: phi * x**2 + x, phi.sin(), phi + 1, n=4, phi=(phi,))

    raises = "raises where the parameters of phi need no gradient"
    yield Case("bisection", inverted, (normal(4), positive(4)), raises)
    ends = normal(4), normal(4, seed=1)
    yield Case("gauss_legendre", area, (*ends, positive(4)), raises)
    defect = "a limit that depends on phi counts twice"
    yield Case("gauss_legendre, limits of phi", tied, (positive(4),), defect)


def gpytorch() -> Iterator[Case]:
    import torch
    from gpytorch.functions._log_normal_cdf import LogNormalCDF
    from gpytorch.functions.matern_covariance import MaternCovariance
    from gpytorch.functions.rbf_covariance import RBFCovariance
    from gpytorch.variational.large_batch_variational_strategy import QuadFormDiagonal
    from gpytorch.variational.variational_strategy import ComputePredictiveUpdates

    z = torch.tensor([0.05, 0.5, -0.4, 0.6], dtype=torch.float64, requires_grad=True)
    yield Case("log_normal_cdf", LogNormalCDF.apply, (z,))
    z = torch.tensor([-1.1], dtype=torch.float64, requires_grad=True)
    defect = "value and gradient are two approximations, 0.4 % apart"
    yield Case("log_normal_cdf at -1.1", LogNormalCDF.apply, (z,), defect)
    x, y, length = normal(4, 2, needs=False), normal(3, 2, seed=1, needs=False), positive(1, 1)

    def squared(a: Any, b: Any) -> Any:
        return (a[:, None] - b[None]).square().sum(-1)

    def distance(a: Any, b: Any) -> Any:
        return squared(a, b).sqrt()

    yield Case("RBF", lambda s: RBFCovariance.apply(x, y, s, squared), (length,))
    for nu in (0.5, 1.5, 2.5):
        yield Case(
            f"Matern {nu}",
            lambda s, nu=nu: MaternCovariance.apply(x, y, s, nu, distance),
            (length,),
        )

    def quadratic(a: Any, b: Any) -> Any:
        return QuadFormDiagonal.apply(a + a.mT, b)

    yield Case("QuadFormDiagonal", quadratic, (normal(3, 3), normal(3, 5, seed=1)))
    chol = torch.linalg.cholesky(definite(3, needs=False)).requires_grad_()

    def updates(chol: Any, covar: Any, middle: Any, values: Any) -> Any:
        return ComputePredictiveUpdates.apply(chol.tril(), covar, middle + middle.mT, values)

    inputs = (chol, normal(3, 4), normal(3, 3, seed=1), normal(3, seed=2))
    yield Case("ComputePredictiveUpdates", updates, inputs)


def entmax() -> Iterator[Case]:
    import entmax as em
    import torch

    x = normal(3, 5)
    alpha = torch.tensor([[1.4], [1.7], [2.2]], dtype=torch.float64, requires_grad=True)
    once = "the second derivative is NaN where an output is zero"
    yield Case("sparsemax", em.sparsemax, (x,), order=2)
    yield Case("entmax15", em.entmax15, (x,), once, order=2)
    yield Case("entmax_bisect", em.entmax_bisect, (x, alpha))
    yield Case("entmax_bisect, order 2", em.entmax_bisect, (x, alpha), once, order=2)
    yield Case("sparsemax_bisect", em.sparsemax_bisect, (x,), order=2)
    yield Case("normmax_bisect, alpha a number", lambda x: em.normmax_bisect(x, 2.5), (x,))
    defect = "no gradient for alpha, without a word"
    yield Case("normmax_bisect", em.normmax_bisect, (x, alpha), defect)
    yield Case("budget_bisect", lambda x: em.budget_bisect(x, 2), (x,))
    target = torch.tensor([0, 2, 1])
    for name in ("sparsemax", "sparsemax_bisect", "entmax15", "entmax_bisect", "normmax_bisect"):
        loss = getattr(em, f"{name}_loss", None) or getattr(em.losses, f"{name}_loss")
        each = functools.partial(_of, loss, target)
        yield Case(f"{name}_loss", each, (x,))
        once = "the Hessian is zero: the backward saves what depends on the input"
        yield Case(f"{name}_loss, order 2", each, (x,), once, order=2)


def _of(loss: Callable[..., Any], target: Any, x: Any) -> Any:
    return loss(x, target)


def read_out(path: str, *names: str) -> dict[str, Any]:
    """Classes of an installed file whose package cannot be imported: it needs torchvision."""
    import ast
    import importlib.metadata
    from typing import Any

    import torch

    package = path.split("/")[0]
    text = Path(str(importlib.metadata.distribution(package).locate_file(path))).read_text()
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if getattr(node, "name", "") in names]
    found: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "Any": Any}
    exec(compile(tree, path, "exec"), found)
    return found


def deepinv() -> Iterator[Case]:
    import torch

    names = ("LinearSplineFunc", "LinearSplineDerivativeFunc", "QuadraticSplineFunc")
    functions = read_out("deepinv/models/deal.py", *names)
    low, high = (torch.tensor(end, dtype=torch.float64) for end in (-1.0, 1.0))
    starts, x = torch.tensor([0, 7]), normal(1, 2, 1, 3, 2, scale=0.4)
    coefficients = normal(14, seed=1)
    for name in names:

        def spline(x: Any, c: Any, function: Any = functions[name]) -> Any:
            return function.apply(x, c, low, high, 7, starts)

        defect = "raises for an input that is not contiguous"
        if name == "LinearSplineDerivativeFunc":
            defect = "the gradient of the coefficients ignores the cotangent"
        yield Case(name, spline, (x, coefficients), defect)


def torch_struct() -> Iterator[Case]:
    from torch_struct.semirings.sparse_max import SparseMaxSemiring

    defect = "the value subtracts |w|, the gradient is that of |w|^2 / 2"
    yield Case("SparseMaxSemiring.sum", SparseMaxSemiring.sum, (normal(3, 4),), defect)


def flattened(module: Callable[..., Any]) -> Callable[..., Any]:
    """A transform that returns lists, with a tuple of tensors for PyTorch's gradcheck."""

    def bands(x: Any) -> tuple[Any, ...]:
        low, highs = module(x)
        return (low, *highs)

    return bands


def pytorch_wavelets() -> Iterator[Case]:
    from pytorch_wavelets.dtcwt.transform2d import DTCWTForward, DTCWTInverse
    from pytorch_wavelets.dwt.transform1d import DWT1DForward, DWT1DInverse
    from pytorch_wavelets.dwt.transform2d import DWTForward, DWTInverse
    from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

    borders = "the backward is not the transpose at the borders"
    alone = "None where only highs needs a gradient"
    for mode in ("zero", "symmetric", "periodization", "reflect", "periodic"):
        wrong = mode not in ("zero", "periodization")
        line = flattened(DWT1DForward(J=1, wave="db2", mode=mode).double())
        plane = flattened(DWTForward(J=1, wave="db2", mode=mode).double())
        yield Case(f"DWT1DForward {mode}", line, (normal(1, 1, 12),), borders if wrong else "")
        yield Case(f"DWTForward {mode}", plane, (normal(1, 1, 8, 8),), borders if wrong else "")
        back = DWT1DInverse(wave="db2", mode=mode).double()
        low, high = normal(1, 1, 8), normal(1, 1, 8, seed=1)
        yield Case(
            f"DWT1DInverse {mode}", lambda a, b, back=back: back((a, [b])), (low, high),
            f"{alone}; {borders}" if wrong else alone,
        )  # fmt: skip
    flat = DWTInverse(wave="db2", mode="zero").double()
    highs, low = normal(1, 1, 3, 6, 6), normal(1, 1, 6, 6, needs=False)
    yield Case("DWTInverse, highs alone", lambda h: flat((low, [h])), (highs,), alone)
    forward, inverse = DTCWTForward(J=2).double(), DTCWTInverse().double()
    yield Case("DTCWTForward", flattened(forward), (normal(1, 1, 8, 8),))
    shapes = [tuple(each.shape) for each in forward(normal(1, 1, 8, 8, needs=False))[1]]
    bands = tuple(normal(*shape, seed=1) for shape in shapes)
    low = normal(*forward(normal(1, 1, 8, 8, needs=False))[0].shape)
    yield Case("DTCWTInverse", lambda low, *bands: inverse((low, list(bands))), (low, *bands))
    inputs = (normal(5), normal(5, seed=1))
    raises = "raises where only the imaginary part needs a gradient"
    yield Case("SmoothMagFn", lambda x, y: SmoothMagFn.apply(x, y, 0.1), inputs, raises)


def pytorch_finufft() -> Iterator[Case]:
    import torch
    from pytorch_finufft import functional as nufft

    points = torch.linspace(-2.5, 2.7, 6, dtype=torch.float64)[None].requires_grad_()
    values = torch.complex(normal(6, needs=False), normal(6, seed=1, needs=False)).requires_grad_()
    modes = torch.complex(normal(8, needs=False), normal(8, seed=1, needs=False)).requires_grad_()

    def first(points: Any, values: Any) -> Any:
        return nufft.finufft_type1(points, values, (8,), eps=1e-14)

    def second(points: Any, modes: Any) -> Any:
        return nufft.finufft_type2(points, modes, eps=1e-14)

    twice = "differentiated again it is a constant: the backward has no graph"
    options = {"rtol": 1e-6, "atol": 1e-9}
    for name, fn, inputs in (
        ("type1", first, (points, values)),
        ("type2", second, (points, modes)),
    ):
        yield Case(name, fn, inputs, options=options)
        yield Case(f"{name}, order 2", fn, inputs, twice, order=2, options=options)


def linear_operator() -> Iterator[Case]:
    import torch
    from linear_operator import to_linear_operator as lazy

    r, b, left = normal(4, 4), normal(4, 2), normal(3, 4, seed=1)

    def definite_operator(r: Any) -> Any:
        return lazy(r @ r.mT + 4 * torch.eye(4, dtype=r.dtype))

    both = lambda r, b: definite_operator(r).inv_quad_logdet(b, logdet=True)  # noqa: E731
    functions = {
        "matmul": (lambda r, b: definite_operator(r).matmul(b), (r, b)),
        "solve": (lambda r, b: definite_operator(r).solve(b), (r, b)),
        "solve, left": (lambda r, b, left: definite_operator(r).solve(b, left), (r, b, left)),
        "inv_quad": (lambda r, b: definite_operator(r).inv_quad(b), (r, b)),
        "inv_quad_logdet": (both, (r, b)),
        "sqrt_inv_matmul": (lambda r, b: definite_operator(r).sqrt_inv_matmul(b), (r, b)),
        "pivoted_cholesky": (lambda r: definite_operator(r).pivoted_cholesky(rank=4), (r,)),
    }
    twice = "the second derivative is wrong, without a word"
    wrong = ("solve, left", "inv_quad", "sqrt_inv_matmul", "pivoted_cholesky")
    for name, (fn, inputs) in functions.items():
        yield Case(name, fn, inputs)
        yield Case(f"{name}, order 2", fn, inputs, twice if name in wrong else "", order=2)


def kornia() -> Iterator[Case]:
    import torch
    from kornia.geometry.epipolar.essential import _NullSpaceBasis
    from kornia.losses.focal import _TargetLogSoftmax

    target = torch.tensor([[0, 2], [1, 1]])[:, None]
    yield Case(
        "target log softmax", lambda x: _TargetLogSoftmax.apply(x, target, None),
        (normal(2, 3, 2),), order=2,
    )  # fmt: skip

    def projector(x: Any) -> Any:
        basis = _NullSpaceBasis.apply(x)[0]
        return basis @ basis.mT

    yield Case("null space", projector, (normal(2, 5, 9),))


def activations(functions: dict[str, Any]) -> Iterator[Case]:
    x = normal(9, scale=2.0)
    for name, function in functions.items():
        yield Case(name, lambda x, f=function: f.apply(x), (x,))


def timm() -> Iterator[Case]:
    kinds = ("swish", "mish", "hard_sigmoid", "hard_swish", "hard_mish")
    helpers = [f"{kind}_{way}" for kind in kinds for way in ("fwd", "bwd")]
    names = [f"{kind.title().replace('_', '')}AutoFn" for kind in kinds]
    found = read_out("timm/layers/activations_me.py", *names, *helpers)
    yield from activations({name: found[name] for name in names})


def efficientnet_pytorch() -> Iterator[Case]:
    from efficientnet_pytorch import utils

    yield from activations({"SwishImplementation": utils.SwishImplementation})


def monai() -> Iterator[Case]:
    from monai.networks.blocks import activation

    yield from activations({"SwishImplementation": activation.SwishImplementation})


def diffsort() -> Iterator[Case]:
    from diffsort.functional import NormalCDF

    yield Case("NormalCDF", lambda x: NormalCDF.apply(x, 0.7), (normal(5),))


def xitorch() -> Iterator[Case]:
    import torch
    import xitorch
    from xitorch import integrate, linalg, optimize

    a, b = definite(4), normal(4, 2)

    def operator(a: Any) -> Any:
        return xitorch.LinearOperator.m((a + a.mT) / 2, is_hermitian=True)

    def solved(a: Any, b: Any) -> Any:
        return linalg.solve(operator(a), b, method="exactsolve")

    inherited = "two modes of order 2: the JVP of torch.linalg.solve, pytorch#198017"
    yield Case("solve", solved, (a, b), inherited, order=2)

    def eigenvalues(a: Any) -> Any:
        return linalg.symeig(operator(a), method="exacteig")[0]

    yield Case("symeig", eigenvalues, (a,), order=2)

    def root(p: Any) -> Any:
        start = torch.zeros(3, dtype=torch.float64)
        return optimize.rootfinder(lambda y, p: y**3 + y - p, start, params=(p,), f_tol=1e-13)

    yield Case("rootfinder", root, (normal(3),))

    def area(low: Any, high: Any, p: Any) -> Any:
        return integrate.quad(lambda x, p: (p * x).cos(), low, high, params=(p,), n=30)

    ends = (torch.tensor(end, dtype=torch.float64, requires_grad=True) for end in (0.2, 1.3))
    raises = "raises where the parameters need no gradient"
    yield Case("quad", area, (*ends, positive(1)), raises)


def torchkbnufft() -> Iterator[Case]:
    import torch
    import torchkbnufft as tkbn

    forward = tkbn.KbNufft(im_size=(6, 6), grid_size=(12, 12), dtype=torch.complex128)
    adjoint = tkbn.KbNufftAdjoint(im_size=(6, 6), grid_size=(12, 12), dtype=torch.complex128)
    points = normal(2, 7, needs=False).clamp(-3, 3)
    real, imaginary = normal(1, 1, 6, 6, needs=False), normal(1, 1, 6, 6, seed=1, needs=False)
    image = torch.complex(real, imaginary).requires_grad_()
    samples = torch.complex(normal(1, 1, 7, needs=False), normal(1, 1, 7, seed=1, needs=False))
    yield Case("KbNufft", lambda x: forward(x, points), (image,))
    yield Case("KbNufftAdjoint", lambda y: adjoint(y, points), (samples.requires_grad_(),))


def pylops() -> Iterator[Case]:
    import numpy as np
    import pylops as lops
    import torch

    rng = np.random.default_rng(0)
    filters = {"real": rng.normal(size=3), "complex": rng.normal(size=3) + 1j * rng.normal(size=3)}
    conjugate = "the adjoint of a complex filter is not conjugated"
    for kind, taps in filters.items():
        dtype = "complex128" if kind == "complex" else "float64"
        several = np.stack([taps, 2 * taps, -taps])
        operators = {
            "Convolve1D": lops.signalprocessing.Convolve1D(8, h=taps, offset=1, dtype=dtype),
            "NonStationaryConvolve1D": lops.signalprocessing.NonStationaryConvolve1D(
                8, hs=several, ih=(1, 3, 5), dtype=dtype
            ),
        }
        for name, made in operators.items():
            asked = lops.TorchOperator(made)
            x = torch.tensor(rng.normal(size=8)).to(getattr(torch, dtype)).requires_grad_()
            wrong = kind == "complex"
            yield Case(f"{name}, {kind}", asked.apply, (x,), conjugate if wrong else "")
    for name in ("FirstDerivative", "SecondDerivative", "CausalIntegration"):
        made = getattr(lops, name)(8, dtype="float64")
        yield Case(name, lops.TorchOperator(made).apply, (normal(8),))


def numpyro() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    import numpyro.distributions as dist

    value = jnp.asarray([1.3, 1.9, 2.6])
    alpha, low, high = jnp.asarray(-1.7), jnp.asarray(1.0), jnp.asarray(3.0)

    def double(alpha: Any, low: Any, high: Any) -> Any:
        return dist.DoublyTruncatedPowerLaw(alpha, low, high).log_prob(value)

    def lower(alpha: Any, low: Any) -> Any:
        return dist.LowerTruncatedPowerLaw(alpha, low).log_prob(value)

    defect = "the derivatives by the limits are those of p, not of log p"
    yield Case("DoublyTruncatedPowerLaw", double, (alpha, low, high), defect, torch=False)
    yield Case("LowerTruncatedPowerLaw", lower, (alpha, low), torch=False)
    from numpyro.distributions import util

    for name in ("log1mexp", "logdiffexp"):
        if function := getattr(util, name, None):
            arguments = (jnp.asarray([-0.3, -2.0]),)
            if name == "logdiffexp":
                arguments = (jnp.asarray([1.0, 2.0]), jnp.asarray([0.5, -1.0]))
            yield Case(name, function, arguments, torch=False)


def jaxopt() -> Iterator[Case]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    from jaxopt import projection

    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=5))
    square = jnp.asarray(rng.normal(size=(3, 3)))
    ones = jnp.ones(3) / 3
    zero = "the Jacobian is identically zero with the default solver"
    for name in ("simplex", "l1_sphere", "l1_ball", "l2_sphere", "l2_ball", "linf_ball"):
        function = getattr(projection, f"projection_{name}")
        inside = jax.jit(lambda x, f=function: f(2 * x))
        yield Case(f"projection_{name}", inside, (x,), torch=False)
    birkhoff = jax.jit(projection.projection_birkhoff)
    yield Case("projection_birkhoff", birkhoff, (square,), zero, torch=False)

    @jax.jit
    def transport(s: Any) -> Any:
        return projection.projection_transport(s, (ones, ones))

    yield Case("projection_transport", transport, (square,), zero, torch=False)
    from jaxopt import loss

    labels = jnp.asarray(1)
    for name in ("multiclass_sparsemax_loss", "multiclass_logistic_loss"):
        function = getattr(loss, name)
        yield Case(name, lambda x, f=function: f(labels, x), (x,), torch=False)


def autograd() -> Iterator[Case]:
    import autograd.numpy as anp
    import numpy as np
    from autograd import make_vjp

    import gradproof

    rng = np.random.default_rng(0)
    tall = rng.normal(size=(4, 2)) + 1j * rng.normal(size=(4, 2))
    square = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    vector, zero = rng.normal(size=5), np.array([2.0, 0.0, 3.0])
    complex_pinv = "the gradient of a tall complex matrix lacks conjugates"
    product = "NaN for the entries beside a zero"

    def asked(name: str, fn: Any, x: Any, defect: str = "") -> Case:
        def vjp(x: Any, v: Any) -> Any:
            # HIPS autograd's convention for complex numbers is the conjugate of PyTorch's
            return np.conj(make_vjp(fn)(x)[0](np.conj(v)))

        return Case(name, gradproof.by_hand(fn, vjp=vjp), (x,), defect, torch=False)

    yield asked("pinv, real", anp.linalg.pinv, tall.real)
    yield asked("pinv, complex", anp.linalg.pinv, tall, complex_pinv)
    yield asked("prod", anp.prod, vector)
    yield asked("prod with a zero", anp.prod, zero, product)
    for name in ("inv", "det", "cholesky", "slogdet"):
        fn = getattr(anp.linalg, name)
        point = square @ square.T if name == "cholesky" else square
        if name == "slogdet":
            fn = lambda x: anp.linalg.slogdet(x)[1]  # noqa: E731
        if name == "cholesky":
            fn = lambda x: anp.linalg.cholesky((x + x.T) / 2)  # noqa: E731
        yield asked(name, fn, point)
    for name in ("tanh", "sinc", "logaddexp", "cumsum", "sort", "fft.fft", "linalg.norm"):
        fn = anp
        for part in name.split("."):
            fn = getattr(fn, part)
        if name == "logaddexp":
            fn = lambda x: anp.logaddexp(x, 1.5 * x**2)  # noqa: E731
        yield asked(name, fn, vector)


def liger_kernel() -> Iterator[Case]:
    import _liger_cases

    _liger_cases.prepare()
    for name, function, inputs, defect, plain in _liger_cases.rows():
        options = {"reference": plain} if plain else {}
        # In float32 PyTorch's gradcheck refuses right ones too.
        yield Case(name, function, inputs, defect, options=options, torch=False)


def kymatio() -> Iterator[Case]:
    import torch
    from kymatio.backend.torch_backend import ModulusStable

    x = normal(3, 4, 2)
    yield Case("ModulusStable", ModulusStable.apply, (x,))
    x = torch.cat([torch.zeros(1, 4, 2, dtype=x.dtype), x.detach()]).requires_grad_()
    yield Case("ModulusStable at zero", ModulusStable.apply, (x,))


def memory_efficient_attention_pytorch() -> Iterator[Case]:
    import torch
    from memory_efficient_attention_pytorch import cosine_sim_flash_attention as cosine
    from memory_efficient_attention_pytorch import flash_attention as flash

    # `flash` raises in float64, for a row maximum that it keeps in float32.
    q, k, v = (
        normal(1, 2, n, 3, seed=seed).detach().float().requires_grad_()
        for seed, n in enumerate((4, 6, 6))
    )

    def attention(causal: bool, mask: Any = None) -> Callable[..., Any]:
        apply = flash.FlashAttentionFunction.apply
        return lambda q, k, v: apply(q, k, v, mask, causal, 2, 3)

    mask = torch.tensor([[True, True, False, True, True, False]])
    yield Case("flash", attention(False), (q, k, v), torch=False)
    yield Case("flash, mask", attention(False, mask), (q, k, v), torch=False)
    yield Case(
        "flash, causal",
        attention(True),
        (k, q.detach().repeat(1, 1, 2, 1)[:, :, :6], v),
        torch=False,
    )
    defect = "a row that sees no key claims to depend on its query"
    yield Case("flash, causal, fewer queries", attention(True), (q, k, v), defect, torch=False)
    small = tuple(x.detach()[:, :1, :2, :2].clone().requires_grad_() for x in (q, k, v))
    once = "differentiated twice it is a constant"
    yield Case("flash, order 2", attention(False), small, once, order=2, torch=False)
    q, k = (torch.nn.functional.normalize(normal(1, 1, 5, 3, seed=seed), dim=-1) for seed in (0, 1))
    inputs = (q.detach().requires_grad_(), k.detach().requires_grad_(), normal(1, 1, 5, 3, seed=2))
    for causal in (False, True):

        def similar(q: Any, k: Any, v: Any, causal: bool = causal) -> Any:
            return cosine.FlashAttentionFunction.apply(q, k, v, None, 4.0, causal, 2, 3)

        yield Case(f"cosine, causal={causal}", similar, inputs)


def _spike(slope: Callable[[Any], Any], cast: Any = None) -> dict[str, Any]:
    """A spike whose gradient is meant to have a slope, as options of a check."""

    def definition(x: Any) -> Any:
        meant = slope(x.detach()) * x
        spike = (x > 0).to(x) + meant - meant.detach()
        return spike if cast is None else spike.to(cast)

    return {"reference": definition, "trusted": True}


def snntorch() -> Iterator[Case]:
    import torch
    from snntorch import surrogate

    meant = {
        "fast_sigmoid": (surrogate.fast_sigmoid(2.0), lambda u: 1 / (1 + 2 * u.abs()) ** 2),
        "atan": (surrogate.atan(1.5), lambda u: 0.75 / (1 + (torch.pi * u * 0.75) ** 2)),
        "sigmoid": (surrogate.sigmoid(3.0), lambda u: 3 * u.mul(3).sigmoid() * u.mul(-3).sigmoid()),
        "spike_rate_escape": (
            surrogate.spike_rate_escape(1.2, 2.0),
            lambda u: 2 * torch.exp(-1.2 * (u - 1).abs()),
        ),
        "SFS": (
            surrogate.SFS(2.0, 0.3),
            lambda u: torch.where(u > 0.3, 1 / (1 + 2 * u.abs()) ** 2, 0.0),
        ),
        "triangular": (surrogate.triangular(1.2), lambda u: torch.where(u >= 0, -1.2, 1.2)),
        "heaviside": (surrogate.heaviside(), lambda u: (u > 0).to(u)),
    }
    for name, (function, slope) in meant.items():
        options = _spike(slope, torch.float32)
        yield Case(name, function, (normal(4, 5),), options=options, torch=False)
    options = _spike(lambda u: 25 * u.mul(25).sigmoid() * u.mul(-25).sigmoid(), torch.float32)
    far = (normal(4, 5, scale=20.0),)
    defect = "NaN far below the threshold"
    yield Case("sigmoid, far", surrogate.sigmoid(), far, defect, options=options, torch=False)


def spikingjelly() -> Iterator[Case]:
    from spikingjelly.activation_based import surrogate

    options: dict[str, dict[str, float]] = {
        "PiecewiseQuadratic": {"alpha": 1.3},
        "PiecewiseExp": {"alpha": 1.3},
        "Sigmoid": {"alpha": 1.7},
        "SoftSign": {"alpha": 1.7},
        "ATan": {"alpha": 1.7},
        "NonzeroSignLogAbs": {"alpha": 1.7},
        "Erf": {"alpha": 1.7},
        "PiecewiseLeakyReLU": {"w": 0.8, "c": 0.1},
        "SquarewaveFourierSeries": {"n": 3, "T_period": 6.0},
        "QPseudoSpike": {"alpha": 2.4},
        "LeakyKReLU": {"leak": 0.1, "k": 1.3},
        "LogTailedReLU": {"alpha": 0.1},
        "Rect": {"alpha": 1.3},
    }
    for name, given in options.items():
        spiking, primitive = (getattr(surrogate, name)(spiking=on, **given) for on in (True, False))

        def definition(x: Any, primitive: Any = primitive) -> Any:
            meant = primitive(x)
            return (x >= 0).to(x) + meant - meant.detach()

        meant = {"reference": definition, "trusted": True}
        yield Case(name, spiking.forward, (normal(4, 5),), options=meant, torch=False)


def tad_mctc() -> Iterator[Case]:
    from tad_mctc.storch.linalg import eighb, inv_cholesky_factor
    from tad_mctc.storch.linsolve.dense import dense_solve

    def even(a: Any) -> Any:
        return (a + a.mT) / 2

    yield Case("eighb, values", lambda a: eighb(even(a))[0], (normal(4, 4),), order=2)
    yield Case("eighb, vectors", lambda a: eighb(even(a))[1] ** 2, (normal(4, 4),), order=2)
    pair = normal(4, 4), definite(4)
    yield Case("eighb, general", lambda a, b: eighb(even(a), even(b))[0], pair)
    pair = definite(4), normal(4, 2)
    yield Case("dense_solve, LU", dense_solve, pair, order=2)
    cholesky = functools.partial(dense_solve, method="cholesky")
    yield Case("dense_solve, Cholesky", lambda a, b: cholesky(even(a), b), pair, order=2)
    inverse = "inv_cholesky_factor"
    yield Case(inverse, lambda a: inv_cholesky_factor(even(a)), (definite(4),), order=2)


LIBRARIES = {name: globals()[name] for name in PINNED}
