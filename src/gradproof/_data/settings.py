"""What a run is asked to do: validated once, then never changed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradproof._data import checks, options
from gradproof._data.formats import DOUBLE as DOUBLE  # others ask for it here
from gradproof._data.formats import SINGLE as SINGLE  # likewise
from gradproof.errors import UsageError

CHECK_NAMES = tuple(row.name for row in checks.TABLE)
TRANSFORM_NAMES = tuple(row.name for row in checks.TABLE if row.transform)

ORACLES = ("double", "reference", "native")
ACCUMULATORS = ("float32", "float64")  # formats in which a kernel may keep what it computes


def _transforms(name: str, value: Any) -> tuple[str, ...]:
    """Names of some; True is all of them and False none."""
    if isinstance(value, (str, Sequence)) or not hasattr(value, "__bool__"):
        found: tuple[str, ...] = options.names_among(TRANSFORM_NAMES)(name, value)
        return found
    return TRANSFORM_NAMES if options.flag(name, value) else ()


SEED = options.optional(options.whole(0, 2**64, "0 <= seed < 2**64"))

# Option -> what it may be.
_KINDS: dict[str, options.Kind] = {
    "checks": options.names_among(CHECK_NAMES, checks.RENAMED),
    "order": options.whole(1, 4, "1, 2 or 3"),
    "transforms": _transforms,
    "rtol": options.number,
    "atol": options.number,
    "resolution": options.number,
    "nondeterminism": options.number,
    "relative_nondeterminism": options.number,
    "seed": SEED,
    "budget": options.whole(1, None, "at least 1 call"),
    "budget_seconds": options.optional(options.positive),
    "largest_step": options.optional(options.positive),
    "classic_step": options.optional(options.positive),
    "oracles": options.names_among(ORACLES),
    "trusted": options.flag,
    "accumulate": options.optional(options.one_of(ACCUMULATORS)),
    "sweep": options.flag,
}
KEYWORDS = (  # those of `Settings` that are keywords of `check` too
    "checks", "order", "transforms", "rtol", "atol", "seed", "budget", "budget_seconds",
    "reference", "trusted", "accumulate", "oracles", "sweep",
)  # fmt: skip
LEAST_SECONDS = 1e-3  # of a check for which nothing is left: it begins, and says that
RTOL = 1e-6  # relative tolerance in double precision, where none is chosen


def fresh_seed() -> int:
    """A new seed, from the operating system and not from anybody's generator."""
    return secrets.randbits(31)


def share_of(left: float, among: int = 2) -> float:
    """Seconds for the next of so many checks: an equal part of those that are left for all.

    What it does not need is so passed on. Where the number is not known it counts as two: one that
    takes all it gets leaves as much to the others together, and however many follow, what they get
    adds up to no more than was left. A check that begins when nothing is left gets a millisecond,
    and says that its time is spent.
    """
    return max(left / among, LEAST_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a check is made: what is asked, how exactly, and at which cost.

    A suite says its settings once: ``check(fn, x, settings=SETTINGS)``. What is also given to
    `check` by keyword overrides them.

    An entry of the Jacobian is wrong when
    ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Attributes:
        checks, order, transforms, rtol, atol, seed, budget, budget_seconds: as for
            `gradproof.check`.
        reference, trusted, accumulate, oracles, sweep: likewise.
        resolution: error bar above which, relative to the size of the derivative, the answer
            is inconclusive.
        nondeterminism: how far two runs of the backward may lie apart.
        relative_nondeterminism: the same, as a part of the largest entry of the gradient.
        largest_step: largest perturbation of an input, in units of the input; None chooses.
        classic_step: where the error bars leave entries undecided, judge those by a plain
            central difference with this step. None leaves them inconclusive.
        full_jacobian: number of input coordinates up to which a suspicion, or a doubt, is
            settled by measuring every column.
        every_entry: likewise, where there is a suspicion and no doubt; beyond, the wrong entries
            are located.
        derived: the `rtol` that followed from the precision, as it does for each oracle; another
            `rtol` was chosen.
        other_inputs: whether other inputs than the given ones may be tried: the same values in
            another memory layout, fewer of them that need a gradient, or a second point.
        batchings: ways of batching a backward that are asked for; all that there are where empty.
        brief: a failure is told in a text: wrong entries are located first, every entry is measured
            only where that leaves open why they are wrong.
        required: checks that fail, instead of being skipped, where the framework raises.
    """

    checks: tuple[str, ...] = CHECK_NAMES
    order: int = 1
    transforms: tuple[str, ...] = ()
    rtol: float = None  # type: ignore[assignment]  # a number, once it is made
    atol: float = 0.0
    resolution: float = 1e-2
    nondeterminism: float = 0.0
    relative_nondeterminism: float = 1e-6
    seed: int = None  # type: ignore[assignment]  # a number, once a run begins
    budget: int = 100_000
    budget_seconds: float | None = None
    largest_step: float | None = None
    classic_step: float | None = None
    full_jacobian: int = 512
    every_entry: int = 512
    oracles: tuple[str, ...] = ORACLES
    reference: Callable[..., Any] | None = None
    trusted: bool = False
    accumulate: str | None = None
    derived: float | None = None
    other_inputs: bool = True
    sweep: bool = False
    batchings: tuple[str, ...] = ()
    brief: bool = False
    required: frozenset[str] = frozenset()

    @property
    def slack(self) -> float:
        """Relative tolerance of identities: what the caller chose; nothing beside rounding if not.

        Two claims of which each may be off by `rtol` need not agree to more.
        """
        return 0.0 if self.rtol == self.derived else self.rtol

    @property
    def held_to_reference(self) -> bool:
        """Whether nothing but the reference is asked, in whatever precision."""
        return self.trusted or (self.reference is not None and self.oracles == ("reference",))

    def measures(self, mode: str) -> bool:
        """Whether a check is asked for that measures the function's derivative by that mode."""
        rows = [row for row in checks.TABLE if row.derivative and row.order == 1]
        return any(row.mode == mode and row.name in self.checks for row in rows)

    def __post_init__(self) -> None:
        if vars(self)["rtol"] is None:  # not typed so: it never is, once it is made
            object.__setattr__(self, "rtol", RTOL)
            object.__setattr__(self, "derived", RTOL)
        options.settle(self, _KINDS)
        if not self.oracles:
            raise UsageError("oracles: expected at least one of " + ", ".join(ORACLES))
        if self.trusted and (self.reference is None or "reference" not in self.oracles):
            raise UsageError("trusted: says that a reference is a definition; give reference=")

    def seeded(self) -> Settings:
        """A copy with a seed: a fresh one where none was chosen."""
        chosen = vars(self)["seed"]
        return self if chosen is not None else options.altered(self, seed=fresh_seed())

    def at_precision(self, unit: float) -> Settings:
        """A copy with the tolerances that arithmetic of this unit round-off can meet."""
        if self.rtol != self.derived:
            return self
        more: dict[str, Any] = {"rtol": RTOL, "resolution": 1e-2}
        if unit >= SINGLE:
            # Sums in an order of their own, as atomics make them, are rounded differently.
            order = max(self.relative_nondeterminism, 8 * unit)
            more = {"rtol": 32 * unit, "resolution": 0.1, "relative_nondeterminism": order}
        elif unit >= DOUBLE:
            more = {"rtol": 1e-3, "resolution": 2e-2}
        return options.altered(self, **more, derived=more["rtol"])


def overridden(settings: Settings | None, **keywords: Any) -> Settings:
    """The settings with every keyword that is not None in place of their own.

    Defaults where `settings` is None. UsageError where it is something else, or a keyword is not
    of its kind.
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    if settings is None:
        return Settings(**given)
    if not isinstance(settings, Settings):
        raise UsageError(
            f"settings: expected a gradproof.Settings(...), got {options.shown(settings)}"
        )
    return replace(settings, **given) if given else settings
