"""The ordinary gradcheck in one function, read from top to bottom: passed, or not decided.

Most calls of gradcheck are about a right derivative of a plain function in double precision. Of
these `decide_quickly` asks what the engine asks, in 6 to 10 calls of F and about 11 backwards, and
knows two answers: "passed", of which the engine would say the same, and "not decided". Whatever is
wrong, unusual or unclear is not decided; the engine then begins at the beginning. So nothing here
explains, locates or excuses anything. `_fast_slopes.py` measures.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gradproof._checks.groups import splits_in_two
from gradproof._checks.special_probes import FULL_MANTISSA, cancelling_cotangent, split_shares
from gradproof._compare.claims import MODES_AGREE
from gradproof._compare.tolerances import RESOLUTION, bound_of_entry
from gradproof._data.space import KEPT, Space, Values, are_equal
from gradproof._guard import keep_warnings, take_turn
from gradproof._guard.random import GLOBAL, RandomState
from gradproof._numdiff.probes import Kind, constant_cotangent, random_entries, unit_vector
from gradproof._numdiff.slopes import BLOCK
from gradproof._numdiff.steps import coordinate_scales
from gradproof.torch._captured import CONSTANTS, Captured
from gradproof.torch._compat import UndefinedGrad, run_engine
from gradproof.torch._fast_slopes import (
    FINE,
    NUMPY,
    QUICK,
    UNIT,
    USUAL,
    Known,
    Rows,
    SlopeTest,
    vector_of,
)
from gradproof.torch._layouts import cotangent_layouts, in_layout
from gradproof.torch._memory import private_copy
from gradproof.torch._notes import among_ranks
from gradproof.torch._side_effects import saved_tensor_hooks
from gradproof.torch._state import ThreadState
from gradproof.torch._tensors import slot_like

Term = tuple[float, Values]  # of a weighted sum

MOST_ENTRIES = 1 << 22  # inputs, or outputs: the tables of more take too much memory
_LARGE = 2.0**20  # times as large as usual
_ROUNDS = 3  # in which the columns that drown are asked without the others
_SAME = 2.0**-36  # of the terms of a sum, that sums in another order differ by


def decide_quickly(
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]], seed: int, *, undefined: bool
) -> float | None:
    """Whether derivatives are right by all that PyTorch's gradcheck asks.

    Args:
        make: returns the function under test and its positional arguments.
        seed: of the probes.
        undefined: whether undefined cotangents are asked for.

    Returns:
        The bound of a wrong entry, in parts of a typical row; None where it is not decided here.
    """
    with take_turn(), keep_warnings():
        state, random = ThreadState.now(), RandomState()
        if not state.is_usual():
            return None
        pytorch, is_unchanged = GLOBAL["PyTorch"], False
        before = pytorch.get()
        try:
            pytorch.draw()  # a seed that a backward sets is another state than this
            drawn = pytorch.get()
            with np.errstate(all="ignore"):
                run = contextvars.copy_context().run
                bound = run(lambda: _decision(*make(), seed, undefined=undefined))
            is_unchanged = (
                ThreadState.now() == state
                and pytorch.same(pytorch.get(), drawn)
                and random.moved_generators() == ["PyTorch"]
            )
            return bound if is_unchanged else None
        except Exception:  # what the user's code raises it raises again in the engine
            return None
        finally:
            try:
                pytorch.set(before)
                if not is_unchanged:
                    random.restore()
                    state.restore()
            except BaseException:  # an interrupt
                random.restore()
                state.restore()
                raise


def _decision(
    fn: Callable[..., Any], arguments: tuple[Any, ...], seed: int, *, undefined: bool
) -> float | None:
    # 1. The arguments: contiguous leaves in double precision; other tensors, as private copies; and
    # constants. Nothing else that the function reads may require grad or draw random numbers.
    given, places, leaves, private = list(arguments), [], [], []
    for place, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            plain = type(value) is torch.Tensor and value.is_cpu and not value.__dict__
            if not plain or value.layout is not torch.strided or value.is_conj() or value.is_neg():
                return None
            if not value.requires_grad:
                given[place] = private_copy(value)
                private.append(given[place])
                continue
            usual = value.dtype in NUMPY and value.is_leaf and value.is_contiguous()
            usual = usual and not value._backward_hooks  # which are part of the derivative
            if not usual or value.storage_offset() or value.numel() > MOST_ENTRIES:
                return None
            places.append(place)
            leaves.append(value)
        elif type(value) not in CONSTANTS and not (
            type(value) is tuple and CONSTANTS.issuperset(map(type, value))
        ):
            return None
    held = Captured(fn, leaves)
    if not leaves or held.tensors or held.generators or among_ranks():
        return None
    versions = [t._version for t in (*leaves, *private)]
    marks = [(id(t.grad), t.grad is not None and t.grad._version) for t in leaves]

    # 2. F at the point, with its graph. From it J^T v, made to be differentiated: it is linear in
    # v, so that the derivative of (J^T v).u in v is J u, for a random tangent u; unless the double
    # backward is wrong, which shows in v.(J u) = (J^T v).u.
    def run(tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor.requires_grad_()
        result = fn(*given)
        return result if isinstance(result, (tuple, list)) else (result,)

    tensors, others = (tuple([t.detach().clone() for t in leaves]) for _ in range(2))
    result = run(tensors)
    count = len(result)
    floating = [k for k, y in enumerate(result) if y.is_floating_point() or y.is_complex()]
    outputs = tuple([result[k] for k in floating])
    for y in outputs:
        if type(y) is not torch.Tensor or y.dtype not in NUMPY or y.layout is not torch.strided:
            return None
        if not (y.requires_grad and y.is_cpu and y.numel() <= MOST_ENTRIES):
            return None
    if not outputs or [t.stride() for t in tensors] != [t.stride() for t in leaves]:
        return None
    domain = Space(tuple([slot_like("", t) for t in leaves]))
    codomain = Space(tuple([slot_like("", y) for y in outputs]))
    n, m = domain.size, codomain.size
    x, centre = vector_of(leaves), vector_of(outputs).copy()
    draws = random_entries(seed, Kind.TANGENT, 0, n + m)
    u, v = draws[:n], draws[n:]
    u *= coordinate_scales(domain, x)
    probes = Rows(3, outputs)
    probes.write(slice(2), v)
    weights = tuple([t.requires_grad_() for t in probes.tensors(0)])
    wanted = (*tensors, *leaves)  # F may read the user's own tensors, not what it is handed
    found = run_engine(outputs, weights, True, True, wanted, True, accumulate_grad=False)
    made = found[: len(leaves)]
    unused = [k for k, g in enumerate(made) if g is None]
    if len(unused) == len(leaves) or any(g is not None for g in found[len(leaves) :]):
        return None
    del found
    gradient = vector_of(made, leaves).copy()

    def push(direction: Values, made: Sequence[Any] = ()) -> Values | None:
        if m == 1:
            return np.atleast_1d(gradient @ direction / v)
        directions = Rows(1, leaves)
        directions.write(0, direction)
        if not made:
            made = run_engine(outputs, weights, True, True, tensors, True, accumulate_grad=False)
        pairs = zip(made, directions.tensors(0), strict=True)
        used = [(g, d) for g, d in pairs if g is not None and g.requires_grad]
        if not used:
            return None
        roots, along = zip(*used, strict=True)
        try:
            images = run_engine(roots, along, True, False, weights, True, accumulate_grad=False)
        except Exception:  # as of a backward that is differentiable once
            return None
        found = vector_of(images, outputs)
        size = np.abs(v) @ np.abs(found) + np.abs(gradient) @ np.abs(direction)
        is_transpose = abs(v @ found - gradient @ direction) <= MODES_AGREE * UNIT * size
        return found if is_transpose else None

    def pull(cotangents: Sequence[torch.Tensor], roots: tuple[Any, ...] = outputs) -> Values:
        found = run_engine(
            roots, tuple(cotangents), True, False, tensors, True, accumulate_grad=False
        )
        return np.array(vector_of(found, leaves))  # which may be memory of the cotangents

    is_empty = not n or not m  # of no entry anything is right that is a gradient of zero
    claimed = np.zeros(m) if is_empty else push(u, made)
    del made  # its graph takes as much memory as that of F
    if is_empty and gradient.any():
        return None

    # 3. F at the point once more, with what it saves for its backward.
    saved: list[torch.Tensor] = []
    with saved_tensor_hooks(saved):
        result = run(others)
    twin = tuple([result[k] for k in floating])
    saved_before = [t.clone() for t in saved]
    # A sum is finite only if all its terms are.
    if not (math.isfinite(x.sum() + centre.sum()) and are_equal(vector_of(twin), centre)):
        return None

    # 4. F along u: every row, by two steps. Where some are not plainly smooth, or their terms
    # cancel, by the usual table; of many rows those that this leaves by the fine one. Of a backward
    # that cannot be differentiated J u is not known: sums of rows, along two tangents, since an
    # error may be orthogonal to one.
    lent = probes.tensors(2)  # one memory for several cotangents, as an allocator hands it out

    def run_beside(tensors: Sequence[torch.Tensor]) -> Sequence[Any] | None:
        result = run(tensors)
        return [result[k] for k in floating] if len(result) == count else None

    def product_of(cotangent: Values) -> Values:
        probes.write(2, cotangent)
        return pull(lent)

    slopes = SlopeTest(run_beside, leaves, outputs, x, centre, v, product_of)
    is_pushed = claimed is not None
    if claimed is None:
        other = random_entries(seed, Kind.TANGENT, 1, n) * coordinate_scales(domain, x)
        known = [slopes.test_sums(each, (QUICK, USUAL), seed) for each in (u, other)]
    elif is_empty:
        known = [Known(0.0, math.nan, claimed != 0)]
    else:
        tables = (QUICK, USUAL, FINE) if m > BLOCK else (QUICK, USUAL)
        known = [slopes.test_rows(u, claimed, tables)]
    bar, bound, moves = 0.0, 0.0, np.zeros(m, bool)
    for found in known:
        if found is None or math.inf in (found.bound, found.bar):
            return None
        bar, bound, moves = max(found.bar, bar), max(found.bound, bound), moves | found.moves
    del claimed, known  # of long vectors, memory, as below

    # 5. The same cotangent gives the same gradient, to the last bit, on the other run as well, and
    # up to rounding whether it is made to be differentiated or not; a gradient is the same kind of
    # tensor as its input.
    probe = tuple(probes.tensors(1))
    alike = run_engine(twin, probe, True, False, others, True, accumulate_grad=False)
    for k, (g, t) in enumerate(zip(alike, leaves, strict=True)):
        if g is None and k in unused:
            continue
        if type(g) is not torch.Tensor or not (g.is_cpu and g.layout is torch.strided):
            return None
        if g.dtype is not t.dtype or g.shape != t.shape:
            return None
    plain = gradient
    if not are_equal(vector_of(alike, leaves), gradient):  # there may be a kernel for each
        plain = vector_of(alike, leaves).copy()
        both = (1.0, plain), (-1.0, gradient)
        if not are_equal(pull(probe), plain) or _largest_terms(both, domain) is None:
            return None
    is_kept = all(map(torch.equal, saved, saved_before)) and are_equal(vector_of(others), x)
    if not is_kept or any(t.grad is not None for t in others):
        return None
    del twin, result, others, saved, saved_before

    # 6. Linearity, whatever the sizes, zeros and memory layouts of a cotangent. What is claimed of
    # special cotangents, one by one, adds up to what is claimed of two parts of their weighted sum,
    # one much larger than usual and one much smaller, with rows of zeros and single ones. Of very
    # many outputs, each product of which is dear, fewer are asked, as by the engine.
    constant = constant_cotangent(codomain, seed)
    probes.write(2, constant)
    ones = [t.reshape(-1)[:1].clone().as_strided(t.shape, [0] * t.dim()) for t in lent]
    terms: list[Term] = [(2.0, gradient), (-1.0, pull(ones))]  # as sum() hands it over
    whole = 2.0 * v - constant
    if 1 < m <= KEPT:
        probes.write(2, -0.25 * constant)
        terms.append((3.0, pull(lent)))
        whole -= 0.75 * constant
    stacks = [stack for stack in cotangent_layouts(outputs) if stack != "expanded"] or [""]
    if "transposed" in stacks[0]:  # an output has rows and columns
        for axis in (0, -1):  # as sum(dim) hands it over
            equal = [_equal_along(t, axis) for t in probe]
            terms.append((1.0, pull(equal)))
            whole += vector_of(equal)
    elif 1 < m <= KEPT:
        cancelling = cancelling_cotangent(codomain, seed)
        probes.write(2, cancelling)
        terms.append((5.0, pull(lent)))
        whole += 5.0 * cancelling
    # A random digit of v says whether an entry belongs to the large part.
    shares = split_shares(codomain, (2.0**10 * v).astype(np.int32) & 1)
    large_part = shares * whole
    if 0 < m <= KEPT:
        # A single entry that moves something, of another sign than the largest of the large part.
        at = seed % m
        at = at + int(moves[at:].argmax()) if moves[at:].any() else int(moves.argmax())
        single = math.copysign(FULL_MANTISSA[seed % 2], large_part.max() + large_part.min())
        probes.write(2, unit_vector(m, at, _LARGE * single))
        terms.append((4.0 / _LARGE, pull(lent)))
        whole[at] += 4.0 * single
        large_part[at] = shares[at] * whole[at]
    whole -= large_part
    del constant, shares
    large, small = _LARGE * FULL_MANTISSA[0], FULL_MANTISSA[1] / _LARGE
    probes.write(2, large * large_part)
    del large_part
    terms.append((-1.0 / large, pull([in_layout(t, stacks[0]) for t in lent])))
    probes.write(2, small * whole)
    del whole
    last = [in_layout(t, stacks[-1]) for t in lent] if len(stacks) > 1 else lent
    terms.append((-1.0 / small, pull(last)))
    columns = _largest_terms(terms, domain)
    if columns is None:
        return None
    del terms
    for stack in stacks[1:-1]:
        products = (1.0, pull([in_layout(t, stack) for t in probe])), (-1.0, gradient)
        if _largest_terms(products, domain) is None:
            return None

    # 7. Columns whose part of the slopes drowns in the error bars are not tested by these, and are
    # asked without the others.
    columns *= np.abs(u)
    ill_scaled = RESOLUTION * columns <= bar
    is_zero = ill_scaled & (columns == 0)
    if is_zero.any() and not slopes.stands_still_along(np.where(is_zero, u, 0.0)):
        return None
    ill_scaled ^= is_zero
    closer = (USUAL,) if m <= BLOCK else (QUICK, USUAL)
    for _ in range(_ROUNDS):
        if not ill_scaled.any():
            break
        asked = ill_scaled
        other = np.where(ill_scaled, u, 0.0)
        image = push(other) if is_pushed else None
        if image is None:
            again = slopes.test_sums(other, closer, seed)
        else:
            again = slopes.test_rows(other, image, closer)
        if again is None or (image is None and again.bound == math.inf):
            return None
        ill_scaled = asked & (RESOLUTION * columns <= again.bar)
        if are_equal(ill_scaled, asked):
            break
    # Of very many those that stay below the rounding of F are left, as by the engine.
    if ill_scaled.any() and max(n, m) <= KEPT:
        return None

    # 8. Undefined cotangents act like zeros: all of them, and those of some outputs beside others.
    if undefined:
        absent = [UndefinedGrad()(y) for y in outputs]
        none = run_engine(tuple(absent), probe, True, False, tensors, True, accumulate_grad=False)
        if any(g is not None and g.any() for g in none):
            return None
        for group in splits_in_two(len(outputs), seed):
            roots = list(zip(outputs, absent, strict=True))
            one = pull(probe, tuple([pair[k in group] for k, pair in enumerate(roots)]))
            other = pull(probe, tuple([pair[k not in group] for k, pair in enumerate(roots)]))
            if _largest_terms([(-1.0, gradient), (1.0, one), (1.0, other)], domain) is None:
                return None

    # 9. Nothing was changed: inputs, cotangents, saved tensors, earlier results, `.grad`.
    clean = (
        are_equal(vector_of(tensors), x)
        and are_equal(probes.flat()[1], v)
        and are_equal(vector_of(outputs), centre)
        and are_equal(vector_of(alike, leaves), plain)
        and versions == [t._version for t in (*leaves, *private)]
        and all(t.grad is None for t in tensors)
        and marks == [(id(t.grad), t.grad is not None and t.grad._version) for t in leaves]
    )
    return bound_of_entry(bound, n) if clean else None


def _largest_terms(terms: Sequence[Term], space: Space) -> Values | None:
    """The largest term of each coordinate in a weighted sum of gradients that should be zero, (n,).

    None where it is not zero, but for the rounding of each array, or a long part of one.
    """
    weights = np.array([[weight] for weight, _ in terms])
    largest = np.empty(space.size)
    for span in map(space.span, range(len(space.slots))):
        for start in range(span.start, span.stop, BLOCK):  # all terms of a block fit a cache
            here = slice(start, min(start + BLOCK, span.stop))
            table = np.array([gradient[here] for _, gradient in terms])
            table *= weights
            off = np.abs(np.add.reduce(table))
            np.abs(table, out=table)
            size, largest[here] = np.add.reduce(table), np.maximum.reduce(table)
            rounding = _SAME * (size + np.maximum.reduce(size))
            if not (off <= rounding).all() or math.isinf(rounding[0]):
                return None
    return largest


def _equal_along(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Random entries equal along the first, or last, dimension, with stride 0, and of sum zero."""
    axes = [k for k, extent in enumerate(tensor.shape) if extent > 1]
    if len(axes) < 2:
        return tensor
    first = tensor.numpy()[(slice(None),) * axes[axis] + (slice(1),)]
    backwards = first[(slice(None, None, -1),) * first.ndim]
    return torch.from_numpy(first - backwards).expand(tensor.shape)
