"""What became of mistakes that were planted to try a check."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from gradproof.errors import UsageError

_PLANT = "_plant"  # no field of a report: neither compared, nor shown, nor stored


@dataclass(frozen=True)
class Planted:
    """One mistake, planted in the claimed backward.

    Attributes:
        name: "scale", "sign", "entry", "roll", "detach x", "cotangent", "layout".
        what: in words, what the wrong backward does.
        by: the check that failed for it; "" where none did.
        why: where none did, why it could not.
    """

    name: str
    what: str
    by: str
    why: str = ""

    @property
    def caught(self) -> bool:
        return bool(self.by)


@dataclass(frozen=True)
class Strength:
    """Which mistakes a check would have caught, at the inputs that it was given.

    Attributes:
        target: the function's name.
        planted: every mistake, and the check that caught it.
        unseen: kinds of inputs that are not among those given: a mistake made for them only,
            in a branch that was never taken, would pass.
    """

    target: str
    planted: tuple[Planted, ...]
    unseen: tuple[str, ...] = ()

    # Set by the faces: layer 0 does not know the renderers above it.
    renderer: ClassVar[Callable[[Strength], str] | None] = None

    @property
    def missed(self) -> tuple[Planted, ...]:
        return tuple(one for one in self.planted if not one.caught)

    @property
    def weak(self) -> bool:
        """Whether a planted mistake would have passed."""
        return bool(self.missed)

    def __str__(self) -> str:
        renderer = type(self).renderer
        return renderer(self) if renderer else repr(self)


_Self = TypeVar("_Self", bound="Tried")


class Tried:
    """What a report has beside its fields: a way to try the check that made it."""

    def strength(self) -> Strength:
        """Which mistakes, planted in the function's own backward, this check would have caught.

        Each costs about as much as the check once more. `str()` of the result tells it in a few
        lines; `weak` is whether one would have passed.

        Raises:
            UsageError: the report was stored and read: there is no function to try.
        """
        plant: Callable[[], Strength] | None = self.__dict__.get(_PLANT)
        if plant is None:
            raise UsageError(
                "report: strength() tries the function again, and a report that was stored has "
                "none; call it on what gradproof.check returned"
            )
        return plant()

    def with_strength(self: _Self, plant: Callable[[], Strength]) -> _Self:
        """The same report, which knows how to try its check."""
        made = dataclasses.replace(self)  # type: ignore[type-var]  # a report is a dataclass
        object.__setattr__(made, _PLANT, plant)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != _PLANT}
