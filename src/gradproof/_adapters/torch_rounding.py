"""Honest arithmetic of fewer bits, imitated in double precision: every operation is rounded.

How a number is rounded at random: `gradproof._numerics.rounding`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gradproof._adapters.torch_modes import DispatchMode
from gradproof._numerics.rounding import rounded_at_random

_BITS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)

# Factorisations and solvers are exact for a matrix that is off by rounding of its largest entry
# (Higham, Accuracy and Stability of Numerical Algorithms, 2002), not entry by entry.
_NORMWISE = ("linalg_", "cholesky", "triangular", "lu_", "geqrf", "ormqr", "matrix_exp", "lstsq")
_EXACT = ("norm", "cross", "vecdot", "diagonal")  # of the same name, and no such thing
# One operation to PyTorch, and inside a sum whose terms cancel: exact for entries that are off by
# a rounding each.
_FUSED = ("softmax_backward", "norm_backward")


class Rounding(DispatchMode):
    """While active, the result of every operation in double precision is rounded at random.

    Args:
        unit: unit round-off of the coarse arithmetic.
        tiny: its smallest positive number.
        seed: of the draws, which are independent of PyTorch's global generator.
    """

    def __init__(self, unit: float, tiny: float, seed: int) -> None:
        super().__init__()
        self._unit, self._tiny, self._seed = unit, tiny, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with _bits_heeded():
            return self._rounded(func, args, kwargs or {})

    def _rounded(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = func._schema.name
        if any(part in name for part in _NORMWISE) and not any(part in name for part in _EXACT):
            args = tuple(map(self._disturbed, args))
        elif any(part in name for part in _FUSED):
            args = tuple(map(self._moved, args))
        result = func(*args, **kwargs)
        returns = func._schema.returns
        if len(returns) == 1:
            return self._returned(result, returns[0].alias_info)
        if isinstance(result, (tuple, list)) and len(result) == len(returns):
            kinds = [kind.alias_info for kind in returns]
            return type(result)(map(self._returned, result, kinds))
        return result

    def _returned(self, value: Any, alias: Any) -> Any:
        """One result, rounded: anew, in place where it was written in place, not where a view."""
        if isinstance(value, (tuple, list)):
            return type(value)(self._returned(part, alias) for part in value)
        if not _is_double(value) or (alias is not None and not alias.is_write):
            return value
        rounded = self._round(value)
        return rounded if alias is None else value.copy_(rounded)

    def _moved(self, value: Any) -> Any:
        """A tensor whose entries are off by a rounding of each; other values as they are."""
        if not _is_double(value):
            return value
        return value * (1 + self._unit * (2 * self._draws(value) - 1))

    def _disturbed(self, value: Any) -> Any:
        """A matrix whose entries are off by roundings of its largest; other values as they are."""
        if not _is_double(value) or value.dim() < 2:
            return value
        draws = torch.view_as_complex(2 * self._draws(value, 2) - 1)
        growth = max(value.shape[-2:]) ** 0.5
        size = self._unit * growth * value.abs().amax(dim=(-2, -1), keepdim=True)
        return value + size * (draws if value.is_complex() else draws.real)

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        if value.is_complex():
            return torch.view_as_complex(self._round(torch.view_as_real(value.resolve_conj())))
        _, exponent = torch.frexp(value)
        spacing = torch.ldexp(torch.full_like(value, self._unit), exponent).clamp(min=self._tiny)
        found: torch.Tensor = rounded_at_random(value, spacing, self._draws(value), self._tiny)
        return found

    def _draws(self, like: torch.Tensor, *more: int) -> torch.Tensor:
        """Uniform numbers in [0, 1), as many for each entry as `more` says."""
        device = like.device
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        generator, shape = self._generators[device], (*like.shape, *more)
        return torch.rand(shape, generator=generator, dtype=torch.float64, device=device)


@contextmanager
def _bits_heeded() -> Iterator[None]:
    """Conjugate and negative bits count, which PyTorch passes over inside of a dispatch mode.

    There `a + 0` of a conjugated matrix is not conjugated, and `linalg.pinv` of a complex one is
    wrong (docs/defects-found.md).
    """
    set_excluded = torch._C._dispatch_tls_set_dispatch_key_excluded
    is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    before = [(key, is_excluded(key)) for key in _BITS]
    for key in _BITS:
        set_excluded(key, False)
    try:
        yield
    finally:
        for key, excluded in before:
            set_excluded(key, excluded)


def _is_double(value: Any) -> bool:
    """Whether it is a tensor in double precision, with numbers in memory."""
    if not isinstance(value, torch.Tensor):
        return False
    if value.dtype not in (torch.float64, torch.complex128):
        return False
    strided = value.layout is torch.strided and value.numel() > 0 and not value.is_meta
    return strided and not value._is_zerotensor()  # which has no memory to read
