"""What a run is asked to do: `Settings` of the user, and `RunSettings` for the engine."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gradproof._data import checks, options
from gradproof._data.formats import DOUBLE, SINGLE
from gradproof.errors import UsageError

CHECK_NAMES = tuple(row.name for row in checks.TABLE)

REFERENCES = ("double", "reference", "native")
ACCUMULATORS = ("float32", "float64")  # formats in which a kernel may keep what it computes


def _parse_transforms(name: str, value: Any) -> tuple[str, ...]:
    """Names of some; True is all of them and False none."""
    if isinstance(value, bool):
        return checks.TRANSFORMS if value else ()
    return tuple(options.parse_names(name, value, checks.TRANSFORMS))


def parse_seed(name: str, value: Any) -> int:
    """A seed of the probes."""
    return int(options.parse_integer(name, value, 0, "0 <= seed < 2**64", 2**64))


_PARSERS: dict[str, options.Parser] = {  # of the keywords of `check`
    "checks": partial(options.parse_names, known=CHECK_NAMES),
    "order": partial(options.parse_integer, low=1, below=4, limits="1, 2 or 3"),
    "transforms": _parse_transforms,
    "sweep": options.parse_boolean,
    "rtol": options.parse_number,
    "atol": options.parse_number,
    "seed": parse_seed,
    "budget": partial(options.parse_integer, low=1, limits="at least 1 call"),
    "budget_seconds": options.parse_positive_number,
    "trusted": options.parse_boolean,
}
RTOL = 1e-6  # relative tolerance in double precision, where none is chosen


def new_seed() -> int:
    """A new seed, from the operating system and not from anybody's generator."""
    return secrets.randbits(31)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options of `check` that are rarely needed.

    Attributes:
        references: sources of exact derivatives below double precision, in order of preference:
            "double", the same function on double precision arrays; "reference", the argument
            `reference`; "native", differences in the precision of the arrays.
        accumulate: "float32" or "float64" if the function computes in this format and rounds only
            its results to the dtype of its arrays. Less is then explained by rounding.
        masked: True if only the specified entries of sparse inputs vary.
        full_jacobian: number of input entries up to which a Jacobian in doubt is measured entry by
            entry, at about six calls for each input entry.

    Raises:
        UsageError: an attribute is of another kind.

    Example:
        >>> import torch, gradproof
        >>> x = torch.tensor([0.3, -0.7], requires_grad=True)
        >>> settings = gradproof.Settings(references=["native"])
        >>> bool(gradproof.check(torch.sin, x, settings=settings))
        True
    """

    references: Sequence[str] = REFERENCES
    accumulate: str | None = None
    masked: bool = False
    full_jacobian: int = 512

    def __post_init__(self) -> None:
        if not options.parse_names("references", self.references, REFERENCES):
            raise UsageError("references: expected at least one of " + ", ".join(REFERENCES))
        if self.accumulate is not None:
            options.parse_choice("accumulate", self.accumulate, ACCUMULATORS)
        options.parse_boolean("masked", self.masked)
        options.parse_integer("full_jacobian", self.full_jacobian, 0, "at least 0 inputs")


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """All that one run is asked to do: the options of the user, and what its face adds.

    An entry of the Jacobian is wrong when
    ``|claimed - measured| > error bar + atol + rtol * |measured|``.

    Attributes:
        checks, order, transforms, sweep, atol, seed, budget, budget_seconds: as for
            `gradproof.check`.
        reference, trusted: likewise.
        rtol: relative tolerance on an entry.
        rtol_is_chosen: whether it is the caller's; else it follows the precision.
        resolution: error bar above which, relative to the size of the derivative, the answer
            is inconclusive.
        nondeterminism: how far two runs of the backward may lie apart.
        relative_nondeterminism: the same, as a part of the largest entry of the gradient.
        largest_step: largest perturbation of an input, in units of the input; None chooses.
        classic_step: where the error bars leave entries undecided, judge those by a plain
            central difference with this step. None leaves them inconclusive.
        other_inputs: whether other inputs than the given ones may be tried: the same values in
            another memory layout, fewer of them that need a gradient, or a second point.
        batchings: ways of batching a backward that are asked for; all that there are where empty.
        required: checks that fail, instead of being skipped, where the framework raises.
    """

    checks: tuple[str, ...] = CHECK_NAMES
    order: int = 1
    transforms: tuple[str, ...] = ()
    sweep: bool = False
    atol: float = 0.0
    seed: int = field(default_factory=new_seed)
    budget: int = 100_000
    budget_seconds: float | None = None
    reference: Any = None
    trusted: bool = False
    rtol: float = RTOL
    rtol_is_chosen: bool = False
    resolution: float = 1e-2
    nondeterminism: float = 0.0
    relative_nondeterminism: float = 1e-6
    largest_step: float | None = None
    classic_step: float | None = None
    other_inputs: bool = True
    batchings: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()

    @property
    def slack(self) -> float:
        """Relative tolerance of identities: what the caller chose; nothing beside rounding if not.

        Two claims of which each may be off by `rtol` need not agree to more.
        """
        return self.rtol if self.rtol_is_chosen else 0.0

    @property
    def asks_reference_only(self) -> bool:
        """Whether nothing but the reference is asked, in whatever precision."""
        only = tuple(self.references) == ("reference",)
        return self.trusted or (self.reference is not None and only)

    def with_precision(self, unit: float) -> RunSettings:
        """A copy with the tolerances that arithmetic of this unit round-off can meet."""
        if self.rtol_is_chosen:
            return self
        if unit >= SINGLE:
            # Sums in an order of their own, as atomics make them, are rounded differently.
            order = max(self.relative_nondeterminism, 8 * unit)
            return replace(self, rtol=32 * unit, resolution=0.1, relative_nondeterminism=order)
        if unit >= DOUBLE:
            return replace(self, rtol=1e-3, resolution=2e-2)
        is_double = (self.rtol, self.resolution) == (RTOL, 1e-2)
        return self if is_double else replace(self, rtol=RTOL, resolution=1e-2)


def run_settings(settings: Settings | None = None, **keywords: Any) -> RunSettings:
    """The settings of a run, from the arguments of `check`; a keyword that is None is not given.

    Raises:
        UsageError: an argument is not of its kind, or two contradict each other.
    """
    if not (settings is None or isinstance(settings, Settings)):
        raise UsageError(
            f"settings: expected a gradproof.Settings(...), got {options.short_repr(settings)}"
        )
    given = {name: value for name, value in keywords.items() if value is not None}
    parsed = {name: _PARSERS[name](name, given[name]) for name in _PARSERS if name in given}
    chosen = {} if settings is None else vars(settings)
    made = RunSettings(**chosen, **given | parsed, rtol_is_chosen="rtol" in given)
    if made.trusted and (made.reference is None or "reference" not in made.references):
        raise UsageError("trusted: says that a reference is a definition; give reference=")
    return made
