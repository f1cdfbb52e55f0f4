"""Differentiable tensors of PyTorch as pieces of a flat real vector, memory layout included."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
import torch

from gradproof._adapters.torch_vectors import PLAIN, given, own, taken
from gradproof._space import Array, Grain, Slot
from gradproof.errors import UsageError

LONG = 1 << 17  # entries of a tensor that is not copied without need
MKLDNN = torch._mkldnn  # type: ignore[attr-defined]
COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
SPARSE = (torch.sparse_coo, *COMPRESSED)


class OverlapError(UsageError, RuntimeError):
    """An input whose entries share memory: perturbing one would change another."""


def is_differentiable(value: Any) -> bool:
    """Whether a value is a tensor of numbers that can have a derivative."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def describe(tensor: torch.Tensor) -> str:
    """Dtype and shape, "float64[2, 3]", with the layout where it is not strided."""
    text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.layout is torch.strided:
        return text
    return f"{text} {str(tensor.layout).removeprefix('torch.').removeprefix('_')}"


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the gap between 1 and the next number, 2**-53 in double precision."""
    return float(torch.finfo(dtype).eps) / 2


def grain(dtype: torch.dtype) -> Grain:
    """How finely a dtype's numbers lie."""
    limits = torch.finfo(dtype)
    tiny = float(limits.smallest_normal) * float(limits.eps)
    return Grain(float(limits.eps) / 2, tiny, float(limits.max))


def parts_of(dtype: torch.dtype) -> tuple[str, ...]:
    """Names of the real coordinates of one entry."""
    return ("real", "imag") if dtype.is_complex else ("",)


def to_vector(tensor: torch.Tensor, dtype: torch.dtype, home: torch.device | None = None) -> Array:
    """Flat float64 coordinates of a tensor, as those of a tensor of `dtype`.

    On the device `home` in new memory; in NumPy's, where there is none, they may share the
    tensor's: every caller copies.
    """
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if home is not None:
        if type(tensor) in PLAIN:
            return taken(tensor, dtype, home)
        return torch.from_numpy(to_vector(tensor, dtype).copy()).to(home)
    if dtype.is_complex:
        flat = tensor.to("cpu", torch.complex128).numpy(force=True).ravel()
        return flat.view(np.float64)
    if tensor.is_complex():
        tensor = tensor.real
    if tensor.dtype is not torch.float64 or not tensor.is_cpu:
        tensor = tensor.to("cpu", torch.float64)
    # force resolves conjugations, negations and PyTorch's symbolic zeros.
    return tensor.numpy(force=True).ravel()


def to_tensor(
    piece: Array, shape: Any, dtype: torch.dtype, device: torch.device | None = None
) -> torch.Tensor:
    """A contiguous tensor from flat float64 coordinates; shares those of NumPy where it can."""
    if not isinstance(piece, np.ndarray):
        return given(piece, shape, dtype, device)
    if dtype.is_complex:
        # PyTorch's vectorised complex kernels crash on an address that is no multiple of 16.
        piece = (piece.copy() if piece.ctypes.data % 16 else piece).view(np.complex128)
    tensor = torch.from_numpy(piece)
    if len(shape) != 1:
        tensor = tensor.view(shape)
    if tensor.dtype is not dtype or device is not None:
        tensor = tensor.to(device, dtype)
    return tensor


def extent(tensor: torch.Tensor) -> int:
    """Number of elements of storage that a strided tensor reaches, from the storage's start."""
    start = int(tensor.storage_offset())
    if not tensor.numel():
        return start
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return start + 1 + sum((size - 1) * stride for size, stride in steps)


def placed_like(
    values: torch.Tensor, like: torch.Tensor, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """A private tensor with these values and exactly the strides and offset of `like`.

    It has the dtype of `like`, or `dtype`.
    """
    if type(like) not in PLAIN:
        private = like.detach().clone()
        private = private if dtype is None else private.to(dtype)
        return private.copy_(values)
    buffer = torch.zeros(extent(like), dtype=dtype or like.dtype, device=like.device)
    # set_, unlike as_strided, makes a tensor that is no view: a real leaf, also in forward mode.
    private = buffer.new_empty(0).set_(
        buffer.untyped_storage(), like.storage_offset(), like.size(), like.stride()
    )
    if 0 in like.stride():  # expanded: what is repeated is written once
        once = tuple(slice(None) if step else slice(1) for step in like.stride())
        private[once].copy_(values[once])
        return private
    return private.copy_(values)


def private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A detached copy that shares no memory and has the same memory layout."""
    tensor = tensor.detach()
    if tensor.layout is torch.strided and not tensor.is_quantized:
        return placed_like(tensor, tensor)
    return tensor.clone()


def in_kind(tensor: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """A private tensor, given the class and the attributes of the user's, as `nn.Parameter`.

    In place, so that it stays the leaf that a graph knows, and a dual number keeps its tangent.
    Classes that decide in `__torch_dispatch__` are more than a name, and are copied by themselves.
    """
    kind = type(original)
    if tensor is not original and kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        if type(tensor) is not kind:
            tensor.__class__ = kind
        vars(tensor).update(vars(original))
    return tensor


def offsets_in(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Where the entries of a strided tensor lie, in entries after the first; in its shape."""
    offsets = np.zeros((), dtype=np.int64)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = np.add.outer(offsets, stride * np.arange(size))
    return offsets


def require_no_overlap(tensor: torch.Tensor, name: str) -> None:
    """OverlapError where two entries of a strided tensor share memory."""
    pairs = [
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size > 1
    ]
    if not tensor.numel():
        return
    if any(stride == 0 for stride, _ in pairs):
        raise OverlapError(
            f"{name} has a dimension with stride 0, so entries share memory and cannot be "
            "perturbed one by one; pass its .contiguous() copy"
        )
    reach = 0
    for stride, size in sorted(pairs):
        if stride <= reach:
            break
        reach += (size - 1) * stride
    else:
        return
    # Interleaved strides may still be disjoint; small tensors are counted exactly.
    if tensor.numel() <= 1_000_000 and np.unique(offsets_in(tensor)).size == tensor.numel():
        return
    raise OverlapError(
        f"{name} has entries that share memory and cannot be perturbed one by one; "
        "pass its .contiguous() copy"
    )


class Leaf(abc.ABC):
    """One differentiable input: a slot of the domain and the tensors made from it.

    Attributes:
        slot: name, shape and entries.
        original: the user's tensor; never written, except while a map works in place.
        no_forward: why forward mode cannot take this input; "" where it can.
        direct: its tensors may share the memory of a domain vector.
        home: the device on which such vectors live; None for NumPy's. Set by the map.
    """

    slot: Slot
    no_forward = ""
    direct = False
    home: torch.device | None = None

    def __init__(self, original: torch.Tensor) -> None:
        self.original = original

    @abc.abstractmethod
    def point(self) -> Array:
        """Flat coordinates of the user's value."""

    @abc.abstractmethod
    def tensor(self, piece: Array) -> torch.Tensor:
        """A tensor at other coordinates, which it may share; no gradient required."""

    @abc.abstractmethod
    def copy(self) -> torch.Tensor:
        """A private tensor with the user's value, layout and structure."""

    def gradient(self, gradient: torch.Tensor) -> Array:
        """Flat coordinates of a gradient with respect to this input."""
        return to_vector(gradient, self.original.dtype, self.home)

    def outside(
        self,
        gradient: torch.Tensor,  # noqa: ARG002 (a slot that covers every entry has no outside)
    ) -> list[tuple[tuple[int, ...], float]]:
        """Non-zero entries of a gradient that lie outside the slot."""
        return []


class DenseLeaf(Leaf):
    """A strided tensor. Perturbed copies have its strides and its storage offset."""

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        require_no_overlap(original, name)
        dtype, self._shape = original.dtype, tuple(original.shape)
        self.slot = Slot(
            name, self._shape, parts_of(dtype), describe=describe(original), grain=grain(dtype)
        )
        self._dtype = dtype
        self._like = original.detach()
        self._device = None if original.device.type == "cpu" else original.device
        self._usual = (
            original.storage_offset() == 0
            and original.stride() == torch.empty(self._shape, device="meta").stride()
            and type(original) in PLAIN
        )
        double = dtype in (torch.float64, torch.complex128)
        self.direct = self._usual and double and self._device is None

    def point(self) -> Array:
        return own(to_vector(self.original, self._dtype, self.home))

    def tensor(self, piece: Array) -> torch.Tensor:
        values = to_tensor(piece, self._shape, self._dtype, self._device)
        private = self._usual and not isinstance(piece, np.ndarray)
        return values if self.direct or private else placed_like(values, self._like)

    def copy(self) -> torch.Tensor:
        return private_copy(self.original)


class MkldnnLeaf(Leaf):
    """A tensor in MKLDNN's opaque layout, in dense coordinates."""

    no_forward = "MKLDNN inputs are not supported for forward AD"

    def __init__(self, original: torch.Tensor, name: str) -> None:
        super().__init__(original)
        self.slot = Slot(
            name, tuple(original.shape), describe=describe(original), grain=grain(original.dtype)
        )

    def point(self) -> Array:
        return to_vector(self.original, self.original.dtype).copy()

    def tensor(self, piece: Array) -> torch.Tensor:
        return to_tensor(piece, self.slot.shape, self.original.dtype).to_mkldnn()

    def copy(self) -> torch.Tensor:
        return self.original.detach().to_dense().to_mkldnn()
