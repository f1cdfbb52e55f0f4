"""The ordinary gradcheck in one function, read from top to bottom: passed, or not decided.

Most calls of gradcheck are about a right derivative of a plain function in double precision. Of
these `decide_quickly` asks what the engine asks, in 6 or 8 calls of F and about 11 backwards, and
knows two answers: "passed", of which the engine would say the same, and "not decided". Whatever is
wrong, unusual or unclear is not decided; the engine then begins at the beginning. So nothing here
explains, locates or excuses anything, and no tolerance is wider than the engine's.
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
from gradproof._compare.screen import CANCELS
from gradproof._compare.tolerances import (
    RESOLUTION,
    SHARP_RESOLUTION,
    SMALL,
    bound_of_entry,
    rounding_part,
)
from gradproof._data.space import KEPT, Mask, Space, Values, are_equal, norm
from gradproof._guard import keep_warnings, take_turn
from gradproof._guard.random import GLOBAL, RandomState
from gradproof._numdiff.probes import Kind, constant_cotangent, random_entries, unit_vector
from gradproof._numdiff.slopes import BLOCK, measured_slopes
from gradproof._numdiff.steps import coordinate_scales, step_tables
from gradproof._numdiff.values import DifferenceTable
from gradproof.torch._captured import Captured
from gradproof.torch._compat import UndefinedGrad, run_engine
from gradproof.torch._layouts import cotangent_layouts, in_layout
from gradproof.torch._memory import private_copy
from gradproof.torch._notes import among_ranks
from gradproof.torch._side_effects import saved_tensor_hooks
from gradproof.torch._state import ThreadState
from gradproof.torch._tensors import slot_like

Chosen = slice | Mask  # some of the outputs
ALL = slice(None)
Term = tuple[float, Values]  # of a weighted sum

MOST_ENTRIES = 1 << 22  # inputs, or outputs: the tables of more take too much memory
_NUMPY = {torch.float64: np.float64, torch.complex128: np.complex128}
_CONSTANTS = frozenset((int, float, complex, bool, str, type(None), torch.dtype))
_UNIT = 2.0**-53
_TABLES = step_tables(_UNIT)
assert _TABLES.quick is not None
_QUICK, _USUAL = _TABLES.quick.steps, _TABLES.usual.steps
_UNITS, _ZEROS = np.full(BLOCK, _UNIT), np.zeros(BLOCK)
_LARGE = 2.0**20  # times as large as usual
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
        numbers = pytorch.get()
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
                pytorch.set(numbers)
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
            usual = value.dtype in _NUMPY and value.is_leaf and value.is_contiguous()
            usual = usual and not value._backward_hooks  # which are part of the derivative
            if not usual or value.storage_offset() or value.numel() > MOST_ENTRIES:
                return None
            places.append(place)
            leaves.append(value)
        elif type(value) not in _CONSTANTS and not (
            type(value) is tuple and _CONSTANTS.issuperset(map(type, value))
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
        if type(y) is not torch.Tensor or y.dtype not in _NUMPY or y.layout is not torch.strided:
            return None
        if not (y.requires_grad and y.is_cpu and y.numel() <= MOST_ENTRIES):
            return None
    if not outputs or [t.stride() for t in tensors] != [t.stride() for t in leaves]:
        return None
    domain = Space(tuple([slot_like("", t) for t in leaves]))
    codomain = Space(tuple([slot_like("", y) for y in outputs]))
    n, m = domain.size, codomain.size
    x, centre = _vector(leaves), _vector(outputs).copy()
    draws = random_entries(seed, Kind.TANGENT, 0, n + m)
    u, v = draws[:n], draws[n:]
    u *= coordinate_scales(domain, x)
    probes = _Rows(3, outputs)
    probes.write(slice(2), v)
    weights = tuple([t.requires_grad_() for t in probes.tensors(0)])
    wanted = (*tensors, *leaves)  # F may read the user's own tensors, not what it is handed
    found = run_engine(outputs, weights, True, True, wanted, True, accumulate_grad=False)
    made = found[: len(leaves)]
    unused = [k for k, g in enumerate(made) if g is None]
    if len(unused) == len(leaves) or any(g is not None for g in found[len(leaves) :]):
        return None
    del found
    gradient = _vector(made, leaves).copy()

    def push(direction: Values, made: Sequence[Any] = ()) -> Values | None:
        if m == 1:
            return np.atleast_1d(gradient @ direction / v)
        directions = _Rows(1, leaves)
        directions.write(0, direction)
        if not made:
            made = run_engine(outputs, weights, True, True, tensors, True, accumulate_grad=False)
        pairs = zip(made, directions.tensors(0), strict=True)
        used = [(g, d) for g, d in pairs if g is not None and g.requires_grad]
        roots, along = zip(*used, strict=True)
        images = run_engine(roots, along, True, False, weights, True, accumulate_grad=False)
        found = _vector(images, outputs)
        size = np.abs(v) @ np.abs(found) + np.abs(gradient) @ np.abs(direction)
        is_transpose = abs(v @ found - gradient @ direction) <= MODES_AGREE * _UNIT * size
        return found if is_transpose else None

    is_empty = not n or not m  # of no entry anything is right that is a gradient of zero
    claimed = np.zeros(m) if is_empty else push(u, made)
    del made  # its graph takes as much memory as that of F
    if claimed is None or (is_empty and gradient.any()):
        return None

    # 3. F at the point once more, with what it saves for its backward; and at x + h u and x - h u
    # for two steps h.
    saved: list[torch.Tensor] = []
    with saved_tensor_hooks(saved):
        result = run(others)
    twin = tuple([result[k] for k in floating])
    saved_before = [t.clone() for t in saved]
    # A sum is finite only if all its terms are.
    if not (math.isfinite(x.sum() + centre.sum()) and are_equal(_vector(twin), centre)):
        return None
    in_single = m > 0 and are_equal(centre, centre.astype(np.float32))
    handed = _Rows(1, leaves)
    moved = handed.tensors(0)

    # Some rows of F at x + w u for some w, a row of a table each; None where F is no number, has
    # another shape, or may be computed in float32.
    def values_along(direction: Values, ways: Sequence[float], rows: Chosen = ALL) -> Values | None:
        table = np.empty((len(ways), centre[rows].size))
        for k, way in enumerate(ways):
            handed.write_sum(x, way, direction)
            result = run(moved)
            found = [result[k] for k in floating]
            for one, other in zip(found, outputs, strict=True):
                if one.shape != other.shape or one.dtype is not other.dtype:
                    return None
            if len(result) != count:
                return None
            table[k] = _vector(found)[rows]
        if in_single and are_equal(table[0], table[0].astype(np.float32)):
            return None
        return table if math.isfinite(table.sum()) else None

    # The law (`_compare/tolerances.py`): a row along a random tangent tolerates nothing but the
    # error bar of the measured slope, which is infinite unless F is plainly smooth, and the
    # rounding of the claim, whose terms may cancel along u. Both must be small beside the slope for
    # a row to be tested. None where a row is off, or nothing is claimed; else the rows that are not
    # tested, the bars times |v|, and the bound of the others.
    def rows_along(
        u: Values, claimed: Values, steps: Values, rows: Chosen = ALL
    ) -> tuple[Mask, Values, float] | None:
        table = values_along(u, [way for step in steps for way in (step, -step)], rows)
        typical = norm(claimed) / math.sqrt(m)
        if table is None or not 0.0 < typical < math.inf:
            return None
        claims, centres, bars = claimed[rows], centre[rows], np.abs(v[rows])
        untested, bound = np.zeros(bars.size, bool), 0.0
        for start in range(0, bars.size, BLOCK):
            here = slice(start, start + BLOCK)
            claim, part = claims[here], table[:, here]
            noise = _UNITS[: claim.size], _ZEROS[: claim.size], claim.size
            differences = DifferenceTable(steps, centres[here], part[0::2], part[1::2], *noise)
            slopes = measured_slopes(differences).without_kinks()
            off, slope = np.abs(claim - slopes.low), np.abs(slopes.low)
            size = np.maximum(slope, np.abs(claim))
            terms = np.minimum(typical, CANCELS * slope)
            terms[slope == 0] = typical
            allowed = slopes.bar + rounding_part(_UNIT) * np.maximum(size, terms)
            if not (off <= allowed).all():
                return None
            tested = allowed <= SHARP_RESOLUTION * np.maximum(size, SMALL * typical)
            tested |= slopes.still & (claim == 0)
            parts = (off + allowed) / np.maximum(size, typical)
            bound = max(bound, float(parts.max(initial=0.0, where=tested)))
            untested[here] = ~tested
            bars[here] *= slopes.bar
        return untested, bars, bound

    # 4. Every row along u by two steps. Where some are not plainly smooth, or their terms cancel,
    # all are measured by the usual table; of many rows those alone.
    untested, bar, bound = np.full(m, not is_empty), 0.0, math.nan
    for steps in (_QUICK, _USUAL):
        if untested.any():
            chosen = ALL if m <= BLOCK or untested.all() else untested.copy()
            rows = rows_along(u, claimed, steps, chosen)
            if rows is None:
                return None
            bar = max(bar, float(rows[1].max(initial=0.0, where=~rows[0])))
            untested[chosen] &= rows[0]
            bound = max(rows[2], bound)
    if untested.any():
        return None
    moves, rows = claimed != 0, None
    del claimed  # of long vectors, memory, as below

    # 5. The same cotangent gives the same gradient, to the last bit, on the other run as well, and
    # up to rounding whether it is made to be differentiated or not; a gradient is the same kind of
    # tensor as its input.
    def pull(cotangents: Sequence[torch.Tensor], roots: tuple[Any, ...] = outputs) -> Values:
        found = run_engine(
            roots, tuple(cotangents), True, False, tensors, True, accumulate_grad=False
        )
        return np.array(_vector(found, leaves))  # which may be memory of the cotangents

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
    if not are_equal(_vector(alike, leaves), gradient):  # there may be a kernel for each
        plain = _vector(alike, leaves).copy()
        both = (1.0, plain), (-1.0, gradient)
        if not are_equal(pull(probe), plain) or _largest_terms(both, domain) is None:
            return None
    is_kept = all(map(torch.equal, saved, saved_before)) and are_equal(_vector(others), x)
    if not is_kept or any(t.grad is not None for t in others):
        return None
    del twin, result, others, saved, saved_before

    # 6. Linearity, whatever the sizes, zeros and memory layouts of a cotangent. What is claimed of
    # special cotangents, one by one, adds up to what is claimed of two parts of their weighted sum,
    # one much larger than usual and one much smaller, with rows of zeros and single ones.
    constant = constant_cotangent(codomain, seed)
    probes.write(2, constant)
    lent = probes.tensors(2)  # one memory for several cotangents, as an allocator hands it out
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
            whole += _vector(equal)
    elif 1 < m <= KEPT:
        cancelling = cancelling_cotangent(codomain, seed)
        probes.write(2, cancelling)
        terms.append((5.0, pull(lent)))
        whole += 5.0 * cancelling
    # A random digit of v says whether an entry belongs to the large part.
    shares = split_shares(codomain, (2.0**10 * v).astype(np.int32) & 1)
    large_part = shares * whole
    if (
        0 < m <= KEPT
    ):  # a single entry that moves something, of another sign than the largest of that part
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
    del terms
    for stack in stacks[1:-1]:
        products = (1.0, pull([in_layout(t, stack) for t in probe])), (-1.0, gradient)
        columns = None if _largest_terms(products, domain) is None else columns
    if columns is None:
        return None

    # 7. Columns whose part of the slopes drowns in the error bars are not tested by these, and are
    # asked without the others.
    columns *= np.abs(u)
    ill_scaled = RESOLUTION * columns <= bar
    if (is_zero := ill_scaled & (columns == 0)).any():  # F must stand still as they move
        values = values_along(np.where(is_zero, u, 0.0), (_QUICK[0], -_QUICK[0]))
        if values is None or not (values == centre).all():
            return None
    ill_scaled ^= is_zero
    if ill_scaled.any():
        other, steps = np.where(ill_scaled, u, 0.0), _USUAL if m <= BLOCK else _QUICK
        rows = None if (image := push(other)) is None else rows_along(other, image, steps)
        if rows is None or not RESOLUTION * columns[ill_scaled].min() > rows[1].max():
            return None

    # 8. Undefined cotangents act like zeros: all of them, and those of some outputs beside others.
    def pull_without(missing: frozenset[int]) -> Values:
        roots = [UndefinedGrad()(y) if k in missing else y for k, y in enumerate(outputs)]
        return pull(probe, tuple(roots))

    if undefined:
        every = frozenset(range(len(outputs)))
        if pull_without(every).any():
            return None
        for group in splits_in_two(len(outputs), seed):
            parts = (1.0, pull_without(group)), (1.0, pull_without(every - group))
            if _largest_terms([(-1.0, gradient), *parts], domain) is None:
                return None

    # 9. Nothing was changed: inputs, cotangents, saved tensors, earlier results, `.grad`.
    clean = (
        are_equal(_vector(tensors), x)
        and are_equal(probes.flat()[1], v)
        and are_equal(_vector(outputs), centre)
        and are_equal(_vector(alike, leaves), plain)
        and versions == [t._version for t in (*leaves, *private)]
        and all(t.grad is None for t in tensors)
        and marks == [(id(t.grad), t.grad is not None and t.grad._version) for t in leaves]
    )
    return bound_of_entry(bound, n) if clean else None


class _Rows:
    """A table of vectors. A row is also a list of tensors, which share its memory.

    Args:
        count: of rows.
        like: tensors of the shapes and dtypes of those of a row.
    """

    def __init__(self, count: int, like: Sequence[torch.Tensor]) -> None:
        self._like = like
        self._parts = [np.zeros((count, *t.shape), _NUMPY[t.dtype]) for t in like]
        self._flat = [p.reshape(count, p[0].size).view(np.float64) for p in self._parts]

    def flat(self) -> Values:
        """The table, (count, size)."""
        return self._flat[0] if len(self._flat) == 1 else np.concatenate(self._flat, axis=1)

    def write(self, rows: int | slice, numbers: Values) -> None:
        """Put vectors in some rows."""
        start = 0
        for part in self._flat:
            part[rows] = numbers[..., start : (start := start + part.shape[1])]

    def write_sum(self, point: Values, factor: float, move: Values) -> None:
        """Put ``point + factor * move`` in the first row."""
        start = 0
        for part in self._flat:
            here = slice(start, start := start + part.shape[1])
            np.multiply(move[here], factor, out=part[0])
            part[0] += point[here]

    def tensors(self, row: int) -> list[torch.Tensor]:
        """The tensors of a row, which are new ones at every call."""
        return [torch.from_numpy(part[row, ...]) for part in self._parts]


def _vector(tensors: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor] = ()) -> Values:
    """Flat coordinates of tensors, whose memory they may share; None is the zero of one alike."""
    if len(tensors) == 1 and tensors[0] is not None:
        return tensors[0].numpy(force=True).reshape(-1).view(np.float64)
    given = [torch.zeros_like(like[k]) if t is None else t for k, t in enumerate(tensors)]
    parts = [tensor.numpy(force=True).reshape(-1).view(np.float64) for tensor in given]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _largest_terms(terms: Sequence[Term], space: Space) -> Values | None:
    """The largest term of each coordinate in a weighted sum of gradients that should be zero, (n,).

    None where it is not zero, but for the rounding of each array.
    """
    weights = np.array([[weight] for weight, _ in terms])
    off, size, largest = np.empty((3, space.size))
    for start in range(0, space.size, BLOCK):  # all terms of a block fit a cache
        here = slice(start, start + BLOCK)
        table = np.array([gradient[here] for _, gradient in terms])
        table *= weights
        off[here] = table.sum(axis=0)
        np.abs(table, out=table)
        size[here], largest[here] = table.sum(axis=0), table.max(axis=0)
    for k in range(len(space.slots)):
        here = space.span(k)
        rounding = _SAME * (size[here] + size[here].max(initial=0.0))
        if not (np.abs(off[here]) <= rounding).all():
            return None
    return largest if math.isfinite(size.sum()) else None


def _equal_along(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Random entries equal along the first, or last, dimension, with stride 0, and of sum zero."""
    axes = [k for k, extent in enumerate(tensor.shape) if extent > 1]
    if len(axes) < 2:
        return tensor
    first = tensor.numpy()[(slice(None),) * axes[axis] + (slice(1),)]
    backwards = first[(slice(None, None, -1),) * first.ndim]
    return torch.from_numpy(first - backwards).expand(tensor.shape)
