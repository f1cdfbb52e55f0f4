"""What a PyTorch map has beside its own derivatives: maps made of it, and other roads to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from gradproof._adapters import torch_second, torch_siblings, torch_transforms
from gradproof._map import DifferentiableMap, Variant
from gradproof._space import Array

if TYPE_CHECKING:
    from gradproof._adapters.torch import TorchMap


class Kin(DifferentiableMap):
    """The part of `TorchMap` that other modules do."""

    @property
    def _own(self) -> TorchMap:
        return cast("TorchMap", self)

    def at(self, x: Array) -> TorchMap:
        return torch_siblings.at(self._own, x)

    def in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        return torch_siblings.in_double(self._own, fn)

    def rounded(self, unit: float, tiny: float, seed: int) -> TorchMap:
        return torch_siblings.rounded(self._own, unit, tiny, seed)

    def derivative(self, v: Array) -> TorchMap:
        return torch_siblings.derivative(self._own, v)

    def forward_derivative(self, u: Array) -> TorchMap:
        return torch_second.forward_derivative(self._own, u)

    def variants(self) -> Sequence[Variant]:
        return torch_transforms.variants(self._own)

    def vjp_variant(self, v: Array, name: str) -> Array:
        return torch_transforms.vjp(self._own, v, name)

    def jvp_variant(self, u: Array, name: str) -> Array:  # noqa: ARG002  # there is one
        return torch_transforms.jvp(self._own, u)

    def variant_faults(self, v: Array, name: str) -> Sequence[str]:
        return torch_transforms.faults(self._own, v, name)
