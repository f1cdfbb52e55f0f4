"""Stochastic arithmetic of fewer bits, in double precision: every operation is rounded at random.

As `gradproof._adapters.rounding` says.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradproof._adapters.rounding import round_at_random, round_to_nearest
from gradproof._data.formats import SINGLE
from gradproof.torch._compat import TorchDispatchMode, decomposition_table
from gradproof.torch._modes import DispatchMode, tensors_among
from gradproof.torch._tensors import PLAIN

# Factorisations and solvers are exact for a matrix that is off by rounding of its largest entry
# (Higham, Accuracy and Stability of Numerical Algorithms, 2002), not entry by entry.
_NORMWISE = ("linalg_", "cholesky", "triangular", "::lu_", "geqrf", "ormqr", "matrix_exp", "lstsq")
# "lu_" by itself would take gelu_backward, and every other activation that ends so, for a solver.
_EXACT = ("norm", "cross", "vecdot", "diagonal")  # of the same name, and no such thing
# One operation to PyTorch, and inside a sum whose terms cancel: exact for entries that are off by
# a rounding each.
_FUSED = ("softmax_backward", "norm_backward")
# The same in the precision of the arrays; in fewer bits it is computed in single precision.
_STATISTICS = ("native_layer_norm", "native_group_norm")
# One operation to PyTorch whose kernel calls others, each in the precision of its arguments: the
# squares of distances are what is left of those of two norms, each rounded.
_COMPOSITE = (torch.ops.aten._euclidean_dist.default,)
# Sums of entries that lie anywhere, added one after the other in the precision of the result, in
# an order of their own, where other sums are kept in more bits: every partial sum is rounded.
_ADDING = ("index_put", "index_add", "scatter_add", "aten::put", "embedding_dense_backward")

# Operations that move numbers, or put zeros beside them: nothing is rounded.
_MOVING_NAMES = """
    _reshape_copy _unsafe_view cat clone expand_copy flip gather index index_select
    permute_copy repeat roll select_backward slice_backward stack t_copy transpose_copy view_copy
"""
_MOVING = frozenset(f"aten::{name}" for name in _MOVING_NAMES.split())
# Operations that return whole numbers, which are exact.
_CUTTING_NAMES = "floor ceil round trunc floor_divide"
_CUTTING = frozenset(f"aten::{name}" for name in _CUTTING_NAMES.split())
# Quotients that may be cut to whole numbers.
_QUOTIENTS = (torch.ops.aten.div.Tensor_mode, torch.ops.aten.div.Scalar_mode)


class Rounding(DispatchMode):
    """While active, the result of every operation in double precision is rounded at random.

    As `DifferentiableMap.rounded_map` says; draws are independent of PyTorch's global generator.
    """

    def __init__(self, unit: float, tiny: float, seed: int) -> None:
        super().__init__(self._rounded_result)
        self._unit, self._tiny, self._seed = unit, tiny, seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._draws_in_numpy = np.random.default_rng(seed)
        self._on_grid: dict[int, StorageWeakRef] = {}  # memory that holds coarse numbers alone

    def entered_with(self, given: Sequence[torch.Tensor]) -> Rounding:
        """This mode, which takes these tensors for inputs, not for constants of the function."""
        for tensor in filter(_is_double, given):
            self._remember(tensor)
        return self

    def _rounded_result(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if next(tensors_among(args), None) is None:  # as arange: a constant of the function
            return func(*args, **kwargs)
        if self._tiny:
            args = tuple(map(self._with_rounded_constants, args, _passed_by_value(func)))
        kind, is_single = _kind_of_operation(func), self._unit <= SINGLE
        if kind == "composite" or (kind == "pointwise" and is_single):
            return self._run_decomposed(func, args, kwargs)
        if kind == "normwise":
            args = tuple(map(self._perturbed_matrix, args))
        elif kind == "fused" or (kind == "statistics" and is_single):
            args = tuple(map(self._perturbed_entries, args))
        if kind == "quotient" and kwargs["rounding_mode"] and any(map(_is_double, args)):
            # A quotient just below a whole number is rounded up to it before it is cut.
            cut = torch.trunc if kwargs["rounding_mode"] == "trunc" else torch.floor
            result = cut(self._round(torch.div(*args)))
        elif kind == "adding" and "out" not in kwargs:
            result = self._sum_of_rounded_parts(func, args, kwargs)
        else:
            result = func(*args, **kwargs)
        if not self._tiny and _is_exact(kind, args, result):
            return result
        if kind == "moving":
            if _is_double(result):
                self._remember(result)
            return result
        aliases = [each.alias_info for each in func._schema.returns]
        if len(aliases) == 1:
            return self._rounded_output(result, aliases[0])
        return type(result)(map(self._rounded_output, result, aliases)) if aliases else result

    def _run_decomposed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The result of an operation that is decomposed into others, each of them rounded."""
        # Without the wrappers, which promote dtypes: these are doubles.
        run = inspect.unwrap(decomposition_table[func])
        TorchDispatchMode.__enter__(self)  # not counted: while it dispatches, a mode is not active
        try:
            return run(*args, **kwargs)
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def _sum_of_rounded_parts(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """A sum, off by what its partial sums are rounded by.

        Of k terms of one size they grow like the root of k and are rounded k times: together by
        the unit round-off times the sum of the sizes, nearly. A single term is not rounded.
        """
        total = func(*args, **kwargs)
        if not _is_double(total):
            return total
        sizes = func(*[value.abs() if _is_double(value) else value for value in args], **kwargs)
        error = self._unit * sizes * self._signed_draws(total)
        return torch.where(self._round(total) == total, total, total + error)

    def _rounded_output(self, value: Any, alias: Any) -> Any:
        """One result, rounded: anew, in place where it was written in place, not where a view."""
        if isinstance(value, (tuple, list)):
            return type(value)(self._rounded_output(part, alias) for part in value)
        if not _is_double(value) or (alias is not None and not alias.is_write):
            return value
        rounded = self._round(value)
        if alias is not None:
            return value.copy_(rounded)
        self._remember(rounded)
        return rounded

    def _perturbed_entries(self, value: Any) -> Any:
        """A tensor whose entries are off by a rounding of each; other values as they are.

        By two where the kernel computes in the precision of its arrays: it rounds several times.
        """
        if not _is_double(value):
            return value
        size = self._unit * (2 if self._unit <= SINGLE else 1)
        return value * (1 + size * (2 * self._draws(value) - 1))

    def _perturbed_matrix(self, value: Any) -> Any:
        """A matrix whose entries are off by roundings of its largest; other values as they are."""
        if not _is_double(value) or value.dim() < 2:
            return value
        growth = max(value.shape[-2:]) ** 0.5
        size = self._unit * growth * value.abs().amax(dim=(-2, -1), keepdim=True)
        return value + size * self._signed_draws(value)

    def _with_rounded_constants(self, value: Any, by_value: bool) -> Any:
        """An argument of an operation; a constant of the function is rounded to nearest."""
        if isinstance(value, (tuple, list)):
            return type(value)(self._with_rounded_constants(part, by_value) for part in value)
        if not by_value or not _is_double(value):
            return value
        if value.untyped_storage()._cdata in self._on_grid:
            return value
        found = self._round_to_nearest(value)
        if value.nbytes == value.untyped_storage().nbytes() and torch.equal(found, value):
            self._remember(value)  # an input, say
        return found

    def _remember(self, value: torch.Tensor) -> None:
        memory = StorageWeakRef(value.untyped_storage())  # held: its address is not given again
        self._on_grid[memory.cdata] = memory

    def _round_to_nearest(self, value: torch.Tensor) -> torch.Tensor:
        if value.is_complex():
            parts = torch.view_as_real(value.resolve_conj())
            return torch.view_as_complex(self._round_to_nearest(parts))
        found: torch.Tensor = round_to_nearest(value.resolve_neg(), self._unit, self._tiny, torch)
        return found

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        """The numbers of a tensor, real and imaginary parts alike, rounded at random."""
        if value.is_complex():
            return torch.view_as_complex(self._round(torch.view_as_real(value.resolve_conj())))
        arithmetic = self._unit, self._tiny
        if value.is_cpu and type(value) in PLAIN:  # NumPy takes half the time
            numbers = value.numpy(force=True)
            draws = self._draws_in_numpy.random(numbers.shape)
            return torch.from_numpy(round_at_random(numbers, draws, *arithmetic))
        found: torch.Tensor = round_at_random(
            value.resolve_neg(), self._draws(value), *arithmetic, torch
        )
        return found

    def _signed_draws(self, like: torch.Tensor) -> torch.Tensor:
        """Uniform numbers in [-1, 1), and of complex tensors complex ones, one for each entry."""
        draws = torch.view_as_complex(2 * self._draws(like, 2) - 1)
        return draws if like.is_complex() else draws.real

    def _draws(self, like: torch.Tensor, *more: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), as many for each entry as `more` says."""
        device = like.device
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        generator, shape = self._generators[device], (*like.shape, *more)
        return torch.rand(shape, generator=generator, dtype=torch.float64, device=device)


def _is_exact(kind: str, args: Sequence[Any], result: Any) -> bool:
    """Whether any arithmetic finds this result: whole numbers, cut or computed of such.

    An index is made of them, and another one is another function. On a grid they stay what they are
    without this.
    """
    return _is_whole(result) and (kind in ("quotient", "cutting") or all(map(_is_whole, args)))


def _is_whole(value: Any) -> bool:
    """Whether there are only whole numbers, flags or no numbers in an argument or a result."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_whole, value))
    if isinstance(value, (float, complex)):
        return not value.imag and value.real.is_integer()
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return True
    return _is_double(value) and not value.is_complex() and torch.equal(value, value.trunc())


@functools.cache
def _kind_of_operation(func: Any) -> str:
    """How the results of an operation are rounded where not just as they are; "" where they are.

    "pointwise" is the backward of what acts entry by entry: one operation to PyTorch and several
    inside. In single precision each of them is rounded: 1 - tanh^2 cancels in that of gelu. In
    fewer bits kernels compute in single precision inside.
    """
    name = func._schema.name
    if func in _COMPOSITE:
        return "composite"
    if func in _QUOTIENTS:
        return "quotient"
    if name in _MOVING:
        return "moving"
    if name.removesuffix("_") in _CUTTING:
        return "cutting"
    pointwise = name.endswith("_backward") and torch.Tag.pointwise in func.tags
    if pointwise and func in decomposition_table and not func._schema.is_mutable:
        return "pointwise"
    if any(part in name for part in _NORMWISE) and not any(part in name for part in _EXACT):
        return "normwise"
    if any(part in name for part in _FUSED):
        return "fused"
    if any(name.endswith(part) for part in _STATISTICS):
        return "statistics"
    adding = any(part in name for part in _ADDING) and not name.endswith("_")
    return "adding" if adding else ""


@functools.cache
def _passed_by_value(func: Any) -> tuple[bool, ...]:
    """Of each argument whether no result shares its memory, and nothing is written to it."""
    return tuple(argument.alias_info is None for argument in func._schema.arguments)


def _is_double(value: Any) -> bool:
    """Whether it is a tensor in double precision, with numbers in memory."""
    if not isinstance(value, torch.Tensor):
        return False
    if value.dtype not in (torch.float64, torch.complex128):
        return False
    strided = value.layout is torch.strided and value.numel() > 0 and not value.is_meta
    return strided and not value._is_zerotensor()  # which has no memory to read
