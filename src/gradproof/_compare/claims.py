"""The Jacobian that a mode of differentiation claims: products, rows, columns and the matrix."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from gradproof._data.formats import SINGLE
from gradproof._data.space import Values, are_equal
from gradproof._maps.contract import DifferentiableMap, Mode, Unsupported
from gradproof._maps.users_code import UsersError, users_errors
from gradproof._measurements import Measurements
from gradproof._numdiff.probes import unit_vector

FEW_OUTPUTS = 16  # each is a cotangent of its own where J u cannot be had at once
MOST_ENTRIES = 1 << 22  # of a Jacobian that is claimed as a whole
MODES_AGREE = 2.0**10  # roundings that <v, J u> and <J^T v, u> may differ by


class Claim:
    """What a framework says of the Jacobian of a map, by reverse or by forward mode.

    By reverse mode J u comes from differentiating v -> (J^T v).u where the backward can be
    differentiated. It is believed only while v.(J u) = (J^T v).u holds against the plain backward:
    a double backward may be wrong where the backward is right, and the other way round.

    Attributes:
        map: whose Jacobian it is.
        mode: "backward" or "forward".
        v: the cotangent at which the backward is differentiated, (m,).
        unit: unit round-off in which it is computed.
        gradient: J^T v as claimed by the backward, (n,); None by forward mode.

    Args:
        measurements: of the map, from which the products with its probes are taken.
        is_transpose: whether that is known to hold, as of the same rule in other arithmetic.
    """

    def __init__(
        self, measurements: Measurements, mode: Mode, unit: float, *, is_transpose: bool = False
    ) -> None:
        self.map, self.mode, self.v = measurements.map, mode, measurements.cotangent
        self.unit, self._measurements = unit, measurements
        # In 16 bits and fewer a wrong double backward may agree with the backward up to rounding.
        self._transposable, self._is_transpose = unit < SINGLE, is_transpose
        self.gradient = measurements.gradient if mode == "backward" else None
        self._rows: dict[int, Values] = {}

    def claim_of(self, map_: DifferentiableMap, unit: float) -> Claim:
        """What the same mode claims of the same function in arithmetic of round-off `unit`."""
        measurements = Measurements(map_, self._measurements.settings)
        known = self._transposable
        return Claim(measurements, self.mode, max(unit, self.unit), is_transpose=known)

    def pull(self, v: Values) -> Values:
        """J^T v, (n,)."""
        if self.gradient is not None and are_equal(v, self.v):
            return self.gradient
        return np.asarray(self.map.vjp(v))

    def push(self, u: Values) -> Values | None:
        """J u, (m,); None where only products with cotangents can be had.

        Runs that are rounded may take J u from the double backward where the function itself has
        forward mode: a backward that cannot be differentiated leaves their rows.
        """
        if self.mode == "forward":
            return (
                self._push_by_transposition(u) if self._is_transpose else self._claimed_tangent(u)
            )
        if self.v.size == 1:
            assert self.gradient is not None
            return np.atleast_1d(self.gradient @ u / self.v)
        if self._transposable and (found := self._push_by_transposition(u)) is not None:
            return found
        if self.map.codomain.size > FEW_OUTPUTS:
            return None
        used = u != 0  # 0 times an infinite entry is no part of the row
        return np.asarray(self.rows[:, used] @ u[used])

    def _claimed_tangent(self, u: Values) -> Values:
        """J u by forward mode, or by transposition of the backward."""
        known, is_known = self._measurements, are_equal(u, self._measurements.tangent)
        if self.mode == "forward":
            return known.forward.product if is_known else np.asarray(self.map.jvp(u))
        products = known.transposed_products if is_known else self.map.transposed_vjp(u, self.v)
        return np.asarray(products[0])

    def _push_by_transposition(self, u: Values) -> Values | None:
        """J u as the derivative of v -> (J^T v).u; None where that is not its transpose."""
        try:
            with users_errors():
                found = self._claimed_tangent(u)
        except (Unsupported, UsersError):
            self._transposable = False
            return None
        if self._is_transpose:
            return found
        assert self.gradient is not None
        moved = u != 0
        total, own = float(self.v @ found), float(self.gradient[moved] @ u[moved])
        size = float(np.abs(self.v) @ np.abs(found))
        size += float(np.abs(self.gradient[moved]) @ np.abs(u[moved]))
        off = abs(total - own)
        agrees = off <= max(self.unit, 2.0**-53) * MODES_AGREE * size < math.inf
        if not agrees and (math.isfinite(total) or math.isfinite(own)):
            self._transposable = False
            return None
        return np.asarray(found)

    @functools.cached_property
    def rows(self) -> Values:
        """The Jacobian from one cotangent per output, (m, n)."""
        return np.stack([self.row(i) for i in range(self.map.codomain.size)])

    def row(self, i: int) -> Values:
        """The gradient of output i, (n,), from a cotangent for it."""
        if i not in self._rows:
            self._rows[i] = self.pull(unit_vector(self.map.codomain.size, i))
        return self._rows[i]

    @property
    def _has_columns(self) -> bool:
        """Whether J u is to be had of any u, whatever the number of outputs."""
        return self.mode == "forward" or self._transposable

    def matrix(self) -> Values:
        """The claimed Jacobian, (m, n), by rows or columns, whichever are fewer."""
        inputs = self.map.domain.size
        if self._has_columns and (self.mode == "forward" or inputs < self.map.codomain.size):
            columns = [self.push(unit_vector(inputs, j)) for j in range(inputs)]
            if self._has_columns:
                return np.stack([column for column in columns if column is not None], axis=1)
        return self.rows

    def row_products(self, i: int) -> Callable[[Values], float]:
        """The function u -> (J u)_i, from J u while that is to be had, else from the row."""

        def product(u: Values) -> float:
            column = self.push(u) if self._has_columns else None
            used = u != 0
            return float(self.row(i)[used] @ u[used] if column is None else column[i])

        return product
