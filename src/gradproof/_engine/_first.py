"""The first tier: one fused run that settles the ordinary case.

Most functions are smooth where they are checked, and their derivatives are right. For those few
calls tell what the checks ask one by one: the kept call is F(x), and one more run, which is
watched, tells whether F and its backward repeat, what gradients are like, and what is written to.
One dense cotangent in a stack of memory layouts repeats the backward as well, where its gradient
has the very same bits; the two parts of another cotangent, whose sum tells whether the backward is
linear, come in the layouts that are left. Where other inputs are tried too, layouts are those of a
second point, and the parts come as they are. Whatever goes back is asked in one go.

Probes, measured slopes, claims, and what they are allowed to be apart are those of the checks, from
the same functions, and what is said is said in the same words. A check that is shown to be right
here is settled. Nothing is ever shown to be wrong: what is not right goes to the check itself,
which finds in the memo of the map what was measured here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradproof._checks import determinism, extremes, layout, linearity, state, traits, undefined
from gradproof._data.frames import is_our_mistake
from gradproof._data.options import altered
from gradproof._data.records import CheckResult, Verdict
from gradproof._data.settings import Settings
from gradproof._data.space import Array, namespace
from gradproof._data.vectors import rms
from gradproof._judge import heard
from gradproof._judge.claims import OTHERWISE, REPEATS, Backward, Claim, Forward, gradient
from gradproof._judge.decide import of_claims, of_largest, of_smallest, one_to_one, resolved
from gradproof._judge.faint import faint_columns
from gradproof._judge.outcome import passed, skipped
from gradproof._judge.screen import of_rows, sharp
from gradproof._maps.contract import BudgetSpent, Observed, Unsupported
from gradproof._maps.metered import Metered
from gradproof._measure import directional, probes
from gradproof._measure.evaluate import Centre, call_again, centre
from gradproof._measure.richardson import Estimate
from gradproof._measure.sizes import ROUNDINGS
from gradproof._verdict.agree import Pair, same
from gradproof._verdict.conclude import Evidence, Source, Witness, conclude
from gradproof._verdict.judge import WITHOUT_ENTRIES, differences_in, right
from gradproof.errors import UsageError

_WATCHED = frozenset({"traits", "determinism", "hygiene"})  # checks that a watched run is for


def settled(map_: Metered, settings: Settings) -> dict[str, CheckResult]:
    """What the checks that are asked for say, of those that one fused run shows to be right."""
    if not _may_be_ordinary(map_, settings):
        return {}
    tier = _Tier(map_, settings)
    while tier.stages:  # the first adds the others; one that is kept would keep itself alive
        try:
            tier.stages.pop(0)()
        except (UsageError, MemoryError):
            raise
        except (Unsupported, BudgetSpent):
            pass  # it is met, and told, by the check itself
        except Exception as error:  # whatever the user's code raises, likewise
            if is_our_mistake(error):
                raise
    return tier.results


def _may_be_ordinary(map_: Metered, settings: Settings) -> bool:
    """As far as can be said without a call."""
    sizes = map_.domain.size, map_.codomain.size
    return (
        "backward" in settings.checks
        and type(map_.point) is np.ndarray
        and max(sizes) <= directional.KEPT
        and map_.resolution < directional.DOUBLE
        and settings.reference is None
        and not map_.spent
    )


class _Tier:
    """One fused run, in stages: each settles what it can.

    Attributes:
        results: of the checks that are settled so far.
        stages: what there is to do; nothing after `repeats` where F does not repeat.
    """

    def __init__(self, map_: Metered, settings: Settings) -> None:
        self._map, self._settings = map_, settings
        self.results: dict[str, CheckResult] = {}
        self.stages: list[Callable[[], None]] = [self.repeats]
        self._v = probes.cotangent(map_, settings.seed, 0)
        self._slopes: Estimate | None = None
        self._run: Observed  # the watched one
        self._refused: set[str] = set()  # modes that are not there
        self._started, self._before = time.perf_counter(), map_.calls.now()
        self._made = map_.calls.made

    def _cost(self) -> dict[str, Any]:
        """What was spent since a check was settled before."""
        calls = self._map.calls
        if calls.made == self._made:
            return {}
        now, before, started = time.perf_counter(), self._before, self._started
        self._started, self._before, self._made = now, calls.now(), calls.made
        return {"calls": calls.since(before), "seconds": now - started}

    def _settle(
        self,
        check: str,
        summary: str,
        told: Callable[..., CheckResult] = passed,
        **more: Any,
    ) -> None:
        """Keep that a check is right, or has nothing to look at, with what was called for it."""
        if check in self._settings.checks:
            self.results[check] = found = told(check, summary, **self._cost(), **more)
            self._map.memo[state.VERDICT, check] = found.verdict

    def repeats(self) -> None:
        """F and its backward once more; what gradients are like, and what a run changes."""
        map_, other_inputs = self._map, self._settings.other_inputs
        self.stages += [self.measured, self.forward]
        if not [slot for slot in map_.domain.slots if slot.entries is not None]:
            try:
                map_.outside_domain(self._v)
            except Unsupported as missing:
                self._settle("sparse", missing.reason, skipped)
        if not _WATCHED.intersection(self._settings.checks):
            return
        self._run = found = map_.observed(self._v)
        value = map_.kept_value()
        if not (value == found.value).all():
            self.stages.clear()
            return
        map_.memo["centre",] = Centre(value, 0.0)
        map_.memo["gradient", 0] = found.gradient
        map_.memo[traits.OBSERVED] = found
        if not found.traits and not other_inputs:
            self._settle("traits", traits.ALIKE)
        further = [self.elsewhere] if other_inputs else []
        if other_inputs and not found.traits:
            further.append(self.subsets)
        self.stages += [self.undefined, self.cotangents, *further]

    def measured(self) -> None:
        """The backward against slopes that are plainly smooth."""
        map_, settings = self._map, self._settings
        if not map_.domain.size or not map_.codomain.size:
            return
        start = centre(map_)
        # Values of few digits may be rounded, or whole; or a rounding of 1, times a number of few.
        short = start.value == start.value.astype(np.float32)
        if start.repeats and not short.all():
            self._slopes = directional.plainly(map_, settings)
            if self._slopes is not None:
                heard.listen(map_, probes.tangent(map_, settings.seed, 0), self._slopes)
            if settings.classic_step or map_.derived or not map_.unreached():
                self._agrees(Backward(map_, settings, equal=True))

    def forward(self) -> None:
        """Forward mode, where the backward is right, against the same slopes."""
        map_, settings = self._map, self._settings
        if "backward" in self.results and "forward" in settings.checks:
            try:
                self._agrees(Forward(map_, settings))
            except Unsupported:  # with a reason that the check itself is to be given
                map_.memo.pop(("no forward",), None)
                self._refused.add("forward")

    def _agrees(self, claim: Claim) -> None:
        """Settle a mode whose J u is that measured, in every row, and hides no column."""
        map_, settings, found = self._map, self._settings, self._slopes
        if found is None or not found.value.any():
            return
        direction = probes.tangent(map_, settings.seed, 0)
        columns = np.abs(gradient(map_, settings, 0) * direction)
        claimed = claim.along(direction)
        if claimed is None:
            return
        unseen = self._unseen(found, columns, claimed)
        if unseen >= (1.0 if settings.slack else settings.rtol):
            # Every entry is held to what the precision allows, and none may be hidden where there
            # is a tolerance: the check reads the whole table.
            found, unseen = directional.along(map_, settings, 0).estimate, 0.0
        bound = self._seen(claim, found, claimed, columns)
        if bound is not None:
            said = right(map_, claim.check, max(bound, unseen))
            witness = Witness(differences_in(map_), Source.ITSELF, said)
            result = conclude(Evidence(claim.check, (witness,)))
            self.results[claim.check] = altered(result, **self._cost())
            map_.memo[state.VERDICT, claim.check] = result.verdict

    def _unseen(self, found: Estimate, columns: Array, claimed: Array) -> float:
        """What is not seen of the rows, in parts of the smallest entries."""
        gap, usual = np.maximum(found.error, np.abs(claimed - found.value)), rms(self._v)
        return of_smallest(self._map, gap, np.abs(self._v / usual * claimed), columns / usual)

    def _seen(self, claim: Claim, found: Estimate, claimed: Array, columns: Array) -> float | None:
        """To what part rows and columns are right; None where any is suspect, or is not seen.

        `screen.rows_of` and `faint.faint_columns` tell which, and more of them. `columns` are how
        much each adds to the rows.
        """
        map_, settings, moved = self._map, self._settings, np.abs(found.value)
        xp = namespace(moved)
        typical = rms(found.value)
        size = max(typical, rms(claimed))
        decided = of_rows(map_, found, claimed, 0.0, typical)
        still = (moved == 0) & (claimed == 0)
        seen = resolved(found.error, sharp(map_, settings, found.value, size))
        seen &= still | resolved(found.error, settings.resolution * moved)
        if not xp.all(seen) or xp.any(decided.wrong):
            return None
        part = xp.max(np.maximum(found.error, decided.gap) / np.maximum(moved, size))
        bound = of_largest(map_, float(part), map_.domain.size)
        if not xp.any(settings.resolution * columns < xp.max(decided.further)):
            return bound
        # Where every row has a column of its own, none is lost that its own row shows.
        rows, hidden = np.abs(self._v * claimed), settings.resolution * np.abs(claimed)
        hidden = hidden / len(columns) ** 0.5 < decided.further
        if not xp.any(hidden) and one_to_one(rows, columns, ROUNDINGS * map_.resolution):
            return bound
        direction = probes.tangent(map_, settings.seed, 0)
        faint = faint_columns(claim, directional.Measurement(direction, None, found, varies=True))
        return None if faint.wrong or faint.notes else max(bound, faint.bound)

    def cotangents(self) -> None:
        """Two parts of a cotangent; where no other inputs are asked, in stacks of memory layouts.

        V comes in another where two are not enough, or where no backward repeated yet.
        """
        map_, settings, stacks = self._map, self._settings, ["", ""]
        forward = "forward" in settings.checks and "forward" not in self._refused
        if forward and not linearity.has_forward(map_):
            return  # it is asked with the backward, by the check itself
        if not map_.domain.size and not forward:  # no gradient has an entry
            self.stages.append(self.hygiene)
            self._settle("linearity", WITHOUT_ENTRIES)
            self._settle("determinism", determinism.SAME)
            return
        terms = self._terms()
        layouts = map_.layouts() if "layout" in settings.checks else ()
        every = () if settings.other_inputs else layouts
        dense = list(every)
        if extremes.EXPANDED in every:
            dense.remove(extremes.EXPANDED)
        repeats = REPEATS in map_.memo and OTHERWISE not in map_.memo and len(dense) <= 2
        if repeats:
            stacks = ["", "", *dense][-2:]
        elif not settings.other_inputs:
            stacks = [*dense[1:], "", ""][:2] + [*dense, ""][:1]
        got, again = extremes.parts_at_once(map_, settings, stacks)
        self.stages.append(self.hygiene)  # several backwards of the kept call have run
        laid = repeats if again is None else self._repeats(again, stacks[2])
        parts = extremes.parts_of(map_, settings)
        linear = linearity.adds_up(map_, settings, parts, got, terms)
        if linear and (not forward or linearity.forward_adds_up(map_, settings)):
            said = linearity.linear_in(parts, hot=extremes.is_hot(map_))
            self._settle("linearity", said + linearity.LIKEWISE * forward)
            if extremes.EXPANDED in layouts:
                map_.memo[extremes.AGREES] = frozenset((extremes.EXPANDED,))
            if laid and every and len(dense) <= 3:
                words = layout.words_of("+".join(every))
                self._settle("layout", layout.same_in(dict.fromkeys(words)))
        if repeats and linear:  # the first backward of the graph repeated, and those after it fit
            self._settle("determinism", determinism.SAME)

    def _terms(self) -> list[extremes.Term]:
        """What is claimed of single cotangents; and whether all of one value repeat another one.

        One of the two was asked of a backward to be differentiated, where there is one.
        """
        map_, (_, equal) = self._map, self._map.memo.get(OTHERWISE, (None, None))
        terms = extremes.terms_at_once(map_, self._settings, equal)
        claimed = dict(terms)
        ones, of_equal = claimed.get(extremes.CONSTANT), claimed.get(extremes.EQUAL)
        if ones is not None and of_equal is not None and (probes.EQUAL * ones == of_equal).all():
            map_.memo[REPEATS] = True
            map_.memo.pop(OTHERWISE, None)
        return terms

    def _repeats(self, again: Array, stack: str) -> bool:
        """Settle that the backward repeats; whether it does in a stack of memory layouts."""
        map_, settings = self._map, self._settings
        gv = gradient(map_, settings, 0)
        laid = same(map_, Pair(again, gv, "", terms=(gv, gv)), of_claims(settings))
        if stack and not determinism.agree(settings, gv, again):
            again = map_.vjp(self._v)
        # Of a backward that draws random numbers two runs may be the same by chance.
        alone = self._run.effects or OTHERWISE in map_.memo
        if not alone and determinism.agree(settings, gv, again):
            self._settle("determinism", determinism.SAME)
        return laid

    def elsewhere(self) -> None:
        """A second point, beside which the backward repeats, each in a stack of memory layouts."""
        map_, settings = self._map, self._settings
        asked = {"backward", "forward"}.intersection(settings.checks)
        ready = asked <= {*self.results, *self._refused} and not directional.large(map_)
        if not ready or "state" not in settings.checks or settings.trusted:
            return
        every, inputs = map_.layouts(), "+".join(map_.input_layouts())
        if "layout" not in settings.checks:
            every, inputs = (), ""
        *dense, carried = [stack for stack in every if extremes.EXPANDED not in stack] or [""]
        other = dense[0] if dense else ""
        try:
            bar = state.plain_bar(map_, settings, (inputs, carried, other))
            if bar is not None:
                self._settle("state", state.OWN.format(state.UNCHANGED, bar), resolution=bar)
                if said := layout.known_right(map_, carried, inputs, other):
                    self._settle("layout", said)
        finally:
            if "state" not in self.results:
                call_again(map_)  # so that the checks find what they would have found

    def subsets(self) -> None:
        """Gradients where some of the inputs need none."""
        found = traits.among_others(self._map, self._settings)
        if found.verdict is Verdict.PASSED:
            self._settle("traits", found.summary, notes=found.notes)

    def undefined(self) -> None:
        """A cotangent that is not there, of the only output."""
        map_, asked = self._map, self._settings.checks
        tangents = "forward" in asked and len(map_.domain.slots) > 1
        if "undefined" not in asked or len(map_.codomain.slots) > 1 or tangents:
            return
        undefined_gradient = map_.vjp_undefined(self._v, frozenset({0}))
        if not undefined_gradient.any():
            self._settle("undefined", undefined.LIKE_ZERO.format("cotangents"))

    def hygiene(self) -> None:
        """What a run changed, and what the backwards of the kept call left, which have run."""
        if effects := [*self._run.effects, *self._run.left()]:
            self._map.memo[traits.OBSERVED] = altered(self._run, effects=effects)
        else:
            self._settle("hygiene", traits.CLEAN)
