"""What PyTorch has beside gradcheck, by its names: three Jacobians, and support of sparse outputs.

The `get_..._jacobian` functions are PyTorch's own: plain central differences, and rows of reverse
mode. Here nothing is left perturbed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import gradcheck as _gradcheck
from torch.overrides import is_tensor_like

from gradproof._guard import guard_face, restored
from gradproof.torch._compat import MKLDNN
from gradproof.torch._guards import as_tuple
from gradproof.torch._sparse import values_of
from gradproof.torch._tensors import SPARSE

# The module, which `torch.autograd` hides behind its function; without what says that two are old.
_theirs = inspect.unwrap(_gradcheck).__globals__


def _values_restored(tensors: Iterable[Any]) -> restored:
    """Around what perturbs these tensors in place: afterwards they are what they were."""
    kept = []
    for tensor in tensors:
        if is_tensor_like(tensor) and tensor.requires_grad and tensor.layout is not MKLDNN:
            # `.data`: the graph of the function must not notice.
            values = (values_of(tensor) if tensor.layout in SPARSE else tensor).data
            kept.append(functools.partial(values.copy_, values.clone()))
    return restored(*kept)


def _restoring_face(name: str, promise: str, perturbed: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function of that name; what it perturbs is put back, also where it raises."""
    theirs = inspect.unwrap(_theirs[name])

    @guard_face
    @functools.wraps(theirs)
    def face(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(theirs).bind(*args, **kwargs).arguments
        with _values_restored(perturbed(**given)):
            return theirs(*args, **kwargs)

    face.__doc__ = promise
    return face


get_numerical_jacobian = _restoring_face(
    "get_numerical_jacobian",
    "Central differences of the first output, as PyTorch's; the tensors end as they were.",
    lambda inputs, target=None, **_: as_tuple(inputs if target is None else target),
)
get_numerical_jacobian_wrt_specific_input = _restoring_face(
    "get_numerical_jacobian_wrt_specific_input",
    "Central differences of every output, as PyTorch's; the input ends as it was.",
    lambda inputs, input_idx, input=None, **_: [inputs[input_idx] if input is None else input],
)
_analytical = _restoring_face("get_analytical_jacobian", "As PyTorch's.", lambda **_: ())


@functools.wraps(_analytical)
def get_analytical_jacobian(*args: Any, **kwargs: Any) -> Any:
    """Jacobians by reverse mode, as PyTorch's, and (reentrant, sizes_ok, types_ok).

    PyTorch 2.13 returns the last two in the other order; its own docs agree with this one.
    """
    found, reentrant, types_ok, sizes_ok = _analytical(*args, **kwargs)
    return found, reentrant, sizes_ok, types_ok


def as_sparse_gradcheck(gradcheck: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a gradcheck to functions that return sparse tensors.

    As `torch.sparse.as_sparse_gradcheck`: each sparse output that requires grad is replaced by a
    dense tensor, whose gradient is with ``masked=True`` that of the specified entries. Sparse
    inputs need no help.

    Args:
        gradcheck: ours, PyTorch's, or a `functools.partial` of either.

    Returns:
        A function of func, inputs and the options of `gradcheck`.
    """

    def gradcheck_with_sparse_support(func: Callable[..., Any], inputs: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        masked = bool(options.get("masked", False))

        def dense(output: Any) -> Any:
            tensor = isinstance(output, torch.Tensor) and output.layout in SPARSE
            return (
                output.to_dense(masked_grad=masked) if tensor and output.requires_grad else output
            )

        @functools.wraps(func, updated=())
        def with_dense_outputs(*arguments: Any, **kwargs: Any) -> Any:
            outputs = func(*arguments, **kwargs)
            several = isinstance(outputs, (tuple, list))
            return tuple(map(dense, outputs)) if several else dense(outputs)

        return gradcheck(with_dense_outputs, inputs, **options)

    return gradcheck_with_sparse_support
