"""Rows of a large Jacobian that are wrong in many columns: what a few probes say of all of them.

A guess is believed where it predicts the claimed derivative of every row looked at, along
directions that were not used to make it. Each costs a few evaluations, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.space import Array, namespace, on_host
from gradproof._explain import words as sets
from gradproof._explain.diagnose import cause
from gradproof._locate.hypotheses import Run
from gradproof._locate.residuals import Masked
from gradproof._maps.contract import DifferentiableMap
from gradproof._measure.statistics import common_ratio

_MASKS = 2  # halves of a direction along which a factor must be the same
_NEAR = 1e-6  # of the derivative
_RUNS = 3  # of columns of zeros, that are looked at one by one

Values = np.ndarray[Any, np.dtype[np.float64]]
Along = Callable[[Array], Array]  # direction -> values in the rows looked at


@dataclass(frozen=True)
class Probed:
    """Rows under suspicion.

    Attributes:
        map: whose rows they are.
        direction: the tangent along which they are wrong.
        rows: claimed and measured along any direction.
        lines: the claimed rows; empty where the mode has none.
    """

    map: DifferentiableMap
    direction: Array
    rows: Masked
    lines: Sequence[Array]


@dataclass(frozen=True)
class Pattern:
    """What explains the rows.

    Attributes:
        causes: as far as there are any.
        columns: worth measuring.
        words: for the wrong columns; "" where all are wrong, or it is not known.
        within: columns outside of which nothing is wrong, where no more is known of them.
    """

    causes: tuple[Cause, ...] = ()
    columns: tuple[int, ...] = ()
    words: str = ""
    within: tuple[int, int] | None = None


def explained(probed: Probed) -> Pattern | None:
    """A pattern that fits every row; None where none of the usual ones does."""
    return _scaled(probed) or _unclaimed(probed)


def _scaled(probed: Probed) -> Pattern | None:
    """Every row is multiplied by one number, in all of its columns."""
    xp = namespace(probed.direction)
    index = xp.arange(probed.direction.shape[0])
    claimed, measured = [probed.rows.total[0]], [probed.rows.total[1]]
    for k in range(_MASKS):
        part = xp.where((index * (2 * k + 3)) % (k + 5) < (k + 5) // 2, probed.direction, 0.0)
        claimed.append(probed.rows.claimed(part))
        measured.append(probed.rows.measured(part))
        if k == 0 and _ratio(claimed, measured, probed.rows.noise) is None:
            return None
    found = _ratio(claimed, measured, probed.rows.noise)
    if found is None:
        return None
    ratio, bar = found
    number = probed.rows.noise.shape[0]
    evidence = f"ratio {ratio:.9g} +- {bar:.1g} in {number} rows along {_MASKS + 1} directions"
    return Pattern((named(ratio, evidence),), _largest(probed))


def named(ratio: float, evidence: str) -> Cause:
    """The cause that a common ratio of claimed to measured is."""
    if abs(ratio) <= _NEAR:
        return cause("zero", "the wrong entries are claimed to be 0", evidence)
    if abs(ratio + 1) <= _NEAR:
        return cause("sign", "the sign of the wrong entries is flipped", evidence)
    return cause("factor", f"the wrong entries are multiplied by {ratio:.6g}", evidence)


def _ratio(
    claimed: Sequence[Array], measured: Sequence[Array], noise: Array
) -> tuple[float, float] | None:
    got, exact = (np.concatenate([on_host(one) for one in part]) for part in (claimed, measured))
    allowed = np.tile(on_host(noise), len(claimed)) + _NEAR * np.abs(exact)
    return common_ratio(got, exact, allowed)


def _largest(probed: Probed) -> tuple[int, ...]:
    """The columns with the largest claims of the first row."""
    if not probed.lines:
        return ()
    xp = namespace(probed.direction)
    order = xp.argsort(xp.abs(probed.lines[0] * probed.direction))
    return tuple(on_host(order[-2:]).tolist())


def _unclaimed(probed: Probed) -> Pattern | None:
    """What is wrong lies in columns in which nothing is claimed at all."""
    if not probed.lines:
        return None
    xp = namespace(probed.direction)
    empty = probed.lines[0] == 0
    for line in probed.lines[1:]:
        empty = empty & (line == 0)
    number = int(xp.sum(xp.astype(empty, xp.int64)))
    if not 0 < number <= probed.direction.shape[0] // 2:
        return None
    missing = probed.rows.measured(xp.where(empty, probed.direction, 0.0))
    gap = probed.rows.total[0] - probed.rows.total[1]
    if not _same(probed, gap, -missing):
        return None
    mask = on_host(empty)
    at = np.nonzero(mask)[0]
    found = cause("zero", "the wrong entries are claimed to be 0", f"{number:,} columns of zeros")
    words = sets.described(mask, probed.map.domain) or _without_right(mask, probed)
    return Pattern((found,), (int(at[0]), int(at[-1])), words)


def _without_right(mask: sets.Mask, probed: Probed) -> str:
    """Words for columns of zeros of which those in one or two of a few runs should be zero."""
    edges = np.flatnonzero(np.diff(np.r_[False, mask, False].astype(np.int8)))
    xp = namespace(probed.direction)
    runs = edges.reshape(-1, 2)
    if not 1 < len(runs) <= _RUNS:
        return ""
    for low, high in runs:
        part = xp.zeros_like(probed.direction)
        part[int(low) : int(high)] = probed.direction[int(low) : int(high)]
        if bool(xp.all(xp.abs(probed.rows.measured(part)) <= probed.rows.noise)):
            mask[low:high] = False
    return sets.described(mask, probed.map.domain)


def _same(probed: Probed, left: Array, right: Array) -> bool:
    xp = namespace(left)
    allowed = 4 * probed.rows.noise + _NEAR * xp.maximum(xp.abs(left), xp.abs(right))
    return bool(xp.all(xp.abs(left - right) <= allowed))


def moved(probed: Probed) -> Pattern | None:
    """The gradient is right but reordered: claimed J u is then J u', with u reordered back."""
    for name, text, back in _orders(probed.map):
        if _same(probed, probed.rows.total[0], probed.rows.measured(back(probed.direction))):
            number = probed.rows.noise.shape[0]
            found = cause(name, text, f"so reordered, the direction gives what {number} rows claim")
            return Pattern((found,), _largest(probed))
    return None


Change = Callable[[Array, tuple[int, ...]], Array]  # an array (*shape, parts) and its shape


def _orders(map_: DifferentiableMap) -> Iterator[tuple[str, str, Along]]:
    """Reorderings of every input's gradient, and what each does to a direction."""

    def each(change: Change) -> Along:
        def back(u: Array) -> Array:
            xp = namespace(u)
            pieces = []
            for position, slot in enumerate(map_.domain.slots):
                piece = u[map_.domain.span(position)]
                shaped = xp.reshape(piece, (*slot.shape, len(slot.parts)))
                pieces.append(xp.reshape(change(shaped, slot.shape), (-1,)))
            return xp.concat(pieces)

        return back

    yield "reversed", "the gradient is reversed", each(_reversed)
    for k in (1, -1):
        yield "rolled", f"the gradient is rolled by {k}", each(_rolled(k, None))
    if any(len(slot.shape) >= 2 for slot in map_.domain.slots):
        yield "transposed", "the gradient is transposed", each(_transposed)
        for axis in (0, 1):
            for k in (1, -1):
                text = f"the gradient is rolled by {k} along axis {axis}"
                yield "rolled", text, each(_rolled(k, axis))


def _rolled(k: int, axis: int | None) -> Change:
    def change(array: Array, shape: tuple[int, ...]) -> Array:
        xp = namespace(array)
        if axis is None:
            return xp.roll(xp.reshape(array, (-1, array.shape[-1])), -k, axis=0)
        return xp.roll(array, -k, axis=axis) if axis < len(shape) else array

    return change


def _reversed(array: Array, shape: tuple[int, ...]) -> Array:  # noqa: ARG001  # as the others
    xp = namespace(array)
    return xp.flip(xp.reshape(array, (-1, array.shape[-1])), axis=0)


def _transposed(array: Array, shape: tuple[int, ...]) -> Array:
    xp = namespace(array)
    if len(shape) != 2:
        return array
    turned = xp.reshape(array, (shape[1], shape[0], array.shape[-1]))
    return xp.permute_dims(turned, (1, 0, 2))


def of_run(run: Run, probed: Probed, *, true: bool, sure: bool = True) -> Pattern | None:
    """A run of wrong columns; `true`: it was found from what the rows should be, not claim to be.

    Unless it is `sure` the run may begin later and end earlier.

    The residual is (c - 1) times what should be there, which is (c - 1) / c times what is claimed.
    """
    mask = np.zeros(probed.direction.shape[0], dtype=bool)
    mask[run.low : run.high : run.step] = True
    words = sets.described(mask, probed.map.domain)
    columns = (run.within,)
    nothing = not true and run.factor == 1  # all that is claimed there is too much: no c
    if run.factor is None or nothing:
        if mask.all() or not words:
            return None
        return Pattern((), columns, f"only inside {words}", (run.low, run.high))
    ratio = 1 + run.factor if true else 1 / (1 - run.factor)
    number = probed.rows.noise.shape[0]
    evidence = f"ratio {ratio:.9g} in {number} rows, {int(mask.sum()):,} columns"
    return Pattern((named(ratio, evidence),), columns, words if sure else f"only inside {words}")
