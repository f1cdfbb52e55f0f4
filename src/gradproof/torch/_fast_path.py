"""The ordinary gradcheck in few calls: passed, or not decided.

Most calls of gradcheck are about a right derivative of a plain function in double precision. Of
these `decide_quickly` asks what the engine asks, in 6 to 10 calls of F and about 11 backwards, and
knows two answers: "passed", of which the engine would say the same, and "not decided". Whatever is
wrong, unusual or unclear is not decided; the engine then begins at the beginning. So nothing here
explains, locates or excuses anything. `QuickCheck.bound` is the order of its tests;
`_fast_slopes.py` measures.
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
from gradproof._data.space import KEPT, Mask, Space, Values, are_equal
from gradproof._guard import keep_warnings, take_turn
from gradproof._guard.random import GLOBAL, RandomState
from gradproof._numdiff.probes import Kind, constant_cotangent, random_entries, unit_vector
from gradproof._numdiff.slopes import BLOCK
from gradproof._numdiff.steps import coordinate_scales
from gradproof.torch._call import backward_gradients
from gradproof.torch._captured import CONSTANTS, Captured
from gradproof.torch._compat import UndefinedGrad
from gradproof.torch._fast_slopes import (
    FINE,
    NUMPY,
    QUICK,
    UNIT,
    USUAL,
    Known,
    Rows,
    SlopeTest,
    require,
    vector_of,
)
from gradproof.torch._layouts import cotangent_layouts, in_layout
from gradproof.torch._memory import private_copy
from gradproof.torch._notes import among_ranks
from gradproof.torch._side_effects import grad_mark, saved_tensor_hooks
from gradproof.torch._state import ThreadState
from gradproof.torch._tensors import slot_like

Tensors = Sequence[torch.Tensor]
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
                bound = run(lambda: QuickCheck(*make(), seed).bound(undefined=undefined))
            is_unchanged = (
                ThreadState.now() == state
                and pytorch.same(pytorch.get(), drawn)
                and random.moved_generators() == ["PyTorch"]
            )
            return bound if is_unchanged else None
        except Exception:  # not decided; what the user's code raises it raises again in the engine
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


class QuickCheck:
    """F at a point, x, with the graph of its first run.

    Every method raises where something is wrong, unusual or unclear: NotDecidedError, or what the
    user's code raises.

    Args:
        fn, arguments: F, and its positional arguments.
        seed: of the probes.
    """

    def __init__(self, fn: Callable[..., Any], arguments: tuple[Any, ...], seed: int) -> None:
        self._fn, self._seed = fn, seed
        self._take_arguments(arguments)
        self._tensors = self._copy_leaves()
        self._run_first()
        domain = Space(tuple([slot_like("", t) for t in self._leaves]))
        self._domain, self._x = domain, vector_of(self._leaves)
        self._codomain = Space(tuple([slot_like("", y) for y in self._outputs]))
        n, m = domain.size, self._codomain.size
        require(n > 0 and m > 0)
        self._centre = vector_of(self._outputs).copy()
        draws = random_entries(seed, Kind.TANGENT, 0, n + m)
        self._scales = coordinate_scales(domain, self._x)
        self._u, self._v = draws[:n] * self._scales, draws[n:]
        # Rows: v to be differentiated by; v; one memory for all other cotangents, as an allocator
        # hands it out.
        self._probes = Rows(3, self._outputs)
        self._probes.write(slice(2), self._v)
        self._weights = [t.requires_grad_() for t in self._probes.tensors(0)]
        self._probe, self._lent = self._probes.tensors(1), self._probes.tensors(2)
        self._slopes = SlopeTest(
            self._outputs_at,
            self._leaves,
            self._outputs,
            self._x,
            self._centre,
            self._v,
            lambda cotangent: self._pull(self._lend(cotangent)),
        )

    def bound(self, *, undefined: bool) -> float:
        """The bound of a wrong entry, in parts of a typical row, where everything is right."""
        image = self._first_products()
        inputs, outputs, saved = self._run_again()
        copies = [t.clone() for t in saved]
        known = self._test_slopes(image)
        returned = self._test_second_gradient(inputs, outputs)
        require(all(map(torch.equal, saved, copies)))
        numbers = vector_of(returned, self._leaves).copy()
        del inputs, outputs, saved, copies  # of long vectors, memory
        columns = self._test_linearity(known.moves)
        self._test_small_columns(columns, known.bar, is_pushed=image is not None)
        if undefined:
            self._test_undefined()
        self._require_unchanged()
        require(are_equal(vector_of(returned, self._leaves), numbers))
        return bound_of_entry(known.bound, self._domain.size)

    # The function, and what is claimed.

    def _take_arguments(self, arguments: tuple[Any, ...]) -> None:
        """Find leaves in double precision, and copy other tensors.

        Nothing else that F reads may require grad or draw random numbers.
        """
        self._given, self._places = list(arguments), list[int]()
        self._leaves, self._private = list[torch.Tensor](), list[torch.Tensor]()
        for place, value in enumerate(arguments):
            if not isinstance(value, torch.Tensor):
                parts = value if type(value) is tuple else (value,)
                require(CONSTANTS.issuperset(map(type, parts)))
                continue
            require(type(value) is torch.Tensor and value.is_cpu and not value.__dict__)
            require(value.layout is torch.strided and not (value.is_conj() or value.is_neg()))
            if value.requires_grad:
                require(value.dtype in NUMPY and value.is_leaf and value.numel() <= MOST_ENTRIES)
                require(value.is_contiguous() and not value.storage_offset())
                require(not value._backward_hooks)  # which are part of the derivative
                self._places.append(place)
                self._leaves.append(value)
            else:
                self._given[place] = private_copy(value)
                self._private.append(self._given[place])
        held = Captured(self._fn, self._leaves)
        require(bool(self._leaves) and not (held.tensors or held.generators or among_ranks()))
        self._versions = [t._version for t in (*self._leaves, *self._private)]
        self._marks = [grad_mark(t) for t in self._leaves]

    def _copy_leaves(self) -> tuple[torch.Tensor, ...]:
        return tuple([t.detach().clone() for t in self._leaves])

    def _results(self, tensors: Tensors) -> Sequence[Any]:
        """Everything that F returns of these tensors."""
        for place, tensor in zip(self._places, tensors, strict=True):
            self._given[place] = tensor.requires_grad_()
        result = self._fn(*self._given)
        return result if isinstance(result, (tuple, list)) else (result,)

    def _outputs_at(self, tensors: Tensors) -> tuple[torch.Tensor, ...]:
        """The floating outputs of F, as many as at the point."""
        results = self._results(tensors)
        require(len(results) == self._count)
        return tuple([results[k] for k in self._floating])

    def _run_first(self) -> None:
        """Run F, and take its floating outputs, which must be ordinary tensors with a graph."""
        results = self._results(self._tensors)
        self._count = len(results)
        self._floating = [
            k for k, y in enumerate(results) if y.is_floating_point() or y.is_complex()
        ]
        self._outputs = tuple([results[k] for k in self._floating])
        for y in self._outputs:
            require(type(y) is torch.Tensor and y.dtype in NUMPY and y.layout is torch.strided)
            require(y.requires_grad and y.is_cpu and y.numel() <= MOST_ENTRIES)
        require([t.stride() for t in self._tensors] == [t.stride() for t in self._leaves])

    def _lend(self, cotangent: Values, layout: str = "") -> list[torch.Tensor]:
        """Tensors of a cotangent, in the memory of the last one or in a layout."""
        self._probes.write(2, cotangent)
        return [in_layout(t, layout) for t in self._lent] if layout else self._lent

    def _pull(self, cotangents: Tensors, roots: Tensors | None = None) -> Values:
        """J^T w, of the tensors of w."""
        roots = self._outputs if roots is None else roots
        found = backward_gradients(roots, self._tensors, cotangents)
        return np.array(vector_of(found, self._leaves))  # which may be memory of the cotangents

    def _first_products(self) -> Values | None:
        """Keep J^T v, of a backward that is made to be differentiated; return J u as `_push`."""
        wanted = (*self._tensors, *self._leaves)
        found = backward_gradients(self._outputs, wanted, self._weights, create_graph=True)
        made, own = found[: len(self._leaves)], found[len(self._leaves) :]
        require(all(g is None for g in own))  # F reads the user's own tensors, not what it is given
        self._is_unused = [g is None for g in made]
        require(not all(self._is_unused))
        self._gradient = vector_of(made, self._leaves).copy()
        return self._push(self._u, made)

    def _push(
        self, direction: Values, made: Sequence[torch.Tensor | None] | None = None
    ) -> Values | None:
        """J u, as the derivative of w -> (J^T w).u at v, which is linear in w.

        None where the double backward does not exist, or is wrong, which shows in
        v.(J u) = (J^T v).u. `made` is J^T v with its graph.
        """
        if self._v.size == 1:
            return np.atleast_1d(self._gradient @ direction / self._v)
        if made is None:
            made = backward_gradients(
                self._outputs, self._tensors, self._weights, create_graph=True
            )
        directions = Rows(1, self._leaves)
        directions.write(0, direction)
        pairs = zip(made, directions.tensors(0), strict=True)
        used = [(g, d) for g, d in pairs if g is not None and g.requires_grad]
        if not used:
            return None
        roots, along = zip(*used, strict=True)
        try:
            images = backward_gradients(roots, self._weights, along)
        except Exception:  # as of a backward that is differentiable once
            return None
        image = vector_of(images, self._outputs)
        by_forward, by_backward = self._v @ image, self._gradient @ direction
        size = np.abs(self._v) @ np.abs(image) + np.abs(self._gradient) @ np.abs(direction)
        is_transpose = abs(by_forward - by_backward) <= MODES_AGREE * UNIT * size
        return image if is_transpose else None

    def _run_again(self) -> tuple[Tensors, Tensors, list[torch.Tensor]]:
        """Inputs, outputs and saved tensors of F at the point once more, where it is the same."""
        saved: list[torch.Tensor] = []
        inputs = self._copy_leaves()
        with saved_tensor_hooks(saved):
            outputs = self._outputs_at(inputs)
        # A sum is finite only if all its terms are.
        require(math.isfinite(self._x.sum() + self._centre.sum()))
        require(are_equal(vector_of(outputs), self._centre))
        return inputs, outputs, saved

    # The tests.

    def _test_slopes(self, image: Values | None) -> Known:
        """F along u against J u: every row by two steps.

        Where some rows are not plainly smooth, or their terms cancel, the usual table follows; of
        many rows the fine one for those that this leaves. If J u is not known, sums of rows are
        tested along two tangents, since an error may be orthogonal to one.
        """
        if image is not None:
            tables = (QUICK, USUAL, FINE) if image.size > BLOCK else (QUICK, USUAL)
            known = self._slopes.test_rows(self._u, image, tables)
        else:
            other = random_entries(self._seed, Kind.TANGENT, 1, self._domain.size) * self._scales
            one, two = [
                self._slopes.test_sums(u, (QUICK, USUAL), self._seed) for u in (self._u, other)
            ]
            known = Known(max(one.bar, two.bar), max(one.bound, two.bound), one.moves | two.moves)
        require(math.isfinite(known.bar) and math.isfinite(known.bound))
        return known

    def _test_second_gradient(
        self, inputs: Tensors, outputs: Tensors
    ) -> Sequence[torch.Tensor | None]:
        """The gradient of v by another run, which is the same, and of the kind of its input.

        The same to the last bit; of a backward that is made to be differentiated up to rounding,
        since there may be a kernel for each.
        """
        found = backward_gradients(outputs, inputs, self._probe)
        for g, t, is_unused in zip(found, self._leaves, self._is_unused, strict=True):
            if g is None:
                require(is_unused)
                continue
            require(type(g) is torch.Tensor and g.is_cpu and g.layout is torch.strided)
            require(g.dtype is t.dtype and g.shape == t.shape)
        plain = vector_of(found, self._leaves)
        if not are_equal(plain, self._gradient):
            require(are_equal(self._pull(self._probe), plain))
            largest_terms([(1.0, plain), (-1.0, self._gradient)], self._domain)
        require(are_equal(vector_of(inputs), self._x))
        require(all(t.grad is None for t in inputs))
        return found

    def _test_linearity(self, moves: Mask) -> Values:
        """The backward is linear, whatever the sizes, zeros and memory layouts of a cotangent.

        What is claimed of special cotangents, one by one, adds up to what is claimed of two parts
        of their weighted sum, one much larger than usual and one much smaller, with rows of zeros
        and single ones. Of very many outputs, each product of which is dear, fewer are asked, as by
        the engine.

        Args:
            moves: outputs that move along u, (m,).

        Returns:
            The largest entry of each column that any of these cotangents shows, (n,).
        """
        m, seed, codomain = self._v.size, self._seed, self._codomain
        constant = constant_cotangent(codomain, seed)
        # One number for each output, with stride 0, as sum() hands it over.
        ones = [
            t.reshape(-1)[:1].clone().as_strided(t.shape, [0] * t.dim())
            for t in self._lend(constant)
        ]
        terms = [(2.0, self._gradient), (-1.0, self._pull(ones))]
        whole = 2.0 * self._v - constant

        def add(weight: float, cotangents: Tensors) -> None:
            nonlocal whole
            terms.append((weight, self._pull(cotangents)))
            whole += weight * vector_of(cotangents)

        if 1 < m <= KEPT:
            add(3.0, self._lend(-0.25 * constant))
        layouts = [each for each in cotangent_layouts(self._outputs) if each != "expanded"]
        if "transposed" in layouts[0]:  # an output has rows and columns
            for axis in (0, -1):  # as sum(dim) hands it over
                add(1.0, [_equal_along(t, axis) for t in self._probe])
        elif 1 < m <= KEPT:
            add(5.0, self._lend(cancelling_cotangent(codomain, seed)))
        # A random digit of v says whether an entry belongs to the large part.
        shares = split_shares(codomain, (2.0**10 * self._v).astype(np.int32) & 1)
        if m <= KEPT:
            # A single entry that moves something, of another sign than the largest of that part.
            at = seed % m
            at = at + int(moves[at:].argmax()) if moves[at:].any() else int(moves.argmax())
            large_part = shares * whole
            single = math.copysign(FULL_MANTISSA[seed % 2], large_part.max() + large_part.min())
            add(4.0 / _LARGE, self._lend(unit_vector(m, at, _LARGE * single)))
        large, small = _LARGE * FULL_MANTISSA[0], FULL_MANTISSA[1] / _LARGE
        last = layouts[-1] if len(layouts) > 1 else ""
        for factor, part, layout in ((large, shares, layouts[0]), (small, 1 - shares, last)):
            product = self._pull(self._lend(factor * part * whole, layout))
            terms.append((-1.0 / factor, product))
        columns = largest_terms(terms, self._domain)
        for layout in layouts[1:-1]:
            product = self._pull([in_layout(t, layout) for t in self._probe])
            largest_terms([(1.0, product), (-1.0, self._gradient)], self._domain)
        return columns

    def _test_small_columns(self, columns: Values, bar: float, *, is_pushed: bool) -> None:
        """Columns whose part of the slopes drowns in the error bars, without the others.

        Args:
            columns: the size of each, (n,).
            bar: of v.F along u.
            is_pushed: whether J u is known.
        """
        terms = columns * np.abs(self._u)
        is_small = RESOLUTION * terms <= bar
        is_zero = is_small & (terms == 0)
        if is_zero.any():
            self._slopes.require_stillness_along(np.where(is_zero, self._u, 0.0))
        is_small ^= is_zero
        m = self._v.size
        tables = (USUAL,) if m <= BLOCK else (QUICK, USUAL)
        for _ in range(_ROUNDS):
            if not is_small.any():
                return
            asked, u = is_small, np.where(is_small, self._u, 0.0)
            image = self._push(u) if is_pushed else None
            if image is None:
                known = self._slopes.test_sums(u, tables, self._seed)
                require(math.isfinite(known.bound))
            else:
                known = self._slopes.test_rows(u, image, tables)
            is_small = asked & (RESOLUTION * terms <= known.bar)
            if are_equal(is_small, asked):
                break
        # Of very many those that stay below the rounding of F are left, as by the engine.
        require(not is_small.any() or max(self._domain.size, m) > KEPT)

    def _test_undefined(self) -> None:
        """Undefined cotangents act like zeros: all of them, and those of some outputs only."""
        outputs, tensors, probe = self._outputs, self._tensors, self._probe
        absent = [UndefinedGrad()(y) for y in outputs]
        found = backward_gradients(absent, tensors, probe)
        require(not any(g is not None and g.any() for g in found))
        pairs = list(zip(outputs, absent, strict=True))
        for group in splits_in_two(len(outputs), self._seed):
            one = self._pull(probe, [pair[k in group] for k, pair in enumerate(pairs)])
            other = self._pull(probe, [pair[k not in group] for k, pair in enumerate(pairs)])
            terms = [(-1.0, self._gradient), (1.0, one), (1.0, other)]
            largest_terms(terms, self._domain)

    def _require_unchanged(self) -> None:
        """Nobody wrote into inputs, outputs, the cotangent, or `.grad`."""
        require(are_equal(vector_of(self._tensors), self._x))
        require(are_equal(vector_of(self._outputs), self._centre))
        require(are_equal(self._probes.flat()[1], self._v))
        require(self._versions == [t._version for t in (*self._leaves, *self._private)])
        require(all(t.grad is None for t in self._tensors))
        require(self._marks == [grad_mark(t) for t in self._leaves])


def largest_terms(terms: Sequence[Term], space: Space) -> Values:
    """The largest term of each coordinate in a weighted sum of gradients that should be zero, (n,).

    It must be zero, but for the rounding of each array, or a long part of one.
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
            require((off <= rounding).all() and not math.isinf(rounding[0]))
    return largest


def _equal_along(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Random entries equal along the first, or last, dimension, with stride 0, and of sum zero."""
    axes = [k for k, extent in enumerate(tensor.shape) if extent > 1]
    if len(axes) < 2:
        return tensor
    first = tensor.numpy()[(slice(None),) * axes[axis] + (slice(1),)]
    backwards = first[(slice(None, None, -1),) * first.ndim]
    return torch.from_numpy(first - backwards).expand(tensor.shape)
