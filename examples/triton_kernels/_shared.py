"""What the three kernels share: where they run, how they round, how a mistake is described."""

import os
from typing import NamedTuple

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    # Without a GPU the kernels run in Triton's interpreter. It is chosen where a kernel is
    # decorated, so the variable has to be set before the first one is.
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton  # noqa: E402 - it reads the variable
import triton.language as tl  # noqa: E402


def device_function(function):
    """Let kernels call a function.

    The interpreter prepares the whole language anew for every call of a decorated function, which
    takes longer than the call; there a plain one does the same.
    """
    return function if triton.knobs.runtime.interpret else triton.jit(function)


class Mistake(NamedTuple):
    """A wrong backward, planted on request.

    Attributes:
        what: is wrong.
        source: where it happened, as a repository and a thread; empty if it is only plausible.
        needs: what an input or cotangent must be like for the mistake to show; empty if any does.
    """

    what: str
    source: str = ""
    needs: str = ""


@device_function
def rounded(value, pointer):
    """A float32 value on its way to the memory of `pointer`, rounded to nearest, ties to even.

    A GPU rounds so when it stores. The interpreter of Triton 3.9 cuts bfloat16 off instead, which
    makes everything smaller by half an ulp in the mean: a bias, and gradproof would report it.
    """
    if pointer.dtype.element_ty == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        nearest = (bits & 0xFFFF0000).to(tl.float32, bitcast=True)
        value = tl.where(value == value, nearest, value)  # the carry would ruin a NaN
    return value.to(pointer.dtype.element_ty)


def as_if_contiguous(tensor):
    """What a kernel reads that takes for granted that `tensor` is contiguous: mistakes only.

    Where the memory of the tensor ends, such a kernel reads whatever lies behind it. Here that is
    zeros, so that the mistake is the same in every run and does no harm.
    """
    behind = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    length = min(behind, tensor.numel())
    read = torch.zeros_like(tensor, memory_format=torch.contiguous_format)
    read.view(-1)[:length] = tensor.as_strided((length,), (1,))
    return read


def misread(grad, mistake):
    """The cotangent as the backward sees it: `grad` itself unless the mistake is about that.

    A kernel reads memory, where a tensor with the negative bit has the other sign.
    """
    grad = grad.resolve_neg()
    if mistake == "grad_read_as_contiguous":
        return as_if_contiguous(grad)
    if mistake == "expanded_grad_read_as_contiguous" and 0 in grad.stride():
        return as_if_contiguous(grad)
    if mistake == "grad_ignored":
        return torch.ones_like(grad)
    return grad


OF_THE_COTANGENT = {
    "grad_read_as_contiguous": Mistake(
        "the strides of the cotangent are taken to be those of the output",
        "pytorch#194719, flash-attention#355, FBGEMM#3006, mmcv#737",
        needs="a cotangent that is transposed, sliced or expanded",
    ),
    "expanded_grad_read_as_contiguous": Mistake(
        "strides are heeded, except that a stride of 0 is taken for a contiguous one",
        "TransformerEngine#623 (ROCm), pytorch#70992",
        needs="an expanded cotangent, as .sum() makes it",
    ),
    "grad_ignored": Mistake(
        "the cotangent is taken to be one",
        "tt-metal#6533",
        needs="a cotangent that is not one",
    ),
}
