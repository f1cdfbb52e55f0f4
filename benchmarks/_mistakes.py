"""Mistakes to plant in a backward, each with where it fits and whether its size can be chosen.

A mistake sees the true pullback `pull` (a cotangent in, one gradient per input out) and the
cotangent, and returns the gradients that a wrong backward would return. It changes nothing else,
except `cotangent mutated`, which is about just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

Pullback = Callable[[Tensor], tuple[Tensor, ...]]
Gradients = Sequence[Tensor | None]


@dataclass(frozen=True)
class Site:
    """Where in one operator's Jacobian a mistake is planted.

    Attributes:
        inputs: the differentiable inputs.
        output: the operator's only output.
        row: flat index of an output.
        slot: which input.
        column: flat index of an entry of that input; the Jacobian at (row, column) is at least a
            thousandth of its largest entry.
        scale: largest entry of the Jacobian, in modulus.
        delta: size of the mistake, as a part of what it changes.
        generator: for mistakes that are random.
        memory: what a backward that keeps state keeps.
    """

    inputs: tuple[Tensor, ...]
    output: Tensor
    row: int
    slot: int
    column: int
    scale: float
    delta: float
    generator: torch.Generator
    memory: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)


Plant = Callable[[Site, Tensor, Pullback], Gradients]


@dataclass(frozen=True)
class Mistake:
    """A kind of mistake.

    Attributes:
        name: a few words.
        plant: the wrong backward.
        scalable: whether its size is `Site.delta`.
        fits: whether it can be made at a site at all.
    """

    name: str
    plant: Plant
    scalable: bool = False
    fits: Callable[[Site], bool] = lambda site: True


# Of a chosen size --------------------------------------------------------------------------------


def scaled_all(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [(1 + site.delta) * g for g in pull(v)]


def scaled_argument(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    grads = list(pull(v))
    grads[site.slot] = (1 + site.delta) * grads[site.slot]
    return grads


def scaled_row(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """The part of one output is counted 1 + delta times."""
    return [g + site.delta * h for g, h in zip(pull(v), pull(_only(v, site.row)), strict=True)]


def scaled_column(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _edited(site, pull(v), lambda flat: flat[site.column].mul_(1 + site.delta))


def scaled_entry(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """J_ij becomes (1 + delta) J_ij, for one i and j."""
    part = pull(_only(v, site.row))[site.slot].reshape(-1)[site.column]
    return _edited(site, pull(v), lambda flat: flat[site.column].add_(site.delta * part))


def scaled_tail(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _edited(site, pull(v), lambda flat: flat[_tail(flat)].mul_(1 + site.delta))


def noisy(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g + site.delta * g.abs().max() * _noise(g, site.generator) for g in pull(v)]


def constant_added(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g + site.delta * site.scale for g in pull(v)]


def leaking_neighbour(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """Each entry receives a part of the next one's gradient."""
    return [g + site.delta * g.reshape(-1).roll(-1).reshape(g.shape) for g in pull(v)]


def rotated_phase(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [(1 + 1j * site.delta) * g if g.is_complex() else g for g in pull(v)]


# Of the size they have ---------------------------------------------------------------------------


def sign_flipped(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [-g for g in pull(v)]


def sign_of_entry(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    part = pull(_only(v, site.row))[site.slot].reshape(-1)[site.column]
    return _edited(site, pull(v), lambda flat: flat[site.column].sub_(2 * part))


def zero(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [torch.zeros_like(g) for g in pull(v)]


def zero_column(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _edited(site, pull(v), lambda flat: flat[site.column].zero_())


def tail_dropped(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _edited(site, pull(v), lambda flat: flat[_tail(flat)].zero_())


def argument_forgotten(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    grads: list[Tensor | None] = list(pull(v))
    grads[site.slot] = None
    return grads


def swapped(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    grads = list(pull(v))
    first, second = _twins(site)
    grads[first], grads[second] = grads[second], grads[first]
    return grads


def transposed(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g.mT.contiguous() if _square(g) else g for g in pull(v)]


def doubled(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [2 * g for g in pull(v)]


def halved(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g / 2 for g in pull(v)]


def batch_mean(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g / g.shape[0] if g.ndim and g.shape[0] else g for g in pull(v)]


def reversed_order(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g.reshape(-1).flip(0).reshape(g.shape) for g in pull(v)]


def rolled(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g.reshape(-1).roll(1).reshape(g.shape) for g in pull(v)]


def conjugated(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g.conj().resolve_conj() for g in pull(v)]


def cotangent_conjugated(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return pull(v.conj().resolve_conj())


def real_part(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [torch.complex(g.real, torch.zeros_like(g.real)) if g.is_complex() else g
            for g in pull(v)]  # fmt: skip


def absolute(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return [g.abs().to(g.dtype) for g in pull(v)]


def cotangent_ignored(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return pull(torch.ones_like(v))


def first_cotangent(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """The cotangent's first entry is used for all, right only after `sum().backward()`."""
    return pull(v.reshape(-1)[0].expand(v.shape).contiguous())


def squared_cotangent(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return pull(v * v)


def read_as_contiguous(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """A kernel that takes the pointer and forgets the strides."""
    memory = torch.as_strided(v, (_extent(v),), (1,), v.storage_offset())
    return pull(memory[torch.arange(v.numel()) % memory.numel()].reshape(v.shape))


def stride_zero_once(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """Along an expanded dimension only the entry that is in memory counts."""
    kept = v.clone()
    for dim, stride in enumerate(v.stride()):
        if stride == 0 and v.shape[dim] > 1:
            kept.narrow(dim, 1, v.shape[dim] - 1).zero_()
    return pull(kept)


def through_float32(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    low = torch.complex64 if v.is_complex() else torch.float32
    return [g.to(low).to(g.dtype) if g.is_complex() == v.is_complex() else g.float().to(g.dtype)
            for g in pull(v.to(low).to(v.dtype))]  # fmt: skip


def cotangent_mutated(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """The gradients are right, but the caller's cotangent is doubled."""
    grads = pull(v.clone())
    owned = v if v.stride() == () or 0 not in v.stride() else v.as_strided((1,), (1,))
    owned.mul_(2)
    return grads


def stale_buffer(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """The gradients of the first backward are kept and returned ever after."""
    kept = site.memory.setdefault("gradients", tuple(pull(v)))
    return [g.clone() for g in kept]


def broadcast_sum_dropped(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """Where an input was broadcast, one slice's gradient instead of the sum over all."""
    grads = list(pull(v))
    for slot, x in enumerate(site.inputs):
        kept = v.clone()
        for dim in _broadcast_dims(x, site.output):
            kept.narrow(dim, 1, v.shape[dim] - 1).zero_()
        grads[slot] = pull(kept)[slot]
    return grads


# Of the kind that kernels of low precision make ------------------------------------------------


def row_dropped(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """One slice of the output is not processed."""
    kept = v.clone()
    kept[_slice(site.output, site.row)] = 0
    return pull(kept)


def row_scaled(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _row_edited(site, pull(v), lambda row: row.mul_(1 + site.delta))


def row_negated(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _row_edited(site, pull(v), lambda row: row.neg_())


def row_zero(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    return _row_edited(site, pull(v), lambda row: row.zero_())


def shifted(site: Site, v: Tensor, pull: Pullback) -> Gradients:
    """A constant is added, a part of the gradient's own root mean square."""
    return [g + site.delta * g.abs().double().square().mean().sqrt().to(g.dtype) for g in pull(v)]


# Helpers -----------------------------------------------------------------------------------------


def _slice(tensor: Tensor, flat: int) -> int:
    """Which index along the first dimension an entry has."""
    return flat // (tensor.numel() // tensor.shape[0])


def _row_edited(
    site: Site, grads: Sequence[Tensor], edit: Callable[[Tensor], object]
) -> list[Tensor | None]:
    """The gradients, one slice of that of `site.slot` edited in a copy."""
    edited: list[Tensor | None] = list(grads)
    copy = grads[site.slot].clone()
    edit(copy[_slice(copy, site.column)])
    edited[site.slot] = copy
    return edited


def _output_has_rows(site: Site) -> bool:
    return site.output.ndim > 0 and site.output.shape[0] > 1


def _input_has_rows(site: Site) -> bool:
    shape = site.inputs[site.slot].shape
    return len(shape) > 0 and shape[0] > 1


def _only(v: Tensor, row: int) -> Tensor:
    """The cotangent with every entry zero but one."""
    kept = torch.zeros_like(v, memory_format=torch.contiguous_format)
    kept.view(-1)[row] = v.reshape(-1)[row]
    return kept


def _edited(
    site: Site, grads: Sequence[Tensor], edit: Callable[[Tensor], object]
) -> list[Tensor | None]:
    """The gradients, that of `site.slot` copied, flattened and edited in place."""
    edited: list[Tensor | None] = list(grads)
    flat = grads[site.slot].clone(memory_format=torch.contiguous_format).view(-1)
    edit(flat)
    edited[site.slot] = flat.view(grads[site.slot].shape)
    return edited


def _tail(flat: Tensor) -> slice:
    """The last quarter, at least one entry."""
    return slice(flat.numel() - max(1, flat.numel() // 4), None)


def _noise(g: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(g.shape, dtype=g.dtype, generator=generator)


def _extent(v: Tensor) -> int:
    """Entries between the first and the last in memory, both included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(v.shape, v.stride(), strict=True))


def _square(g: Tensor) -> bool:
    return g.ndim >= 2 and g.shape[-1] == g.shape[-2] > 1


def _twins(site: Site) -> tuple[int, int]:
    """Two inputs of the same shape and dtype; (0, 0) where there are none."""
    seen: dict[tuple[object, ...], int] = {}
    for slot, x in enumerate(site.inputs):
        key = (*x.shape, x.dtype)
        if key in seen:
            return seen[key], slot
        seen[key] = slot
    return 0, 0


def _broadcast_dims(x: Tensor, output: Tensor) -> list[int]:
    """Output dimensions along which x was repeated, for an element-wise operator."""
    padded = (1,) * (output.ndim - x.ndim) + tuple(x.shape)
    return [d for d, n in enumerate(padded) if n == 1 and output.shape[d] > 1]


def _broadcasts(site: Site) -> bool:
    try:
        common = torch.broadcast_shapes(*(x.shape for x in site.inputs))
    except RuntimeError:
        return False
    fits = len(site.inputs) > 1 and common == site.output.shape
    return fits and any(_broadcast_dims(x, site.output) for x in site.inputs)


def _several(site: Site) -> bool:
    return len(site.inputs) > 1


def _complex(site: Site) -> bool:
    return site.output.is_complex() and any(x.is_complex() for x in site.inputs)


def mistakes() -> list[Mistake]:
    """Every kind, those of a chosen size first."""
    scalable = [
        Mistake("everything scaled", scaled_all, True),
        Mistake("one argument scaled", scaled_argument, True, _several),
        Mistake("one row scaled", scaled_row, True),
        Mistake("one column scaled", scaled_column, True),
        Mistake("one entry scaled", scaled_entry, True),
        Mistake("tail block scaled", scaled_tail, True),
        Mistake("noise added", noisy, True),
        Mistake("constant added", constant_added, True),
        Mistake("neighbour leaks in", leaking_neighbour, True),
        Mistake("phase rotated", rotated_phase, True, _complex),
    ]
    return scalable + _shape_mistakes() + _cotangent_mistakes()


def low_mistakes() -> list[Mistake]:
    """The kinds planted in low precision."""
    return [
        Mistake("everything scaled", scaled_all, True),
        Mistake("one row scaled", row_scaled, True, _input_has_rows),
        Mistake("shift", shifted, True),
        Mistake("one row dropped", row_dropped, fits=_output_has_rows),
        Mistake("sign of one row", row_negated, fits=_input_has_rows),
        Mistake("one row zero", row_zero, fits=_input_has_rows),
        Mistake("tail block dropped", tail_dropped),
        Mistake("zero", zero),
    ]


def _shape_mistakes() -> list[Mistake]:
    return [
        Mistake("sign flipped", sign_flipped),
        Mistake("sign of one entry", sign_of_entry),
        Mistake("zero", zero),
        Mistake("one column zero", zero_column),
        Mistake("tail block dropped", tail_dropped),
        Mistake("one argument forgotten", argument_forgotten, fits=_several),
        Mistake("arguments swapped", swapped, fits=lambda site: _twins(site) != (0, 0)),
        Mistake("transposed", transposed, fits=lambda site: any(map(_square, site.inputs))),
        Mistake("factor 2", doubled),
        Mistake("factor 1/2", halved),
        Mistake("divided by the batch", batch_mean),
        Mistake("reversed", reversed_order),
        Mistake("rolled by one", rolled),
        Mistake("absolute value", absolute),
        Mistake("conjugated", conjugated, fits=_complex),
        Mistake("real part only", real_part, fits=_complex),
        Mistake("broadcast sum dropped", broadcast_sum_dropped, fits=_broadcasts),
        Mistake("rounded to float32", through_float32),
        Mistake("stale buffer", stale_buffer),
    ]


def _cotangent_mistakes() -> list[Mistake]:
    return [
        Mistake("grad_output ignored", cotangent_ignored),
        Mistake("first grad_output for all", first_cotangent),
        Mistake("grad_output squared", squared_cotangent),
        Mistake("grad_output conjugated", cotangent_conjugated, fits=_complex),
        Mistake("grad_output read as contiguous", read_as_contiguous),
        Mistake("grad_output stride 0 read once", stride_zero_once),
        Mistake("grad_output changed in place", cotangent_mutated),
    ]
