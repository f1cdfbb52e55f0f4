"""Honest arithmetic of fewer bits, imitated in double precision: every operation is rounded.

Rounding up or down at random, with the probability that makes the mean exact, leaves a number of
the coarse arithmetic alone. So ties stay ties, whole numbers stay whole, and what is selected or
copied is not changed (stochastic rounding: Croci et al. 2022, Royal Society Open Science 9).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gradproof._adapters.torch_modes import DispatchMode

_BITS = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)
_BELOW_ONE = 1.0 - 2.0**-20  # the largest draw: a whole number plus it must not round up

# Factorisations and solvers are exact for a matrix that is off by rounding of its largest entry
# (Higham, Accuracy and Stability of Numerical Algorithms, 2002), not entry by entry.
_NORMWISE = ("linalg_", "cholesky", "triangular", "lu_", "geqrf", "ormqr", "matrix_exp", "lstsq")
_EXACT = ("norm", "cross", "vecdot", "diagonal")  # of the same name, and no such thing


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
        if not isinstance(value, torch.Tensor) or (alias is not None and not alias.is_write):
            return value
        if value.dtype not in (torch.float64, torch.complex128) or not _is_plain(value):
            return value
        rounded = self._round(value)
        return rounded if alias is None else value.copy_(rounded)

    def _disturbed(self, value: Any) -> Any:
        """A matrix whose entries are off by roundings of its largest; other values as they are."""
        if not isinstance(value, torch.Tensor) or value.dim() < 2 or not _is_plain(value):
            return value
        if value.dtype not in (torch.float64, torch.complex128):
            return value
        draws = torch.rand(
            (*value.shape, 2),
            dtype=torch.float64,
            device=value.device,
            generator=self._generator(value.device),
        )
        draws = torch.view_as_complex(2 * draws - 1)
        growth = max(value.shape[-2:]) ** 0.5
        size = self._unit * growth * value.abs().amax(dim=(-2, -1), keepdim=True)
        return value + size * (draws if value.is_complex() else draws.real)

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        if value.is_complex():
            return torch.view_as_complex(self._round(torch.view_as_real(value.resolve_conj())))
        _, exponent = torch.frexp(value)
        spacing = torch.ldexp(torch.full_like(value, self._unit), exponent).clamp(min=self._tiny)
        draws = torch.rand(
            value.shape,
            dtype=value.dtype,
            device=value.device,
            generator=self._generator(value.device),
        )
        rounded = torch.floor(value / spacing + _BELOW_ONE * draws) * spacing
        return torch.where(torch.isfinite(rounded), rounded, value)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


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


def _is_plain(value: torch.Tensor) -> bool:
    strided = value.layout is torch.strided and value.numel() > 0 and not value.is_meta
    return strided and not value._is_zerotensor()  # which has no memory to read
