"""What to look at for each kind of mistake: one sentence, for the person whose kernel is wrong."""

from __future__ import annotations

_ADVICE = {
    "zero": "look for detach(), .data, a result computed without gradient, a returned None, or a "
    "loop that ends too early",
    "output detached": "an output was made outside of the graph: look for detach(), .item() or "
    "no_grad()",
    "factor": "look for a factor applied twice or forgotten, a mean taken for a sum, a 2 of a "
    "square, a scale that is 1 in the tests",
    "sign": "look for a minus that is missing: b in a - b, 1 - x, -log",
    "transposed": "look at the strides or the index order with which the gradient is written",
    "permuted axes": "look for a permute() or reshape() of the forward that is not undone",
    "reversed": "look for a flip, or a scan that runs backwards, that is not undone",
    "rolled": "look at offsets: an index that starts one entry, or one block, too early or too "
    "late",
    "permuted entries": "look at the indices with which gradients are scattered: a permutation may "
    "stand where its inverse belongs",
    "inputs swapped": "look at the order in which the backward returns its gradients",
    "first for all": "look for an index of the batch or row that is left out when the gradient is "
    "read",
    "summed into the first": "look for an index of the batch or row that is left out when the "
    "gradient is written",
    "extra sum": "look for a sum() that the forward has no broadcast for",
    "extra mean": "look for a mean() that the forward has not",
    "broadcast sum missing": "sum the gradient over the dimensions along which the input was "
    "broadcast",
    "missing term": "look for the term through a normaliser, a mean or a variance: it was treated "
    "as a constant",
    "missing factor": "look for a product in the chain rule with one factor left out, or squared",
    "another function": "the rule of a neighbour in the file was copied, or saved values mixed up",
    "wrong argument": "the backward saved the input where it wants the output, or the other way "
    "round",
    "conjugate": "gradients of complex functions want conj() of the factors; see the convention "
    "of the framework",
    "real part only": "look for .real, or a cast from complex to real, on the way back",
    "imaginary part only": "look for .imag on the way back",
    "phase": "look for a complex factor that should be conjugated or is applied twice",
    "inexact": "let it run to the end, or tighten its tolerance; if it is meant so, pass the "
    "tolerance that it can keep",
    "straight through": "if that is meant, the derivative is a definition: write it in plain "
    "operations, x + (f(x) - x).detach(), and pass it as reference= with trusted=True",
    "absolute value": "look for abs() or a norm applied to the gradient",
    "offset": "look for a term that does not depend on the cotangent: an epsilon, a bias, an "
    "uninitialised buffer",
    "neighbour leaks in": "look at overlapping writes: blocks that share an edge",
    "float32 inside": "look for .float(), a float32 buffer or constant",
    "bfloat16 inside": "look for a bfloat16 buffer, or autocast",
    "float16 inside": "look for a float16 buffer, or autocast",
    "not a number": "look for 0/0, 0 * inf, log(0) or sqrt(0) in the backward, also on branches "
    "that a where() or a mask throws away",
    "cotangent ignored": "the backward returns what it has saved: multiply by grad_output",
    "one cotangent for all": "grad_output[0] is used where every entry has its own: right only "
    "after sum().backward()",
    "layout ignored": "read the cotangent through its strides, or make it contiguous first",
    "expanded cotangent": "a cotangent of stride 0, as sum().backward() gives, holds one number "
    "in memory",
    "input layout ignored": "read the inputs through their strides, make them contiguous first, or "
    "raise for what the function does not take",
    "bit ignored": "call resolve_neg() and resolve_conj() before memory is read",
    "cotangent overwritten": "the cotangent belongs to the caller: copy it before writing into it",
    "input overwritten": "the backward or the forward writes into an input: copy it first",
    "saved overwritten": "a saved array is changed after it was saved, or by a backward that runs "
    "twice",
    "non-linear": "a backward multiplies by the cotangent and does nothing else with it: look for "
    "squares, abs(), clamps, thresholds",
    "zeros skipped": "look for a test of the cotangent against zero, .nonzero(), or a loop that "
    "stops or skips there",
    "large cotangents": "look for a clamp of the gradient and for a narrower format: a loss scaler "
    "starts at 65,536",
    "small cotangents": "look for a threshold, an epsilon or a narrower format: the cotangent of a "
    "mean over many is small",
    "cotangent rounded": "look for round(), a quantised buffer, a cast to whole numbers",
    "accumulated": "a buffer is added to and never cleared: allocate it in every backward",
    "noise": "the backward gives another gradient every time: look for atomics, dropout, "
    "uninitialised memory",
    "last call": "keep what the backward needs with the call itself, in ctx or the residuals, and "
    "not in a module, a global or a workspace that the next call writes into",
    "first call": "key what is kept by the numbers it was made from, or make it anew: shapes, "
    "identities and addresses come again with other numbers",
    "undefined cotangent": "treat a missing cotangent, None, like zero",
    "saved intermediate": "a result of the forward that depends on the input was saved as if it "
    "were a constant: save inputs, or recompute it in the backward",
    "not differentiable": "choose a point beside the kink, or claim a slope between the two",
}


def advice(name: str) -> str:
    """What to do about a cause; "" where nothing better than its message is known."""
    return _ADVICE.get(name, "")


def names() -> tuple[str, ...]:
    """Every cause that is named."""
    return tuple(_ADVICE)
