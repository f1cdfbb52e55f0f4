"""How the entries of a tensor lie in memory, and the same entries lying otherwise.

A layout is one of those that `in_layout` lists, or several joined by "+" that hold at once where
they can. docs/checks.md says where a backward meets them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gradproof._maps.contract import Unsupported
from gradproof.torch._call import Call
from gradproof.torch._compat import neg_view
from gradproof.torch._leaves import DenseLeaf
from gradproof.torch._modes import DispatchMode
from gradproof.torch._outputs import Output
from gradproof.torch._tensors import PLAIN, comparable_tensor

# Dtypes of which PyTorch makes tensors with the negative bit, by `.conj().imag`: all that are the
# parts of a complex one.
_PARTS = (torch.float16, torch.float32, torch.float64)
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Layouts of a cotangent that are tried together. A backward that resolves a bit copies, and is not
# seen to misread what it lies on: so no bit is on stride 0, the usual mistake, nor on rows without
# gaps.
_STACKS = (
    ("transposed", "gaps", "offset", "negative", "conjugate"),
    ("channels_last",),
    ("permuted", "sliced"),
    ("expanded",),
)


def in_layout(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The values of a tensor in another memory layout; parts that do not fit it change nothing.

    - transposed: dimensions in reversed order; permuted: the first two exchanged;
      channels_last: PyTorch's memory format, which excludes the others;
    - gaps: every second place; sliced: rows out of wider ones; offset: not from the beginning.
      What lies between or before the entries is NaN;
    - expanded: stride 0 along every dimension of equal entries, as a sum along it hands over;
    - negative, conjugate: what is in memory has the other sign, or imaginary part, and a bit in
      the tensor says so; as PyTorch makes them: a negative one is every second place of complex
      numbers, or expanded from such, so that `.contiguous()` resolves it;
    - contiguous: nothing of all that.
    """
    names = frozenset(layout.split("+"))
    if not tensor.numel():
        return tensor
    if "conjugate" in names and tensor.is_complex():
        return _placed_tensor(tensor.conj().resolve_conj(), names).conj()
    if "negative" in names and not tensor.is_complex():
        negated: torch.Tensor = neg_view(_placed_tensor(-tensor, names | {"gaps"}))
        return negated
    return _placed_tensor(tensor, names)


def _placed_tensor(tensor: torch.Tensor, names: frozenset[str]) -> torch.Tensor:
    if "contiguous" in names:
        return tensor.resolve_conj().resolve_neg().contiguous()
    if "expanded" in names and tensor.dim():
        return _expanded_tensor(tensor)
    if "channels_last" in names and tensor.dim() in _FORMATS:
        return tensor.contiguous(memory_format=_FORMATS[tensor.dim()])
    length, start, strides = _memory_plan(tuple(tensor.shape), names, paired=tensor.is_complex())
    wide = tensor.new_full((length,), math.nan)
    return wide.as_strided(tensor.shape, strides, start).copy_(tensor)


def _expanded_tensor(tensor: torch.Tensor) -> torch.Tensor:
    fewer = tensor.detach()
    for dim in range(tensor.dim()):
        first = fewer.narrow(dim, 0, 1)
        same = comparable_tensor(first).expand_as(fewer)
        is_constant = torch.equal(same, comparable_tensor(fewer))
        fewer = first if is_constant else fewer
    return fewer.clone(memory_format=torch.contiguous_format).expand_as(tensor)


@functools.lru_cache(maxsize=1024)
def _memory_plan(
    shape: tuple[int, ...], names: frozenset[str], *, paired: bool
) -> tuple[int, int, tuple[int, ...]]:
    """Length of the memory, place of the first entry, and strides."""
    order = list(range(len(shape)))
    if "transposed" in names:
        order.reverse()
    elif "permuted" in names and len(shape) > 2:
        order[:2] = 1, 0
    # A backward may view pairs as complex numbers, which must start at even places.
    odd = 4 if shape[-1:] == (2,) and not paired else 3
    start, step = odd if "offset" in names else 0, 2 if "gaps" in names else 1
    *rows, columns = [shape[place] for place in order] or [1]
    reach = step * columns + (odd if "sliced" in names else 0)
    strides = [step] * len(shape)
    for place, extent in zip(reversed(order[:-1]), reversed(rows), strict=True):
        strides[place] = reach
        reach *= extent
    return start + reach, start, tuple(strides)


def cotangent_layouts(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Layouts in which cotangents of these outputs are tried, several on top of each other."""
    return _layouts_of_cotangents(tuple([(y.dtype, tuple(y.shape)) for y in outputs]))


@functools.lru_cache(maxsize=1024)
def _layouts_of_cotangents(
    kinds: tuple[tuple[torch.dtype, tuple[int, ...]], ...],
) -> tuple[str, ...]:
    """The same of dtypes and shapes, of which a suite has few."""
    dtypes = {dtype for dtype, _ in kinds}
    shapes = [shape for _, shape in kinds if math.prod(shape)]
    if not shapes:
        return ()
    many = any(math.prod(shape) > 1 for shape in shapes)
    negative = not dtypes.isdisjoint(_PARTS)
    fits = {
        "transposed": any(map(_has_two_extents, shapes)),
        "gaps": many,
        "offset": True,
        "negative": negative,
        "conjugate": not negative and any(dtype.is_complex for dtype in dtypes),
        "channels_last": any(len(s) in _FORMATS and _has_two_extents(s) for s in shapes),
        "permuted": any(len(s) > 2 and s[0] > 1 and s[1] > 1 for s in shapes),
        "sliced": any(math.prod(shape[:-1]) > 1 for shape in shapes),
        "expanded": many,
    }
    stacks = [[layout for layout in stack if fits[layout]] for stack in _STACKS]
    return tuple("+".join(stack) for stack in stacks if stack)


def _has_two_extents(shape: tuple[int, ...]) -> bool:
    return sum(size > 1 for size in shape) > 1


def input_layouts(call: Call) -> tuple[str, ...]:
    """Layouts in which the arguments of a call can be handed over, other than they are."""
    originals = [call.inputs.leaves[place].original for place in _movable_positions(call)]
    return tuple(dict.fromkeys(way for each in originals for way in _layouts_of_input(each)))


def _layouts_of_input(tensor: torch.Tensor) -> list[str]:
    shape = tensor.shape
    if not _is_plain(tensor):
        return ["contiguous"]
    bits = ["conjugate"] * tensor.is_complex()
    if len(shape) in _FORMATS and _has_two_extents(shape):
        return ["channels_last", *bits]
    if math.prod(shape) < 2:
        return bits
    return [*["transposed"] * _has_two_extents(shape), "gaps", "offset", *bits]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def _movable_positions(call: Call) -> list[int]:
    """Positions of the inputs that can be handed over in another layout: plain strided tensors."""
    return [
        place
        for place, leaf in enumerate(call.inputs.leaves)
        if isinstance(leaf, DenseLeaf)
        and type(leaf.original) in PLAIN
        and place not in call.arguments.optional
    ]


def inputs_in_layout(call: Call, layout: str) -> list[torch.Tensor]:
    """Private inputs of a call, the arguments in another memory layout.

    Nothing has been written into them since they were made: their version is that of all others.
    """
    if call.fixed_random:
        raise Unsupported("random numbers are drawn in the order of the memory")
    tensors: list[Any] = [leaf.copy() for leaf in call.inputs.leaves]
    for place in _movable_positions(call):
        own = layout if _is_plain(tensors[place]) else "contiguous"
        tensors[place] = in_layout(tensors[place], own)
    return [tensor.data for tensor in tensors]


def memory_dependence(call: Call) -> str:
    """Why the value may rightly depend on the layout of the inputs; "" where it may not.

    The function calls `as_strided`, or draws random numbers under a seed of its own.
    """
    reason = ""

    def operator(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        nonlocal reason
        if "as_strided" in func.__name__:
            reason = "goes by how its inputs lie in memory"
        elif torch.Tag.nondeterministic_seeded in func.tags:
            reason = "draws random numbers in the order of the memory"
        return func(*args, **kwargs)

    with DispatchMode(operator):
        call(call.inputs.copy_inputs())
    return reason
