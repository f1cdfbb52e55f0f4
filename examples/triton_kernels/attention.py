"""Attention with an online softmax in Triton, forward and backward by hand.

With S = scale Q K^T, P = softmax(S) by rows, O = P V and dO the cotangent,

    dV = P^T dO      dP = dO V^T      delta = rowsum(dO * O)
    dS = P * (dP - delta)             dQ = scale dS K      dK = scale dS^T Q

The forward walks over the keys in blocks and keeps the running maximum and sum of each row, so
that P is never in memory; it saves the logarithm of the row's sum of exponentials, lse, and the
backward computes P = exp(S - lse) again, block by block (FlashAttention-2, arXiv 2307.08691).

All arithmetic is in float32, except that P and dS are rounded to the dtype of the data before
they are multiplied, as tensor cores need it. Run this file to see it checked.
"""

import torch
from _shared import DEVICE, OF_THE_COTANGENT, Mistake, device_function, misread, rounded, tl, triton
from torch.autograd.function import once_differentiable

BLOCK = 16  # queries, and keys, at a time; tl.dot takes no smaller one

MISTAKES = {
    **OF_THE_COTANGENT,
    "scale_missing": Mistake(
        "dQ and dK lack the factor scale",
        "gsplat#136, flash-linear-attention#47",
        needs="a scale that is not one",
    ),
    "delta_missing": Mistake(
        "dS = P * dP: the term by which a row of the softmax sums to one is left out"
    ),
    "delta_of_head_0": Mistake(
        "delta is read without the offset of batch and head",
        "flash-linear-attention#1115, flash-linear-attention#632",
        needs="more than one head, or batch entry",
    ),
    "tail_keys_skipped": Mistake(
        "dQ lacks the last keys: their number is rounded down to whole blocks",
        needs=f"a number of keys that is no multiple of {BLOCK}",
    ),
    "dq_overwritten": Mistake(
        "each block of keys overwrites dQ instead of adding to it",
        "cudnn-frontend#385",
        needs=f"more than {BLOCK} keys",
    ),
    "causal_mask_missing": Mistake(
        "the backward computes P without the causal mask", needs="causal=True"
    ),
    "row_sum_missing": Mistake("the forward saves the maximum of each row of S instead of lse"),
    "dv_stored_with_strides_of_dk": Mistake(
        "dV is stored with the strides of dK",
        "flash-attention#2552",
        needs="K and V of different strides, as slices of one projection have",
    ),
}
OF_CAUSAL = ("causal_mask_missing",)  # the others show with causal=False


@device_function
def load_tile(tensor, strides, heads, rows, height, dims, width):
    """A tile of this program's head in float32, zero outside of the matrix."""
    head = tl.program_id(1)
    tensor += (head // heads).to(tl.int64) * strides[0] + (head % heads) * strides[1]
    inside = (rows[:, None] < height) & (dims[None, :] < width)
    where = rows[:, None] * strides[2] + dims[None, :] * strides[3]
    return tl.load(tensor + where, mask=inside, other=0.0).to(tl.float32)


@device_function
def store_tile(value, tensor, strides, heads, rows, height, dims, width):
    head = tl.program_id(1)
    tensor += (head // heads).to(tl.int64) * strides[0] + (head % heads) * strides[1]
    inside = (rows[:, None] < height) & (dims[None, :] < width)
    where = rows[:, None] * strides[2] + dims[None, :] * strides[3]
    tl.store(tensor + where, rounded(value, tensor), mask=inside)


@device_function
def product(a, b):
    """A product of tiles in float32.

    Operands that were bfloat16 or float16 are exact in float32 and so are their products: the
    same numbers as from tensor cores. The interpreter of Triton 3.9 would multiply the bit
    patterns of bfloat16, and without "ieee" a GPU cuts float32 to TF32.
    """
    return tl.dot(a, b, input_precision="ieee")


@device_function
def scores(q, k, rows, columns, scale, n_keys, CAUSAL: tl.constexpr):
    """A tile of S, minus infinity where the row must not see the column."""
    seen = columns[None, :] < n_keys
    if CAUSAL:
        seen = seen & (columns[None, :] <= rows[:, None])
    return tl.where(seen, product(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit
def forward_kernel(
    q, q_strides, k, k_strides, v, v_strides, out, out_strides, lses,
    scale, heads, n_queries, n_keys, d,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head; one walk over the keys."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, BLOCK_D)
    q_tile = load_tile(q, q_strides, heads, rows, n_queries, dims, d)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.full([BLOCK], 0.0, tl.float32)
    result = tl.full([BLOCK, BLOCK_D], 0.0, tl.float32)
    for start in range(0, n_keys, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k_tile = load_tile(k, k_strides, heads, columns, n_keys, dims, d)
        v_tile = load_tile(v, v_strides, heads, columns, n_keys, dims, d)
        s = scores(q_tile, k_tile, rows, columns, scale, n_keys, CAUSAL)
        # Finite from the first block on: even with CAUSAL, every row sees key 0.
        above = tl.maximum(largest, tl.max(s, 1))
        p = tl.exp(s - above[:, None])
        shrink = tl.exp(largest - above)
        total = total * shrink + tl.sum(p, 1)
        p = rounded(p, v).to(tl.float32)
        result = result * shrink[:, None] + product(p, v_tile)
        largest = above
    store_tile(result / total[:, None], out, out_strides, heads, rows, n_queries, dims, d)
    lse = largest
    if MISTAKE != "row_sum_missing":
        lse += tl.log(total)
    tl.store(lses + tl.program_id(1) * n_queries + rows, lse, mask=rows < n_queries)


@triton.jit
def delta_kernel(
    grad, grad_strides, out, out_strides, deltas, heads, n_queries, d,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, BLOCK_D)
    do = load_tile(grad, grad_strides, heads, rows, n_queries, dims, d)
    o = load_tile(out, out_strides, heads, rows, n_queries, dims, d)
    tl.store(deltas + tl.program_id(1) * n_queries + rows, tl.sum(do * o, 1), mask=rows < n_queries)


@device_function
def p_and_ds(
    q, k, v, do, lses, deltas, delta_head, rows, columns, scale, n_queries, n_keys, like,
    CAUSAL: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """Tiles of P and dS, rounded to the dtype of the data."""
    head = tl.program_id(1)
    inside = rows < n_queries
    lse = tl.load(lses + head * n_queries + rows, mask=inside, other=0.0)
    delta = tl.load(deltas + head * delta_head + rows, mask=inside, other=0.0)
    s = scores(q, k, rows, columns, scale, n_keys, CAUSAL and MISTAKE != "causal_mask_missing")
    p = tl.where(inside[:, None], tl.exp(s - lse[:, None]), 0.0)
    dp = product(do, tl.trans(v))
    if MISTAKE != "delta_missing":
        dp -= delta[:, None]
    return rounded(p, like).to(tl.float32), rounded(p * dp, like).to(tl.float32)


@triton.jit
def query_kernel(
    q, q_strides, k, k_strides, v, v_strides, grad, grad_strides, lses, deltas, delta_head,
    dq, dq_strides, scale, dq_scale, heads, n_queries, n_keys, used_keys, d,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """dQ of a block of queries; one walk over the keys."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, BLOCK_D)
    q_tile = load_tile(q, q_strides, heads, rows, n_queries, dims, d)
    do = load_tile(grad, grad_strides, heads, rows, n_queries, dims, d)
    result = tl.full([BLOCK, BLOCK_D], 0.0, tl.float32)
    for start in range(0, used_keys, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        k_tile = load_tile(k, k_strides, heads, columns, n_keys, dims, d)
        v_tile = load_tile(v, v_strides, heads, columns, n_keys, dims, d)
        _, ds = p_and_ds(
            q_tile, k_tile, v_tile, do, lses, deltas, delta_head, rows, columns, scale,
            n_queries, n_keys, q, CAUSAL, MISTAKE,
        )  # fmt: skip
        if MISTAKE == "dq_overwritten":
            result = tl.full([BLOCK, BLOCK_D], 0.0, tl.float32)
        result += product(ds, k_tile)
    store_tile(result * dq_scale, dq, dq_strides, heads, rows, n_queries, dims, d)


@triton.jit
def key_kernel(
    q, q_strides, k, k_strides, v, v_strides, grad, grad_strides, lses, deltas, delta_head,
    dk, dk_strides, dv, dv_strides, scale, dk_scale, heads, n_queries, n_keys, d,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, CAUSAL: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """dK and dV of a block of keys; one walk over the queries."""
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, BLOCK_D)
    k_tile = load_tile(k, k_strides, heads, columns, n_keys, dims, d)
    v_tile = load_tile(v, v_strides, heads, columns, n_keys, dims, d)
    sum_k = tl.full([BLOCK, BLOCK_D], 0.0, tl.float32)
    sum_v = tl.full([BLOCK, BLOCK_D], 0.0, tl.float32)
    for start in range(0, n_queries, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        q_tile = load_tile(q, q_strides, heads, rows, n_queries, dims, d)
        do = load_tile(grad, grad_strides, heads, rows, n_queries, dims, d)
        p, ds = p_and_ds(
            q_tile, k_tile, v_tile, do, lses, deltas, delta_head, rows, columns, scale,
            n_queries, n_keys, q, CAUSAL, MISTAKE,
        )  # fmt: skip
        sum_k += product(tl.trans(ds), q_tile)
        sum_v += product(tl.trans(p), do)
    store_tile(sum_k * dk_scale, dk, dk_strides, heads, columns, n_keys, dims, d)
    store_tile(sum_v, dv, dv_strides, heads, columns, n_keys, dims, d)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale, mistake):
        heads, n_queries, d = q.shape[1:]
        n_keys = k.shape[2]
        out = torch.empty_like(q)
        lses = q.new_empty(q.shape[:3], dtype=torch.float32)
        options = tiling(d, causal=causal, mistake=mistake)
        forward_kernel[programs(q)](
            q, q.stride(), k, k.stride(), v, v.stride(), out, out.stride(), lses,
            scale, heads, n_queries, n_keys, d, **options,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lses)
        ctx.scale, ctx.mistake, ctx.options = scale, mistake, options
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        q, k, v, out, lses = ctx.saved_tensors
        mistake, options = ctx.mistake, ctx.options
        heads, n_queries, d = q.shape[1:]
        n_keys = k.shape[2]
        grad, deltas = misread(grad_output, mistake), torch.empty_like(lses)
        blocks = {name: options[name] for name in ("BLOCK", "BLOCK_D")}
        delta_kernel[programs(q)](
            grad, grad.stride(), out, out.stride(), deltas, heads, n_queries, d, **blocks
        )
        given = (
            q, q.stride(), k, k.stride(), v, v.stride(), grad, grad.stride(), lses, deltas,
            0 if mistake == "delta_of_head_0" else n_queries,
        )  # fmt: skip
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        scale, factor = ctx.scale, 1.0 if mistake == "scale_missing" else ctx.scale
        used_keys = n_keys - n_keys % BLOCK if mistake == "tail_keys_skipped" else n_keys
        query_kernel[programs(q)](
            *given, dq, dq.stride(), scale, factor, heads, n_queries, n_keys, used_keys, d,
            **options,
        )  # fmt: skip
        dv_strides = (dk if mistake == "dv_stored_with_strides_of_dk" else dv).stride()
        key_kernel[programs(k)](
            *given, dk, dk.stride(), dv, dv_strides, scale, factor, heads, n_queries, n_keys, d,
            **options,
        )  # fmt: skip
        return dq, dk, dv, None, None, None


def programs(rows):
    """The grid: blocks of rows, times heads of all batch entries."""
    return triton.cdiv(rows.shape[2], BLOCK), rows.shape[0] * rows.shape[1]


def tiling(d, *, causal, mistake):
    return {
        "BLOCK": BLOCK,
        "BLOCK_D": max(16, triton.next_power_of_2(d)),
        "CAUSAL": causal,
        "MISTAKE": mistake,
    }


def attention(q, k, v, causal=False, scale=None, mistake=None):
    """Attention of q (batch, heads, queries, d) to k and v (batch, heads, keys, d).

    With `causal`, query i sees keys 0 to i. `scale` is 1 / sqrt(d) where None. The backward is
    that of MISTAKES[mistake], if any.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return Attention.apply(q, k, v, causal, scale, mistake)


def reference(q, k, v, causal=False, scale=None):
    """The same in plain PyTorch, in the dtype of its inputs."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = scale * q @ k.mT
    if causal:
        hidden = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        s = s.masked_fill(hidden, float("-inf"))
    return torch.softmax(s, -1) @ v


def example_inputs(dtype=torch.float32, batch=1, queries=18, keys=20, d=4, seed=0):
    """q, k and v of two heads, on which every mistake shows; v is (batch, keys, heads, d)."""
    random = torch.Generator().manual_seed(seed)
    sizes = ((batch, 2, queries, d), (batch, 2, keys, d), (batch, keys, 2, d))
    q, k, v = (torch.randn(size, generator=random).to(DEVICE, dtype) for size in sizes)
    return tuple(each.requires_grad_() for each in (q, k, v.transpose(1, 2)))


def main():
    from gradproof import check

    inputs = example_inputs(torch.bfloat16)
    for causal in (False, True):
        print(check(attention, inputs, {"causal": causal}, reference=reference, seed=0))


if __name__ == "__main__":
    main()
