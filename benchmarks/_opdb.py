"""PyTorch's own operator database as functions of their differentiable tensors.

What PyTorch's `TestGradients._check_helper` (torch/testing/_internal/common_utils.py) does to
a sample before it calls gradcheck, done here too: the operator's `gradcheck_wrapper`, the sample's
`output_process_fn_grad`, conjugated inputs, everything that needs no gradient bound in a closure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

DTYPES = {"float64": torch.float64, "complex128": torch.complex128}

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
        inputs: the tensors that require a gradient.
        nondet_tol: what PyTorch's tests allow two backwards to differ by.
    """

    op: str
    index: int
    function: Function
    inputs: tuple[torch.Tensor, ...]
    nondet_tol: float


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
        bound = bind(op, sample, index)
        if bound.inputs and sum(x.numel() for x in bound.inputs) <= MOST_INPUTS:
            yield bound


def bind(op: Any, sample: Any, index: int) -> Sample:
    """The sample as a function of those of its tensors that require a gradient."""
    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if _differentiable(leaf)]

    def function(*tensors: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, structure)
        output = op.gradcheck_wrapper(op.get_op(), first, *args, **kwargs)
        return sample.output_process_fn_grad(output) if sample.output_process_fn_grad else output

    return Sample(
        op=op.full_name,
        index=index,
        function=function,
        inputs=tuple(leaves[i] for i in places),
        nondet_tol=op.gradcheck_nondet_tol,
    )


def _differentiable(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def output_size(sample: Sample) -> int:
    """Entries of all tensors the function returns; raises what the function raises."""
    with torch.random.fork_rng(), torch.no_grad():
        outputs = pytree.tree_leaves(sample.function(*sample.inputs))
    return sum(leaf.numel() for leaf in outputs if isinstance(leaf, torch.Tensor))
