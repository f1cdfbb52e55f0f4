"""PyTorch's gradcheck and gradgradcheck with the same arguments, and recording of a run.

    from gradproof.torch import gradcheck, gradgradcheck

`docs/torch.md` lists the differences from PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import torch  # noqa: F401  # for the sentence, if it is missing
except ModuleNotFoundError:
    line = "gradproof.torch needs PyTorch: pip install torch"
    raise ModuleNotFoundError(line, name="torch") from None

from gradproof._asserts import chosen_way
from gradproof._data.frames import set_public_module
from gradproof._data.inputs import name_of
from gradproof.torch._guards import as_tuple, refuse_modes
from gradproof.torch._judge import (
    CHOOSE_EPS,
    GradcheckQuestion,
    Options,
    judge,
    passes_quickly,
    second_order_question,
)
from gradproof.torch._messages import GradcheckError
from gradproof.torch._record import Seen, record

__all__ = ["GradcheckError", "Seen", "gradcheck", "gradgradcheck", "record"]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = CHOOSE_EPS,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
    inconclusive: str | None = None,
) -> bool:
    """Check the derivative of `func` at `inputs`, with the arguments of `torch.autograd.gradcheck`.

    An entry of the Jacobian is wrong if it differs from the measured one by more than
    ``atol + rtol * |measured|`` and the error bar of the measurement.

    Args:
        func: a function of tensors and other values that returns a tensor, or a tuple or list of
            tensors.
        inputs: one argument, or a tuple or list of arguments; tensors that require grad are
            checked, of any shape.
        eps: the largest step, in units of the input; the default lets gradproof choose.
        atol: absolute tolerance of an entry, in units of output per unit of input.
        rtol: relative tolerance of an entry.
        raise_exception: False returns False if a derivative is wrong.
        nondet_tol: largest difference between two runs of the same backward.
        check_undefined_grad: undefined gradients must mean zero.
        check_grad_dtypes: accepted without effect: autograd casts a gradient to the dtype of its
            input.
        check_batched_grad: vmap of the backward must agree with a loop.
        check_batched_forward_grad: vmap of forward mode must agree with a loop.
        check_forward_ad: check forward mode.
        check_backward_ad: check reverse mode.
        fast_mode: accepted without effect: the number of calls never grows with the size, and the
            verdict is that of PyTorch's slow mode.
        masked: only the specified entries of sparse inputs vary; other gradients must be zero.
        inconclusive: what to do if something is undecided, "error", "warn" or "ignore"; None as
            for `gradproof.assert_derivatives`. PyTorch does not have this argument.

    Returns:
        True, with a `DerivativeWarning` if something is undecided; False as `raise_exception` says.

    Raises:
        GradcheckError: a derivative is wrong; `report` is the report.
        AssertionError: options contradict each other.
        ValueError: no input requires grad, one is an MKLDNN tensor, or an output is sparse.
        RuntimeError: an input overlaps itself in memory.

    Example:
        >>> import torch
        >>> from gradproof.torch import gradcheck
        >>> gradcheck(torch.sin, torch.ones(3, dtype=torch.float64, requires_grad=True))
        True
    """
    __tracebackhide__ = True
    del fast_mode, check_grad_dtypes
    modes = {"check_forward_ad": check_forward_ad, "check_backward_ad": check_backward_ad}
    refuse_modes(
        modes,
        check_batched_grad=(check_batched_grad, "check_backward_ad"),
        check_batched_forward_grad=(check_batched_forward_grad, "check_forward_ad"),
    )
    asked = {
        "backward": check_backward_ad,
        "forward": check_forward_ad,
        "undefined": check_undefined_grad,
        "batched": check_batched_grad,
        "batched_forward": check_batched_forward_grad,
    }
    way = chosen_way(inconclusive)
    options = Options(eps, atol, rtol, nondet_tol, bool(masked), way, asked)

    def make() -> GradcheckQuestion:
        return GradcheckQuestion(func, as_tuple(inputs), name_of(func))

    return passes_quickly(make, options) or judge(make, options, raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = CHOOSE_EPS,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
    inconclusive: str | None = None,
) -> bool:
    """Check second derivatives, with the arguments of `torch.autograd.gradgradcheck`.

    The backward of `func` is differentiated with respect to `inputs` and `grad_outputs`.

    Args:
        func: as for `gradcheck`; its backward must be differentiable.
        grad_outputs: cotangents, one for each output that requires grad, of its shape; None draws
            them from [-1, 1), without changing the global random state.
        gen_non_contig_grad_outputs: drawn cotangents are not contiguous.
        check_fwd_over_rev: check forward mode of the backward.
        check_rev_over_rev: check reverse mode of the backward.
        inputs, eps, atol, rtol, raise_exception, nondet_tol: as for `gradcheck`.
        check_undefined_grad, check_grad_dtypes, check_batched_grad: as for `gradcheck`.
        fast_mode, masked, inconclusive: as for `gradcheck`.

    Returns:
        As `gradcheck`.

    Raises:
        GradcheckError: a second derivative is wrong; otherwise as `gradcheck`.

    Example:
        >>> import torch
        >>> from gradproof.torch import gradgradcheck
        >>> gradgradcheck(torch.sin, torch.ones(3, dtype=torch.float64, requires_grad=True))
        True
    """
    __tracebackhide__ = True
    del fast_mode, check_grad_dtypes
    modes = {"check_fwd_over_rev": check_fwd_over_rev, "check_rev_over_rev": check_rev_over_rev}
    refuse_modes(
        modes,
        check_undefined_grad=(check_undefined_grad, "check_rev_over_rev"),
        check_batched_grad=(check_batched_grad, "check_rev_over_rev"),
    )
    asked = {
        "backward": check_rev_over_rev,
        "forward": check_fwd_over_rev,
        "undefined": check_undefined_grad,
        "batched": check_batched_grad,
    }
    way = chosen_way(inconclusive)
    options = Options(eps, atol, rtol, nondet_tol, masked, way, asked)

    def make() -> GradcheckQuestion:
        return second_order_question(func, inputs, grad_outputs, gen_non_contig_grad_outputs)

    return passes_quickly(make, options) or judge(make, options, raise_exception)


for _name in __all__:
    set_public_module(globals()[_name], __name__)
