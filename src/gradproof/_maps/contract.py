"""The contract between a framework and everything that judges derivatives.

A map is the function under test at one point, in flat real coordinates. Adapters implement it;
checks, numerics and the engine know nothing else of a framework. Two members must be there, `value`
and `vjp`; all others are optional and raise `Unsupported` where a framework lacks them. A counter
keeps runs of the user's code within the budget.
"""

from __future__ import annotations

import abc
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import numpy as np

from gradproof._data.held import HeldEntries
from gradproof._data.space import Array, Space
from gradproof.errors import UsageError

Mode = Literal["backward", "forward"]


class Unsupported(Exception):
    """A map lacks a capability; the check is skipped and shows the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(Unsupported):
    """The function raised because it does not take what it was handed, which is no fault."""


class Raised(Unsupported):
    """A rule for the derivative exists, and raised an exception.

    A check of that derivative fails. One that compares derivatives with each other is skipped.
    """


class OtherOutputs(Unsupported):
    """The same function in double precision, or a reference, returns outputs of other shapes."""


class OutputChangedError(UsageError):
    """The function returned other outputs than at the point: in number, shape or dtype."""


class BudgetSpent(BaseException):
    """The calls, or the seconds, that a run may use are used up.

    It is no Exception, so that no check takes it for one that the user's code raised.
    """


class CallCounter(Counter[str]):
    """Runs by kind: "function", "vjp" and "jvp". Maps of one function share a counter.

    A run by forward mode is a "jvp", and of frameworks that run the function for it a "function"
    as well.
    """

    _left = math.inf  # runs of all kinds
    _until = math.inf  # by `monotonic`

    def limit(self, budget: int, seconds: float | None) -> None:
        """From now on keep to so many further runs, of any kind, and to so much wall time."""
        self._budget = self._left = budget
        self._seconds = math.inf if seconds is None else seconds
        self._until = monotonic() + self._seconds

    def add(self, kind: str, times: int = 1) -> None:
        """Count a run that is about to begin.

        Raises:
            BudgetSpent: it may not; it is not counted then.
        """
        if times > self._left:
            raise BudgetSpent(f"the budget of {self._budget:,} calls is spent; raise budget=")
        if self._until < math.inf and monotonic() >= self._until:
            raise BudgetSpent(
                f"the budget of {self._seconds:g} seconds is spent; raise budget_seconds="
            )
        self._left -= times
        self[kind] += times


@dataclass(frozen=True)
class Trait:
    """A property of a gradient that is not a number: `claimed` should equal `expected`."""

    slot: int
    what: str  # "dtype", "shape", "device", "layout", "sparse_dim", "dense_dim"
    claimed: str
    expected: str


@dataclass(frozen=True)
class Transform:
    """An AD transform, which claims the same derivative another way: compiled, checkpointed, ..."""

    name: str  # one of `gradproof._data.checks.TRANSFORMS`
    what: str  # it is called by the framework's users
    forward: bool = False  # it computes J u; else J^T v


class DifferentiableMap(abc.ABC):
    """A function R^n -> R^m at a point, with the derivative that a framework claims for it.

    Attributes:
        domain: the differentiable inputs, size n.
        codomain: the floating outputs, size m. A slot marked `detached` claims derivative zero.
        point: vector of size n.
        resolution: unit round-off of the dtype the function really computes in.
        derived: whether it is a derivative of another map. That it does not vary is then no sign
            of a badly chosen point: the second derivative of a linear function is zero.
        held: infinite entries of the inputs, which stay as they are; None where there are none.
        counts: runs of the user's "function", of its backward, "vjp", and of forward mode, "jvp",
            so far.

    Every vector is one-dimensional and float64. No method writes into its argument or into the
    user's arrays, and none draws from a global random state.
    """

    domain: Space
    codomain: Space
    point: Array
    resolution: float
    derived: bool = False
    held: HeldEntries | None = None
    counts: CallCounter

    def keep_limits(self, domain: Space) -> None:
        """Take a domain that differs by its limits: gradients are zero where it is not moved."""
        self.domain = domain

    @property
    def notes(self) -> Sequence[str]:
        """What the report says beside the derivatives."""
        return ()

    def close(self) -> None:  # noqa: B027  # a default
        """Put back what the map changed outside itself, if anything."""

    @property
    def given_point(self) -> Array:
        """The point as the user gave it: with infinite entries, which `point` has as zeros."""
        return self.point if self.held is None else self.held.values

    @abc.abstractmethod
    def value(self, x: Array) -> Array:
        """F(x), size m; no derivative involved. Raises what the user's function raises."""

    @abc.abstractmethod
    def vjp(self, v: Array) -> Array:
        """Claimed J^T v at the point, size n."""

    def kept_value(self) -> Array:
        """F at the point, as the call returned it to which `vjp` belongs, where that is kept."""
        return self.value(self.point)

    def jvp(self, u: Array) -> Array:
        """Claimed J u at the point by forward mode, size m."""
        raise Unsupported("no forward mode")

    def transposed_vjp(self, u: Array, v: Array) -> tuple[Array, Array]:
        """(J u, J^T v), both from reverse mode: J u is the derivative of v -> (J^T v).u.

        It sees every row of the Jacobian in one probe, where one VJP sees only a projection. It
        exists where the backward is itself differentiable in its cotangent.
        """
        raise Unsupported("the backward is not differentiable in its cotangent")

    def batchings(self) -> tuple[str, ...]:
        """The framework's ways to batch a backward, under the names that its users know."""
        return ("vmap",)

    def vjp_batch(self, vs: Array, batching: str) -> Array:
        """J^T v for every row v of `vs` (k, m) in one vectorised call of that way, (k, n)."""
        raise Unsupported("no batched backward")

    def jvp_batch(self, us: Array) -> Array:
        """J u for every row u of `us` (k, n) in one vectorised call, (k, m)."""
        raise Unsupported("no batched forward mode")

    def products(self, probes: Array, *, forward: bool) -> Array:
        """J^T v, or J u, for every row of `probes`, as one call for each would claim it."""
        ask = self.jvp if forward else self.vjp
        return np.stack([np.asarray(ask(probe), float) for probe in probes])

    def vjp_undefined(self, v: Array, missing: frozenset[int]) -> Array:
        """J^T v where the cotangents of the output slots `missing` are undefined, not zero."""
        raise Unsupported("no undefined cotangents")

    def jvp_undefined(self, u: Array, missing: frozenset[int]) -> Array:
        """J u where the input slots `missing` carry no tangent at all."""
        raise Unsupported("no undefined tangents")

    def vjp_wrt(self, v: Array, slots: frozenset[int]) -> Array:
        """J^T v of a run in which only the input slots `slots` need a gradient; zero elsewhere.

        Raises Refused where the function does not run then, as one that differentiates inside.
        """
        raise Unsupported("inputs are not marked as differentiable")

    def layouts(self) -> tuple[str, ...]:
        """Memory layouts in which a cotangent is worth handing over. Empty: none.

        Each is a name, or several joined by "+" that hold at once: that one backward tries them
        all. `vjp_layout` takes the single names as well.
        """
        return ()

    def vjp_layout(self, v: Array, layout: str) -> Array:
        """J^T v with v handed over in a layout; "expanded" has stride 0 along equal entries."""
        raise Unsupported("arrays of this framework have no memory layout")

    def input_layouts(self) -> tuple[str, ...]:
        """Memory layouts, other than their own, that `map_in_layout` takes."""
        return ()

    def map_in_layout(self, layout: str) -> DifferentiableMap:
        """The same function at the same point, its inputs in another memory layout.

        Raises what the function raises where it does not take them.
        """
        raise Unsupported("arrays of this framework have no memory layout")

    def memory_dependence(self) -> str:
        """How the function goes by where in memory its inputs lie, as `as_strided` does, or ""."""
        return ""

    def gradient_traits(self, v: Array) -> Sequence[Trait]:
        """Properties of each gradient beside its values; only those that differ from expected."""
        raise Unsupported("gradients have no traits to compare")

    def outside_domain(self, v: Array) -> Sequence[tuple[int, tuple[int, ...], float]]:
        """Non-zero gradients of entries outside a domain that covers only some entries.

        Each as (input slot, multi-index, value).
        """
        raise Unsupported("every entry of every input is in the domain")

    def side_effects(self, v: Array) -> Sequence[tuple[str, str]]:
        """What a run of the function and its backward changed beside its results.

        Each as (kind, sentence), kind being "cotangent", "input", "saved", "grad", "gradient" and
        "output" for what an earlier backward or call had returned, "primal" for another value than
        the function's beside a derivative, "random" for a random state that was set, and "drawn"
        for one that was only drawn from: a fault where the gradient depends on it.
        """
        raise Unsupported("side effects are not observed")

    def map_at(self, x: Array) -> DifferentiableMap:
        """The same function at another point."""
        raise Unsupported("the function cannot be taken to another point")

    def products_in_reused_arrays(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        """(J^T v, F(x), J(x)^T v), with x written into the very arrays that held the point.

        What a function keeps by the identity of an array, or by its address, is then of the
        point. The first is None where it is the kept call's.
        """
        raise Unsupported("arrays of this framework are not written into")

    def products_of_overtaken_call(self, x: Array, v: Array) -> tuple[Array | None, Array, Array]:
        """The same of a call at the point and one at x, both made before either's backward.

        What the function writes into arrays of its own, as buffers of a module, stays in between.
        """
        raise Unsupported("the function writes into no array of its own")

    def carried_arrays(self) -> tuple[str, ...]:
        """Names of arrays of its own that the function writes, where its next value is another."""
        return ()

    def map_in_double(self, fn: Callable[..., Any] | None = None) -> DifferentiableMap:
        """The same function, or `fn` in its place, at the same point, on double precision arrays.

        Every array of the arguments is converted, which is exact. `fn` is a function of the same
        framework; where derivatives are written by hand, what `gradproof.by_hand` makes. Raises
        Unsupported where the function does not run on such arrays.
        """
        raise Unsupported("the function cannot be run in double precision")

    def map_without_casts(self) -> DifferentiableMap | None:
        """The same function of doubles, which stay doubles where it casts them to fewer bits.

        None where it casts none, or that is not known.
        """
        return None

    @property
    def cast_unit(self) -> float:
        """Unit round-off of the coarsest format that a function of doubles casts these to.

        0.0 where it casts them to none, or that is not known.
        """
        return 0.0

    def rounded_map(self, unit: float, tiny: float, seed: int) -> DifferentiableMap:
        """The same function in stochastic arithmetic of fewer bits, backward included.

        Every operation is rounded up or down at random, to one of its two neighbours in the
        arithmetic of unit round-off `unit` and smallest positive number `tiny`; a number of that
        arithmetic stays as it is. Different seeds draw differently.
        """
        raise Unsupported("operations cannot be rounded one by one")

    def derivative(self, v: Array) -> DifferentiableMap:
        """The map (x, v) -> J(x)^T v at the point and `v`."""
        raise Unsupported("no second derivative")

    def forward_derivative(self, u: Array) -> DifferentiableMap:
        """The map (x, u) -> J(x) u at the point and `u`, its value by forward mode."""
        raise Unsupported("no second derivative of forward mode")

    def transforms(self) -> Sequence[Transform]:
        """The AD transforms that the framework has for this function. Empty: none."""
        return ()

    def transformed_product(self, probe: Array, transform: Transform) -> Array:
        """J^T v, or J u, by one of the transforms."""
        raise Unsupported(f"no {transform.name} of this function")
