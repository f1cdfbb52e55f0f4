"""Triton kernels of Liger, on the CPU by Triton's interpreter, in float32.

The interpreter has no libdevice, and takes a number of Python for one without a dtype: both are
made up for before the kernels are imported. Kernels that it cannot run are left out.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read by Triton as it is imported

import torch
import triton
import triton.language as tl
from torch.nn import functional as F
from triton.runtime import interpreter

ONCE = "the backward overwrites what it saved: a second one of the same call is wrong"
CONTIGUOUS = "no gradient of inputs that are not contiguous: their copy requires none"
EPSILON = 1e-6


@triton.jit
def rsqrt(x):
    return 1.0 / tl.sqrt(x)


@triton.jit
def tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


def prepare() -> None:
    """Give the interpreter what the kernels need of libdevice, and floats their dtype."""
    library: Any = types.ModuleType("triton.language.extra.libdevice")
    library.rsqrt, library.tanh = rsqrt, tanh
    sys.modules[library.__name__] = library
    converted = interpreter._implicit_cvt

    def convert(value: Any) -> Any:
        if type(value) is not float:
            return converted(value)
        number = torch.tensor([value]).numpy()
        return tl.core.tensor(interpreter.TensorHandle(number, tl.float32), tl.float32)

    interpreter._implicit_cvt = convert


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).requires_grad_()


def rows() -> Iterator[tuple[str, Any, tuple[Any, ...], str, Any]]:
    """Name, function, inputs, what is wrong with it, and the same in plain operations if known."""
    yield from _norms()
    yield from _activations()
    yield from _losses()
    yield from _others()


def _norms() -> Iterator[tuple[str, Any, tuple[Any, ...], str, Any]]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
    from liger_kernel.ops.group_norm import LigerGroupNormFunction
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction
    from liger_kernel.ops.modulated_rms_norm import LigerModulatedRMSNormFunction
    from liger_kernel.ops.poly_norm import LigerPolyNormFunction
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    x, weight, bias = normal(3, 16), normal(16, seed=1), normal(16, seed=2)

    def rms(x: Any, weight: Any) -> Any:
        return F.rms_norm(x, x.shape[-1:], weight, EPSILON)

    for style, offset in (("llama", 0.0), ("gemma", 1.0)):

        def fused(x: Any, weight: Any, style: str = style, offset: float = offset) -> Any:
            return LigerRMSNormFunction.apply(x, weight, EPSILON, offset, style, False, None)

        def plain(x: Any, weight: Any, offset: float = offset) -> Any:
            return rms(x, weight + offset)

        yield f"rms_norm, {style}", fused, (x, weight), "", plain

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return LigerLayerNormFunction.apply(x, weight, bias, EPSILON)

    def plain_layer(x: Any, weight: Any, bias: Any) -> Any:
        return F.layer_norm(x, x.shape[-1:], weight, bias, EPSILON)

    yield "layer_norm", layer, (x, weight, bias), "", plain_layer

    def group(x: Any, weight: Any, bias: Any) -> Any:
        return LigerGroupNormFunction.apply(x, weight, bias, 4, 2, EPSILON)

    channels = normal(2, 4, 8), normal(4, seed=1), normal(4, seed=2)
    yield "group_norm", group, channels, "", lambda x, w, b: F.group_norm(x, 2, w, b, EPSILON)

    def poly(x: Any, weight: Any, bias: Any) -> Any:
        return LigerPolyNormFunction.apply(x, weight, bias, EPSILON, False)

    yield "poly_norm", poly, (x, normal(3, seed=1), normal(1, seed=2)[0].detach()), "", None

    def added(x: Any, residual: Any, weight: Any) -> Any:
        return LigerFusedAddRMSNormFunction.apply(x, residual, weight, EPSILON, 0.0, "llama", False)

    yield "fused_add_rms_norm", added, (x, normal(3, 16, seed=3), weight), "", None

    def modulated(x: Any, weight: Any, scale: Any, shift: Any) -> Any:
        return LigerModulatedRMSNormFunction.apply(
            x, weight, scale, shift, EPSILON, 0.0, "llama", False
        )

    inputs = normal(2, 3, 16), weight, normal(2, 16, seed=3), normal(2, 16, seed=4)
    yield "modulated_rms_norm", modulated, inputs, "", None


def _activations() -> Iterator[tuple[str, Any, tuple[Any, ...], str, Any]]:
    from liger_kernel.ops.geglu import LigerGELUMulFunction
    from liger_kernel.ops.relu_squared import LigerReLUSquaredFunction
    from liger_kernel.ops.softmax import LigerSoftmaxFunction
    from liger_kernel.ops.sparsemax import LigerSparsemaxFunction
    from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction, LigerSiLUMulFunction

    x, pair = normal(3, 10), (normal(3, 10), normal(3, 10, seed=1))
    yield "softmax", LigerSoftmaxFunction.apply, (x,), "", lambda x: x.softmax(-1)
    yield "sparsemax", lambda x: LigerSparsemaxFunction.apply(x, -1), (x,), "", None
    yield "relu_squared", LigerReLUSquaredFunction.apply, (x,), "", lambda x: F.relu(x) ** 2

    def gelu(a: Any, b: Any) -> Any:
        return F.gelu(a, approximate="tanh") * b

    yield "geglu", LigerGELUMulFunction.apply, pair, ONCE, gelu
    yield "swiglu", LigerSiLUMulFunction.apply, pair, ONCE, lambda a, b: F.silu(a) * b

    def gate_up(x: Any) -> Any:
        return LigerFusedGateUpSiLUMulFunction.apply(x, False)

    yield "swiglu, gate and up", gate_up, (normal(3, 20),), "", None


def _losses() -> Iterator[tuple[str, Any, tuple[Any, ...], str, Any]]:
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
    from liger_kernel.ops.kl_div import LigerKLDivLossFunction
    from liger_kernel.ops.tvd import LigerTVDLossFunction

    target = torch.tensor([0, 4, 8, 2, 4])
    logits = normal(5, 9)

    def entropy(logits: Any) -> Any:
        options = None, -100, 0.0, 0.0, "none", None, False
        return LigerCrossEntropyFunction.apply(logits.clone(), target, *options)[0]

    def plain(logits: Any) -> Any:
        return F.cross_entropy(logits, target, reduction="none")

    yield "cross_entropy", entropy, (logits,), CONTIGUOUS, plain

    def fused(x: Any, weight: Any) -> Any:
        return LigerFusedLinearCrossEntropyFunction.apply(x, weight, target)[0]

    inputs = normal(5, 8), normal(9, 8, seed=1)

    def plain_fused(x: Any, weight: Any) -> Any:
        return F.cross_entropy(x @ weight.mT, target)

    yield "fused_linear_cross_entropy", fused, inputs, ONCE, plain_fused
    others = normal(5, 9, seed=5).detach().softmax(-1)

    def kl(logs: Any) -> Any:
        return LigerKLDivLossFunction.apply(logs, others, "batchmean", False, 1e-10)

    def plain_kl(logs: Any) -> Any:
        return F.kl_div(logs, others.to(logs.dtype), reduction="batchmean")

    logs = logits.detach().log_softmax(-1).requires_grad_()
    yield "kl_div", kl, (logs,), "", plain_kl

    def distance(p: Any) -> Any:
        return LigerTVDLossFunction.apply(p, others, None, "batchmean", -100)

    yield "tvd", distance, (logits.detach().softmax(-1).requires_grad_(),), "", None


def _others() -> Iterator[tuple[str, Any, tuple[Any, ...], str, Any]]:
    from liger_kernel.ops.attn_res import LigerAttnResFunction
    from liger_kernel.ops.multi_token_attention import LigerMultiTokenAttentionFunction
    from liger_kernel.ops.rope import LigerRopeFunction
    from liger_kernel.ops.tiled_mlp import apply_tiled_mlp

    angles = normal(1, 5, 4, seed=7).detach().repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()

    def rope(q: Any, k: Any) -> Any:
        return LigerRopeFunction.apply(q, k, cos, sin)

    yield "rope", rope, (normal(2, 4, 5, 8), normal(2, 2, 5, 8, seed=1)), "", None

    def attention(scores: Any, weight: Any, bias: Any) -> Any:
        return LigerMultiTokenAttentionFunction.apply(scores, weight, bias, 1, 1, 1, 1, False)

    inputs = normal(1, 2, 5, 5), normal(2, 2, 3, 3, seed=1), normal(2, seed=2)
    yield "multi_token_attention", attention, inputs, "", None

    def residual(v: Any, query: Any, norm: Any) -> Any:
        return LigerAttnResFunction.apply(v, query, norm, EPSILON)

    yield "attn_res", residual, (normal(3, 2, 4, 16), normal(16), normal(16, seed=1)), "", None
    matrix = normal(8, 8, seed=9).detach()

    def tiled(x: Any) -> Any:
        return apply_tiled_mlp(lambda _, part: torch.tanh(part @ matrix), None, x, 2)

    yield "tiled_mlp", tiled, (normal(1, 6, 8),), CONTIGUOUS, lambda x: torch.tanh(x @ matrix.to(x))
