"""Cross entropy in Triton, forward and backward by hand, for logits of any floating dtype.

The logarithm of the sum of exponentials is found in one walk over the vocabulary, in blocks: with
m the largest logit so far and s = sum exp(x - m), a block with a larger one rescales s. With p the
softmax of a row and g the cotangent of its loss,

    grad_logits = (p - onehot(target)) g,   zero in rows whose target is ignored.

All arithmetic is in float32. Run this file to see it checked.
"""

import torch
from _shared import DEVICE, OF_THE_COTANGENT, Mistake, misread, rounded, tl, triton
from torch.autograd.function import once_differentiable

BLOCK = 16  # entries of the vocabulary at a time

MISTAKES = {
    **OF_THE_COTANGENT,
    "grad_of_row_0": Mistake(
        "every row is multiplied by the cotangent of row 0",
        "Liger-Kernel#968, aprender#2182",
        needs="reduction='none' and a cotangent that is not constant",
    ),
    "zero_gradient": Mistake(
        "with reduction='none' the gradient is zero", "DirectML#739", needs="reduction='none'"
    ),
    "every_row_to_row_0": Mistake(
        "every row of the gradient is stored to row 0", "Triton-distributed#180", needs="two rows"
    ),
    "ignored_rows_not_zeroed": Mistake(
        "rows whose target is ignored get the softmax as their gradient",
        needs="a target of ignore_index",
    ),
    "mean_over_ignored_rows": Mistake(
        "the backward of reduction='mean' divides by the number of all rows",
        needs="reduction='mean' and a target of ignore_index",
    ),
    "tail_block_skipped": Mistake(
        "the backward rounds the vocabulary down to whole blocks",
        needs=f"a vocabulary that is no multiple of {BLOCK}",
    ),
    "onehot_missing": Mistake("the gradient is p g"),
    "buffer_scaled_in_place": Mistake(
        "the forward prepares p - onehot in a buffer, which the backward multiplies in place",
        "triton#4004, Liger-Kernel#262",
        needs="two backwards of one graph, with cotangents that are not one",
    ),
}
OF_THE_MEAN = ("mean_over_ignored_rows",)  # the others show with reduction="none"


@triton.jit
def forward_kernel(logits, targets, losses, lses, n, ignore, BLOCK: tl.constexpr):
    """One program per row, one walk."""
    row = tl.program_id(0)
    target = tl.load(targets + row)
    logits += row.to(tl.int64) * n
    largest = float("-inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(logits + columns, mask=columns < n, other=float("-inf")).to(tl.float32)
        above = tl.maximum(largest, tl.max(x))
        total = total * tl.exp(largest - above) + tl.sum(tl.exp(x - above))
        largest = above
    lse = largest + tl.log(total)
    counts = target != ignore
    chosen = tl.load(logits + target, mask=counts, other=0.0).to(tl.float32)
    tl.store(losses + row, rounded(tl.where(counts, lse - chosen, 0.0), losses))
    tl.store(lses + row, lse)


@triton.jit
def backward_kernel(
    grad, grad_row, logits, logits_row, targets, lses, grad_logits, grad_logits_row, n, ignore,
    BLOCK: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """One program per row."""
    row = tl.program_id(0)
    target = tl.load(targets + row)
    g = tl.load(grad + row * grad_row).to(tl.float32)
    if MISTAKE != "ignored_rows_not_zeroed":
        g = tl.where(target != ignore, g, 0.0)
    lse = tl.load(lses + row)
    logits += row.to(tl.int64) * logits_row
    grad_logits += row.to(tl.int64) * grad_logits_row
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        x = tl.load(logits + columns, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.exp(x - lse)
        if MISTAKE != "onehot_missing":
            p -= tl.where(columns == target, 1.0, 0.0)
        tl.store(grad_logits + columns, rounded(p * g, grad_logits), mask=inside)


def gradient(logits, targets, lses, grad, ignore, mistake):
    """The gradient of the logits from one cotangent per row, of any stride."""
    rows, n = logits.shape
    grad_logits = torch.zeros_like(logits)
    backward_kernel[(rows,)](
        grad, 0 if mistake == "grad_of_row_0" else grad.stride(0), logits, n, targets, lses,
        grad_logits, 0 if mistake == "every_row_to_row_0" else n,
        n - n % BLOCK if mistake == "tail_block_skipped" else n, ignore,
        BLOCK=BLOCK, MISTAKE=mistake,
    )  # fmt: skip
    return grad_logits


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, reduction, ignore, mistake):
        logits, targets = logits.contiguous(), targets.contiguous()
        rows, n = logits.shape
        losses = logits.new_empty(rows)
        lses = logits.new_empty(rows, dtype=torch.float32)
        forward_kernel[(rows,)](logits, targets, losses, lses, n, ignore, BLOCK=BLOCK)
        ctx.save_for_backward(logits, targets, lses)
        ctx.ignore, ctx.mistake = ignore, mistake
        ctx.mean = reduction == "mean"
        if mistake == "buffer_scaled_in_place":
            ctx.buffer = gradient(logits, targets, lses, torch.ones_like(losses), ignore, None)
        if not ctx.mean:
            return losses
        ctx.count = (targets != ignore).sum()
        return losses.sum(dtype=torch.float32).div(ctx.count).to(logits.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        logits, targets, lses = ctx.saved_tensors
        mistake = ctx.mistake
        if mistake == "zero_gradient" and not ctx.mean:
            return torch.zeros_like(logits), None, None, None, None
        grad = misread(grad_output, mistake)
        if ctx.mean:
            count = len(targets) if mistake == "mean_over_ignored_rows" else ctx.count
            grad = (grad.to(torch.float32) / count).expand(len(targets))
        if mistake == "buffer_scaled_in_place":
            return ctx.buffer.mul_(grad[:, None]), None, None, None, None
        return gradient(logits, targets, lses, grad, ctx.ignore, mistake), None, None, None, None


def cross_entropy(logits, targets, reduction="mean", ignore_index=-100, mistake=None):
    """Cross entropy of rows of `logits`; reduction "mean" or "none"; see MISTAKES for `mistake`."""
    return CrossEntropy.apply(logits, targets, reduction, ignore_index, mistake)


def reference(logits, targets, reduction="mean", ignore_index=-100):
    """The same in plain PyTorch, in the dtype of its inputs."""
    counts = targets != ignore_index
    chosen = logits.gather(1, targets.where(counts, 0)[:, None])[:, 0]
    losses = (torch.logsumexp(logits, 1) - chosen).where(counts, 0)
    return losses.sum() / counts.sum() if reduction == "mean" else losses


def example_inputs(dtype=torch.float32, rows=4, n=40, seed=0):
    """Logits and targets, one of which is ignored, on which every mistake shows."""
    random = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(rows, n, generator=random)).to(DEVICE, dtype).requires_grad_()
    targets = torch.randint(n, (rows,), generator=random)
    targets[-2] = -100
    return logits, targets.to(DEVICE)


def main():
    from gradproof import check

    inputs = example_inputs(torch.bfloat16)
    for reduction in ("none", "mean"):
        kwargs = {"reduction": reduction}
        print(check(cross_entropy, inputs, kwargs, reference=reference, seed=0))


if __name__ == "__main__":
    main()
