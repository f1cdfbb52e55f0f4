"""The first tier: one fused run that settles the ordinary case.

Most functions are smooth where they are checked, and their derivatives are right. For those few
calls tell what the checks ask one by one: the kept call is F(x), and one more run, which is
watched, tells whether F and its backward repeat, what gradients are like, and what is written to.
One dense cotangent in a stack of memory layouts repeats the backward as well, where its gradient
has the very same bits; the two parts of another cotangent, whose sum tells whether the backward is
linear, come in the layouts that are left.

Probes, measured slopes, claims, and what they are allowed to be apart are those of the checks, from
the same functions, and what is said is said by the same. A check that is shown to be right here is
settled. Nothing is ever shown to be wrong: what is not right goes to the check itself, which finds
in the memo of the map what was measured here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradproof._checks import determinism, extremes, layout, linearity, state, traits, undefined
from gradproof._data.frames import is_our_mistake
from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array
from gradproof._data.vectors import rms
from gradproof._judge.claims import Backward, Claim, Forward, gradient
from gradproof._judge.decide import of_claims, of_largest, resolved
from gradproof._judge.screen import faint_columns, rows_of
from gradproof._maps.contract import BudgetSpent, Observed, Unsupported
from gradproof._maps.metered import Metered
from gradproof._measure import directional, probes
from gradproof._measure.evaluate import Centre, centre
from gradproof._measure.richardson import Estimate
from gradproof._verdict.agree import Pair, same
from gradproof._verdict.conclude import Evidence, Source, Witness, conclude
from gradproof._verdict.judge import differences_in, right
from gradproof.errors import UsageError


def settled(map_: Metered, settings: Settings) -> dict[str, CheckResult]:
    """What the checks that are asked for say, of those that one fused run shows to be right."""
    if not _may_be_ordinary(map_, settings):
        return {}
    tier = _Tier(map_, settings)
    _tried(tier.repeats)
    for stage in tier.stages:
        _tried(stage)
    return tier.results


def _may_be_ordinary(map_: Metered, settings: Settings) -> bool:
    """As far as can be said without a call."""
    sizes = map_.domain.size, map_.codomain.size
    return (
        {"backward", "determinism"} <= set(settings.checks)  # the usual question, not one check
        and type(map_.point) is np.ndarray
        and 0 < min(sizes) <= max(sizes) <= directional.KEPT
        and map_.resolution < directional.DOUBLE
        and settings.reference is None
        and not map_.spent
    )


def _tried(stage: Callable[[], None]) -> None:
    """Run a stage; what ends it is met, and told, by the check itself."""
    try:
        stage()
    except (UsageError, MemoryError):
        raise
    except (Unsupported, BudgetSpent):
        pass
    except Exception as error:  # whatever the user's code raises
        if is_our_mistake(error):
            raise


class _Tier:
    """One fused run, in stages: each settles what it can.

    Attributes:
        results: of the checks that are settled so far.
        stages: what is left to do; nothing before `repeats`, and where F does not repeat.
    """

    def __init__(self, map_: Metered, settings: Settings) -> None:
        self._map, self._settings = map_, settings
        self._asked = set(settings.checks)
        self.results: dict[str, CheckResult] = {}
        self.stages: list[Callable[[], None]] = []
        self._slopes: Estimate | None = None
        self._run: Observed  # the watched one
        self._pulled_before = 0
        self._layouts = tuple(map_.layouts()) if "layout" in self._asked else ()
        # Of a dense cotangent, and of two parts of one; "" as it is.
        dense = [stack for stack in self._layouts if extremes.EXPANDED not in stack]
        self._stacks, self._laid = [*dense, "", "", ""][:3], len(dense) <= 3
        self._started, self._before = time.perf_counter(), dict(map_.calls)

    def _settle(self, result: CheckResult) -> None:
        """Keep what is said of a check, with what was called for it."""
        if result.name not in self._asked:
            return
        now, before = time.perf_counter(), self._before
        made = {kind: count - before.get(kind, 0) for kind, count in self._map.calls.items()}
        calls = {kind: count for kind, count in made.items() if count}
        self.results[result.name] = replace(result, seconds=now - self._started, calls=calls)
        self._started, self._before = now, dict(self._map.calls)
        self._map.memo[state.VERDICT, result.name] = Verdict.PASSED

    def repeats(self) -> None:
        """F and its backward once more; what gradients are like, and what a run changes."""
        map_, settings = self._map, self._settings
        found = map_.observed(probes.short_cotangent(map_, settings.seed or 0, 0))
        value = map_.kept_value()
        if not np.array_equal(value, found.value):
            return
        map_.memo["centre",] = Centre(value, 0.0)
        map_.memo["gradient", 0] = found.gradient
        self._run, self._pulled_before = found, map_.calls["vjp"]
        if not found.traits and not settings.other_inputs:
            self._settle(traits.alike())
        self.stages = [self.measured, self.forward, self.undefined]
        if not settings.other_inputs:
            self.stages += [self.in_layouts, self.linear]
        self.stages.append(self.hygiene)

    # Slopes.

    def measured(self) -> None:
        """The backward against slopes that are plainly smooth."""
        map_, settings = self._map, self._settings
        value = centre(map_).value
        if not np.array_equal(value.astype(np.float32), value):  # which may be rounded, or whole
            self._slopes = directional.plainly(map_, settings)
            reached = settings.classic_step or map_.derived or not map_.unreached()
            self._agrees(Backward(map_, settings), bool(reached))

    def forward(self) -> None:
        """Forward mode, where the backward is right, against the same slopes."""
        map_, settings = self._map, self._settings
        if "backward" in self.results and "forward" in self._asked:
            try:
                self._agrees(Forward(map_, settings))
            except Unsupported:  # with a reason that the check itself is to be given
                map_.memo.pop(("no forward",), None)

    def _agrees(self, claim: Claim, reached: bool = True) -> None:
        """Settle a mode whose J u is that measured, in every row, and hides no column."""
        map_, settings, found = self._map, self._settings, self._slopes
        size = 0.0 if found is None else rms(found.value)
        if found is None or not size or not reached:
            return
        direction = probes.short_tangent(map_, settings.seed or 0, 0)
        claimed = claim.along(direction)
        if claimed is None:
            return
        rows = rows_of(map_, settings, found, claimed)
        moved = np.abs(found.value)
        seen = (moved == 0) | resolved(found.error, settings.resolution * moved)
        if (rows.suspect | rows.blurred | ~seen).any():
            return
        first = directional.Measurement(direction, None, found, varies=True)
        faint = faint_columns(map_, settings, claim, first)
        if faint.wrong is None and not faint.notes:
            bound = of_largest(map_, rows.seen, map_.domain.size)
            said = right(map_, claim.check, max(bound, faint.bound))
            witness = Witness(differences_in(map_), Source.ITSELF, said)
            self._settle(conclude(Evidence(claim.check, (witness,))))

    # Cotangents. Beside other inputs, as `check` tries them, the checks share runs of their own.

    def in_layouts(self) -> None:
        """The same cotangent in a stack of memory layouts, and with it the backward once more."""
        map_, settings = self._map, self._settings
        v = probes.short_cotangent(map_, settings.seed or 0, 0)
        expected, got = self._gradient, self._pulled(v, self._stacks[0])
        pair = Pair(got, expected, "", terms=(expected, expected))
        self._laid &= same(map_, pair, of_claims(settings))
        again = self._stacks[0] and not determinism.agree(settings, expected, got)
        # Of a backward that draws random numbers two runs may be the same by chance.
        if not self._run.effects and determinism.agree(
            settings, expected, map_.vjp(v) if again else got
        ):
            self._settle(determinism.right(map_))

    def linear(self) -> None:
        """A cotangent of stride 0, and two parts of one, in the layouts that are left."""
        map_, settings = self._map, self._settings
        terms = [(extremes.DENSE, self._gradient)]
        if extremes.expands(map_, settings):
            expanded = extremes.expanded_gradient(map_, settings)
            if expanded is None:
                return
            terms.append((extremes.CONSTANT, expanded))
        parts = extremes.of_cotangents(map_, settings)
        one, other = (
            self._pulled(parts.split.part(k), stack) / parts.split.factors[k]
            for k, stack in enumerate(self._stacks[1:])
        )
        if not linearity.adds_up(map_, settings, parts, (one, other), terms):
            return
        self._settle(linearity.right(parts, hot=False))
        if self._laid and self._layouts:
            words = [word for stack in self._layouts for word in layout.words_of(stack)]
            self._settle(layout.right(dict.fromkeys(words)))

    def undefined(self) -> None:
        """A cotangent that is not there, of the only output."""
        map_, settings = self._map, self._settings
        alone = len(map_.codomain.slots) == 1
        if alone and not ("forward" in self._asked and len(map_.domain.slots) > 1):
            v = probes.cotangent(map_, settings.seed or 0, 0)
            if not map_.vjp_undefined(v, frozenset({0})).any():
                self._settle(undefined.right("cotangents"))

    def hygiene(self) -> None:
        """What a run changed, and what the backwards of the kept call left, which have run."""
        pulled = self._map.calls["vjp"] > self._pulled_before
        if pulled and not self._run.effects and not self._run.left():
            self._settle(traits.clean())

    def _pulled(self, v: Array, stack: str) -> Array:
        return self._map.vjp_layout(v, stack) if stack else self._map.vjp(v)

    @property
    def _gradient(self) -> Array:
        return gradient(self._map, self._settings, 0)
