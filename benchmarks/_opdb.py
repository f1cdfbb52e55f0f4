"""PyTorch's own operator database as functions of their differentiable tensors.

What PyTorch's `TestGradients._check_helper` (torch/testing/_internal/common_utils.py) does to
a sample before it calls gradcheck, done here too: the operator's `gradcheck_wrapper`, the sample's
`output_process_fn_grad`, conjugated inputs, everything that needs no gradient bound in a closure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DOUBLE = {"float64": torch.float64, "complex128": torch.complex128}
LOW = {
    "float32": torch.float32,
    "complex64": torch.complex64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
DTYPES = {**DOUBLE, **LOW}

# Larger samples are left out: the full Jacobian that everything is compared with grows as
# inputs x outputs.
MOST_INPUTS = 200
MOST_OUTPUTS = 2000

Function = Callable[..., Any]


@dataclass(frozen=True)
class Sample:
    """One operator at one point.

    Attributes:
        op: the operator's name with its variant.
        index: position among the operator's samples of this dtype.
        function: of the tensors in `inputs` alone.
        inputs: in double precision the tensors that require a gradient; in a lower one every
            floating tensor and every dtype, since a run in another precision has to convert
            them all.
        nondet_tol: what PyTorch's tests allow two backwards to differ by.
        plain: the same function, which puts no arguments together; None where the tensors are not
            the first arguments, or the database does more than call the operator.
    """

    op: str
    index: int
    function: Function
    inputs: tuple[Any, ...]
    nondet_tol: float
    plain: Function | None = None

    @property
    def differentiable(self) -> list[int]:
        """Positions of the inputs that require a gradient."""
        return [i for i, x in enumerate(self.inputs) if _differentiable(x)]

    def in_double(self) -> Sample:
        """The same operator at the same numbers in double precision."""
        wide = map(_in_double, self.inputs)
        return replace(self, inputs=tuple(wide))


def differentiable_operators(dtype: torch.dtype) -> list[Any]:
    """The entries of the database that have a backward in this dtype on the CPU."""
    return [
        op
        for op in op_db
        if op.supports_autograd
        and op.supports_dtype(dtype, "cpu")
        and dtype in op.supported_backward_dtypes("cpu")
    ]


def seed_everything(seed: int) -> None:
    """Seeds the three global generators that sample makers and operators draw from."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the sample makers draw from the global generator)
    random.seed(seed)


def samples(op: Any, dtype: torch.dtype, *, seed: int = 0) -> Iterator[Sample]:
    """The operator's samples, the same at every call, those too large left out.

    Raises what the sample maker raises.
    """
    with torch.random.fork_rng():
        seed_everything(seed)
        made = list(
            op.sample_inputs(
                "cpu",
                dtype,
                requires_grad=True,
                include_conjugated_inputs=op.test_conjugated_samples and dtype.is_complex,
            )
        )
    for index, sample in enumerate(made):
        bound = bind(op, sample, index, whole=dtype in LOW.values())
        sizes = [bound.inputs[i].numel() for i in bound.differentiable]
        if sizes and sum(sizes) <= MOST_INPUTS:
            yield bound


def bind(op: Any, sample: Any, index: int, *, whole: bool = False) -> Sample:
    """The sample as a function of those of its tensors that require a gradient.

    `whole`: of every floating tensor and every dtype.
    """
    values = [sample.input, *sample.args, *sample.kwargs.values()]
    count, names = 1 + len(sample.args), list(sample.kwargs)
    wanted = _has_precision if whole else _differentiable
    places = [i for i, value in enumerate(values) if wanted(value)]
    leaves, structure = pytree.tree_flatten(values)
    inside = [i for i, leaf in enumerate(leaves) if wanted(leaf)]
    flat = len(inside) == len(places)
    if flat:  # as nearly always: what the function costs is then what the operator does
        leaves, inside, structure = values, places, None
    call, operator, process = op.gradcheck_wrapper, op.get_op(), sample.output_process_fn_grad

    def function(*tensors: torch.Tensor) -> Any:
        filled = leaves.copy()
        for place, tensor in zip(inside, tensors, strict=True):
            filled[place] = tensor
        filled = filled if flat else pytree.tree_unflatten(filled, structure)
        kwargs = dict(zip(names, filled[count:], strict=True))
        output = call(operator, *filled[:count], **kwargs)
        output = process(output) if process else output
        # gradcheck takes no sparse output, and asks for this.
        sparse = isinstance(output, torch.Tensor) and output.layout is not torch.strided
        return output.to_dense() if sparse else output

    first, kwargs = len(inside), sample.kwargs
    is_plain = flat and inside == list(range(min(first, count))) and not process
    rest = tuple(leaves[first:count])

    def plain(*tensors: torch.Tensor) -> Any:
        return operator(*tensors, *rest, **kwargs)

    return Sample(
        op=op.full_name,
        index=index,
        function=function,
        inputs=tuple(leaves[i] for i in inside),
        nondet_tol=op.gradcheck_nondet_tol,
        plain=plain if is_plain else None,
    )


def _differentiable(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _has_precision(leaf: object) -> bool:
    if isinstance(leaf, torch.dtype):
        return leaf.is_floating_point or leaf.is_complex
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _in_double(value: Any) -> Any:
    dtype = value if isinstance(value, torch.dtype) else value.dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    if isinstance(value, torch.dtype):
        return wide
    return value.detach().to(wide).requires_grad_(value.requires_grad)


def output_size(sample: Sample) -> int:
    """Entries of all tensors the function returns; raises what the function raises."""
    with torch.random.fork_rng(), torch.no_grad():
        outputs = pytree.tree_leaves(sample.function(*sample.inputs))
    return sum(leaf.numel() for leaf in outputs if isinstance(leaf, torch.Tensor))
