"""The columns in which a few rows of a large Jacobian are wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gradproof._checks import _hunt
from gradproof._checks._ends import sharpened
from gradproof._checks._halved import wrong_one
from gradproof._checks._hunt import Hunt
from gradproof._checks._masked import Masked, masked
from gradproof._checks._patterns import Pattern, Probed, explained, moved, of_run
from gradproof._explain.combs import combed
from gradproof._explain.draws import LAST, MOST, Draws, pieces_by_draws, weights_of
from gradproof._explain.fitted import Fit, fitted
from gradproof._explain.localise import (
    Piece,
    between,
    columns_by_splitting,
    pieces_by_digits,
    scattered,
)
from gradproof._explain.runs import END, run_of
from gradproof._map import Unsupported
from gradproof._numerics import jacobian, measure
from gradproof._space import Array, dot, namespace, on_host

_SPLIT = 2  # rows whose many columns are told one by one
_FEW = 1 / 16  # part of the columns that misses a few wrong ones, and not many
_NOISY = 1 / 64  # bar, in parts of the whole, from which sums of many columns may be overlooked
_SPLITS = 24  # residuals, of which each takes two noisy evaluations, to tell several columns
_ALIKE = 3  # rows from which a run of wrong columns is thought of
_EARLY = 4  # residuals of weighed columns from which a run is thought of
_TRIED = (_EARLY, 6, *range(MOST, LAST + 1))  # after so many it is looked for
_CALLS, _CALLS_OF_FEW_BITS = 36, 12  # for one run of wrong columns
_AGREES = 1e-6
_NEARLY = 1e-4  # by how much a ratio of residuals may be off, however large they are


def columns_of(hunt: Hunt) -> list[int]:
    """Columns to measure for the rows of the hunt."""
    first = measure.along(hunt.map, hunt.settings, 0)
    like, size = hunt.map.point, hunt.map.domain.size
    at = namespace(like).asarray(hunt.rows)
    rows = masked(hunt.map, first, at, partial(_hunt.claimed, hunt))
    if hunt.gaps:  # what was found does not explain the rows: the rest is small
        rows = replace(rows, short=None, bar=rows.noise)
    hunt.masked = rows
    single, span = _told(hunt, rows, size)
    hunt.single |= {hunt.rows[k]: j for k, j in enumerate(single) if j is not None}
    columns = list(dict.fromkeys(j for j in single if j is not None))
    rest = [k for k, j in enumerate(single) if j is None]
    if rest and columns:
        still = _open(rows, rest, columns, like)
        _assign(hunt, rows, [k for k in rest if k not in still], columns)
        rest = still
    if not rest:
        return columns
    return columns + [j for j in _several(hunt, rows, rest, span) if j not in columns]


def _told(hunt: Hunt, rows: Masked, size: int) -> tuple[list[int | None], tuple[int, int]]:
    """The wrong column of every row that has only one, and where those of the others may lie."""
    if _noisy(hunt):
        return _by_draws(hunt, rows), (0, size)
    pieces = pieces_by_digits(rows.residual, rows.whole, size, hunt.map.point)
    single = [piece.column for piece in pieces]
    rest = [piece for piece in pieces if piece.column is None] or pieces
    return single, (min(piece.low for piece in rest), max(piece.high for piece in rest))


def _noisy(hunt: Hunt) -> bool:
    return hunt.map.resolution > measure.DOUBLE and hunt.map.domain.size <= measure.KEPT


def _by_draws(hunt: Hunt, rows: Masked) -> list[int | None]:
    """The same where residuals are noisy; a run of wrong columns that explains the rest, too.

    More draws tell the ends of a run that is seen more sharply.
    """
    like, every = hunt.map.point, range(len(hunt.rows))
    draws = Draws(rows.residual, rows.whole, like, Piece(0, like.shape[0]), on_host(rows.bar))
    fit: Fit | None = None
    while True:
        draws.ask()
        number = len(draws.found)
        rest = [k for k in every if draws.column(k) is None]
        if len(rest) >= _ALIKE and number in _TRIED:
            fit = _fitted(hunt, rows, draws, rest)
        if _enough(draws, fit, _EARLY if len(rest) >= _ALIKE else 1):
            break
    single = {k: draws.column(k) for k in every}
    if fit is None or not fit.believed:
        pass
    elif fit.run.high - fit.run.low == 1:
        single |= dict.fromkeys(rest, fit.run.low)
    else:
        hunt.pattern = _of_fit(hunt, rows, rest, fit)
    return [single[k] for k in every]


def _enough(draws: Draws, fit: Fit | None, least: int) -> bool:
    """Whether more draws tell no more of a run, or of single columns where there is none."""
    number = len(draws.found)
    if fit is None:
        return number >= MOST or (number >= least and not draws.worthwhile())
    if fit.believed:
        return fit.sure or number >= MOST
    return number >= LAST


def _fitted(hunt: Hunt, rows: Masked, draws: Draws, rest: list[int]) -> Fit | None:
    """A run, of not nearly all columns, that explains those rows, or every k-th column."""
    part, size = rows.of(rest), hunt.map.domain.size
    lines, _ = _lines(hunt, part, rest)
    if not lines:
        return None
    terms = np.stack([on_host(line * part.first.direction) for line in lines])
    found = [part.whole, *(residual.of(rest) for residual in draws.found)]
    drawn = (on_host(weights_of(hunt.map.point, k)) for k in range(len(draws.found)))
    weights = [np.ones(size), *drawn]
    fit = fitted(found, weights, terms)
    if fit is not None:
        inside = fit.run.low >= size // END or fit.run.high <= size - size // END
        return fit if inside else None
    comb = combed(found, weights, terms)
    if comb is None:
        return None
    return Fit(comb, (comb.low, comb.low), (comb.high, comb.high), believed=True)


def _of_fit(hunt: Hunt, rows: Masked, rest: list[int], fit: Fit) -> Pattern | None:
    part = rows.of(rest)
    lines, claimed = _lines(hunt, part, rest)
    probed = Probed(hunt.map, part.first.direction, part, lines if claimed else [])
    factor = fit.run.factor or 0.0
    if not fit.sure and factor != -1.0:  # of a run of zeros no claim tells a column
        sharper = sharpened(hunt, fit, factor if claimed else factor / (1 + factor))
        if sharper is None:
            return None
        fit = sharper
    return of_run(fit.run, probed, true=not claimed, sure=fit.sure)


def _open(rows: Masked, rest: list[int], columns: list[int], like: Array) -> list[int]:
    """The rows that are wrong in other columns than those that were found in others."""
    weights = namespace(like).zeros(like.shape[0]) + 1.0
    weights[columns] = 0.0
    found = rows.of(rest).residual(weights)
    return [k for place, k in enumerate(rest) if not found.zero(place)]


def _assign(hunt: Hunt, rows: Masked, known: list[int], columns: list[int]) -> None:
    """Of rows that are wrong in no other columns, the one that each is wrong in, if it is one."""
    if not known:
        return
    part = rows.of(known)
    weights = scattered(hunt.map.point, 1)
    found, expected = part.residual(weights), [float(weights[j]) for j in columns]
    for place, k in enumerate(known):
        total = float(part.whole.value[place])
        slack = _NEARLY + 3 * float(part.whole.threshold[place]) / abs(total)
        ratio = float(found.value[place]) / total
        near = [
            j for j, weight in zip(columns, expected, strict=True) if abs(ratio - weight) <= slack
        ]
        if len(near) == 1:
            hunt.single[hunt.rows[k]] = near[0]


def _several(hunt: Hunt, rows: Masked, rest: list[int], span: tuple[int, int]) -> list[int]:
    """The same of those rows, by their positions, that are wrong in several columns."""
    part, like = rows.of(rest), hunt.map.point
    span = _held(part, span, like)
    lines, claimed = _lines(hunt, part, rest)
    probed = Probed(hunt.map, part.first.direction, part, lines if claimed else [])
    if hunt.pattern is None and not _few(part, span, like):
        hunt.pattern = explained(probed) or _run(hunt, probed, lines, span) or moved(probed)
    if hunt.pattern is not None:
        hunt.crowded, hunt.crowd = hunt.crowded + len(rest), rest[0]
        found = list(hunt.pattern.columns)
        silent = any(cause.name == "zero" for cause in hunt.pattern.causes)
        return found if found and not silent else [wrong_one(part, like, found)]
    split = list(range(len(rest)))[:_SPLIT]
    some = part.of(split)
    tell = (pieces_by_draws, _SPLITS) if _noisy(hunt) else (pieces_by_digits,)
    per_row = columns_by_splitting(some.residual, some.whole, like.shape[0], like, split, *tell)
    columns = list(dict.fromkeys(j for row in per_row if row is not None for j in row))
    crowded = [k for k, row in zip(split, per_row, strict=True) if row is None]
    hunt.crowded += len(crowded)
    for k in crowded[:1]:
        spread = _representatives(hunt, rest[k], probed.direction)
        columns += [*spread, wrong_one(part.of([k]), like, spread)]
    return columns


def _held(part: Masked, span: tuple[int, int], like: Array) -> tuple[int, int]:
    """The span, if all that is wrong lies there; else all columns."""
    everything = 0, like.shape[0]
    if span == everything:
        return span
    return span if (part.whole - part.residual(between(*span, like))).nothing else everything


def _few(part: Masked, span: tuple[int, int], like: Array) -> bool:
    """Whether only a few columns are wrong: some of all, taken at random, hold none.

    Of 64 wrong columns two draws miss all once in 30 times, of 3 both hit one as rarely. Where
    bars are wide the sum of many may be too small to be seen, and it takes two that miss.
    """
    xp = namespace(like)
    draw = scattered(like)
    draw[: span[0]] = 1.0
    draw[span[1] :] = 1.0
    noisy = bool((abs(part.whole.value) * _NOISY < part.whole.threshold).any())
    misses = hits = 0
    while misses < 1 + noisy and hits < 2:
        low = (misses + hits) * _FEW
        some = xp.astype((draw >= low) & (draw < low + _FEW), xp.float64)
        if part.residual(some).nothing:
            misses += 1
        else:
            hits += 1
    return hits < 2


def _run(hunt: Hunt, probed: Probed, lines: list[Array], span: tuple[int, int]) -> Pattern | None:
    """All that is wrong lies between two columns."""
    part, like = probed.rows.sharp(), hunt.map.point
    terms = np.stack([on_host(line * probed.direction) for line in lines]) if lines else None
    calls = _CALLS if hunt.map.resolution < measure.DOUBLE else _CALLS_OF_FEW_BITS
    most = calls if part.short is not None else calls // 2
    found = run_of(part.residual, part.whole, terms, like, span, most)
    return None if found is None else of_run(found, probed, true=not probed.lines)


def _lines(hunt: Hunt, part: Masked, rest: list[int]) -> tuple[list[Array], bool]:
    """The rows, each as long as the input, and whether as claimed or as they should be.

    A mode without rows asks the backward, which may be right or make the same mistake. None of an
    input that is too long.
    """
    if hunt.map.domain.size > measure.KEPT:
        return [], True
    if hunt.claimed_rows:
        return [hunt.claimed_rows[k].values for k in rest], True
    try:
        lines = [_line(hunt, hunt.rows[k]) for k in rest]
    except Unsupported:
        return [], True
    for claimed in (True, False):
        if _near(lines, part, part.total[0 if claimed else 1]):
            return lines, claimed
    return [], True


def _line(hunt: Hunt, i: int) -> Array:
    """A row as the backward claims it, asked once."""
    if i not in hunt.lines:
        hunt.lines[i] = hunt.map.vjp(jacobian.unit(hunt.map.point, i, count=hunt.map.codomain.size))
    return hunt.lines[i]


def _near(lines: list[Array], part: Masked, total: Array) -> bool:
    sums = [dot(line, part.first.direction) for line in lines]
    gap = np.abs(np.asarray(sums) - on_host(total))
    return bool((gap <= 4 * on_host(part.noise) + _AGREES * np.abs(on_host(total))).all())


def _representatives(hunt: Hunt, k: int, u: Array) -> list[int]:
    """Columns of a row that is wrong nearly everywhere: its largest claimed, then a spread."""
    n = hunt.map.domain.size
    spread = [n // 7, n // 2, (6 * n) // 7]
    if not hunt.claimed_rows:
        return spread
    return [*hunt.claimed_rows[k].strongest(u), *spread]
