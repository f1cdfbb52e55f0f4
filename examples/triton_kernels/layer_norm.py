"""Layer norm in Triton, forward and backward by hand, for data of any floating dtype.

With y = (x - mean) / sigma, g = grad_output * weight and <.> the mean over the last dimension,

    grad_x      = (g - <g> - y <g y>) / sigma
    grad_weight = sum over rows of grad_output * y
    grad_bias   = sum over rows of grad_output

All arithmetic is in float32. Run this file to see it checked.
"""

import torch
from _shared import DEVICE, OF_THE_COTANGENT, Mistake, device_function, misread, rounded, tl, triton
from torch.autograd.function import once_differentiable

BLOCK = 16  # columns at a time; a row of any length is walked in such blocks
GROUPS = 2  # programs that share the rows in the gradients of weight and bias

MISTAKES = {
    **OF_THE_COTANGENT,
    "projection_missing": Mistake(
        "the term y <g y> is left out of grad_x",
        needs="a cotangent that is not constant along a row of y",
    ),
    "mean_missing": Mistake("the term <g> is left out of grad_x"),
    "weight_missing": Mistake("g is grad_output", needs="a weight that is not one"),
    "every_row_to_row_0": Mistake(
        "every row of grad_x is stored to row 0", "Triton-distributed#180", needs="two rows"
    ),
    "tail_block_skipped": Mistake(
        "the backward rounds the length of a row down to whole blocks",
        needs=f"a length that is no multiple of {BLOCK}",
    ),
    "first_group_only": Mistake(
        "grad_weight and grad_bias hold the first program's partial sum",
        needs="more rows than one",
    ),
}


@triton.jit
def forward_kernel(x, weight, bias, out, means, scales, n, eps, BLOCK: tl.constexpr):
    """One program per row. Three walks: mean, variance, result."""
    row = tl.program_id(0)
    x += row * n
    out += row * n
    total = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total) / n
    total = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
        centred = tl.where(columns < n, value - mean, 0.0)
        total += centred * centred
    scale = 1 / tl.sqrt(tl.sum(total) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        value = tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + columns, rounded((value - mean) * scale * w + b, out), mask=inside)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)


@device_function
def g_and_y(grad, grad_column, x, weight, mean, scale, columns, n):
    """One block of a row: g = grad * weight and y, both zero beyond the end of the row."""
    inside = columns < n
    g = tl.load(grad + columns * grad_column, mask=inside, other=0.0).to(tl.float32)
    g *= tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)
    return g, tl.where(inside, (value - mean) * scale, 0.0)


@triton.jit
def input_kernel(
    grad, grad_row, grad_column, x, x_row, weight, means, scales, grad_x, grad_x_row, n,
    BLOCK: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """grad_x, one program per row. Two walks: the two means, then the result."""
    row = tl.program_id(0)
    grad += row * grad_row
    x += row * x_row
    grad_x += row * grad_x_row
    mean = tl.load(means + row)
    scale = tl.load(scales + row)
    sum_g = tl.full([BLOCK], 0.0, tl.float32)
    sum_gy = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        g, y = g_and_y(grad, grad_column, x, weight, mean, scale, columns, n)
        sum_g += g
        sum_gy += g * y
    mean_g = tl.sum(sum_g) / n
    mean_gy = tl.sum(sum_gy) / n
    if MISTAKE == "mean_missing":
        mean_g = 0.0
    if MISTAKE == "projection_missing":
        mean_gy = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        g, y = g_and_y(grad, grad_column, x, weight, mean, scale, columns, n)
        result = (g - mean_g - y * mean_gy) * scale
        tl.store(grad_x + columns, rounded(result, grad_x), mask=columns < n)


@triton.jit
def parameter_kernel(
    grad, grad_row, grad_column, x, x_row, means, scales, grad_weight, grad_bias, rows, n,
    BLOCK: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Partial sums of grad_weight and grad_bias: a block of columns, every GROUPS-th row."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    group = tl.program_id(1)
    inside = columns < n
    sum_weight = tl.full([BLOCK], 0.0, tl.float32)
    sum_bias = tl.full([BLOCK], 0.0, tl.float32)
    for row in range(group, rows, GROUPS):
        there = grad + row * grad_row + columns * grad_column
        g = tl.load(there, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(x + row * x_row + columns, mask=inside, other=0.0).to(tl.float32)
        sum_weight += g * (value - tl.load(means + row)) * tl.load(scales + row)
        sum_bias += g
    tl.store(grad_weight + group * n + columns, sum_weight, mask=inside)
    tl.store(grad_bias + group * n + columns, sum_bias, mask=inside)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, mistake):
        n = x.shape[-1]
        rows = x.reshape(-1, n).contiguous()
        weight, bias = weight.contiguous(), bias.contiguous()
        out = torch.empty_like(rows)
        means, scales = rows.new_empty((2, len(rows)), dtype=torch.float32)
        forward_kernel[(len(rows),)](rows, weight, bias, out, means, scales, n, eps, BLOCK=BLOCK)
        ctx.save_for_backward(rows, weight, means, scales)
        ctx.mistake = mistake
        return out.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, weight, means, scales = ctx.saved_tensors
        mistake = ctx.mistake
        rows, n = x.shape
        used = n - n % BLOCK if mistake == "tail_block_skipped" else n
        grad = misread(grad_output, mistake).reshape(rows, n)
        factor = torch.ones_like(weight) if mistake == "weight_missing" else weight
        grad_x = torch.zeros_like(x)
        input_kernel[(rows,)](
            grad, *grad.stride(), x, n, factor, means, scales,
            grad_x, 0 if mistake == "every_row_to_row_0" else n, used,
            BLOCK=BLOCK, MISTAKE=mistake,
        )  # fmt: skip
        partial = x.new_zeros((2, GROUPS, n), dtype=torch.float32)
        grid = (triton.cdiv(n, BLOCK), GROUPS)
        parameter_kernel[grid](
            grad, *grad.stride(), x, n, means, scales, *partial, rows, n,
            BLOCK=BLOCK, GROUPS=GROUPS,
        )  # fmt: skip
        sums = partial[:, 0] if mistake == "first_group_only" else partial.sum(1)
        grad_weight, grad_bias = sums.to(weight.dtype)
        return grad_x.view(grad_output.shape), grad_weight, grad_bias, None, None


def layer_norm(x, weight, bias, eps=1e-5, mistake=None):
    """Layer norm of `x` over its last dimension; with the backward of MISTAKES[mistake], if any."""
    return LayerNorm.apply(x, weight, bias, eps, mistake)


def reference(x, weight, bias, eps=1e-5):
    """The same in plain PyTorch, in the dtype of its inputs."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(-1, keepdim=True) + eps) * weight + bias


def example_inputs(dtype=torch.float32, rows=5, n=24, seed=0):
    """x, weight and bias on which every mistake shows."""
    random = torch.Generator().manual_seed(seed)
    x, weight, bias = (torch.randn(size, generator=random) for size in ((rows, n), n, n))
    inputs = 2 * x + 0.5, 1 + weight / 2, bias
    return tuple(each.to(DEVICE, dtype).requires_grad_() for each in inputs)


def main():
    from gradproof import check

    print(check(layer_norm, example_inputs(torch.bfloat16), reference=reference, seed=0))


if __name__ == "__main__":
    main()
