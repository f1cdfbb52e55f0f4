"""Derivatives of functions that span ranks: collectives, sharded layers, pipelines.

from gradproof.torch import distributed

report = distributed.check(layer, x)  # on every rank, like a collective
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

from gradproof._data import options
from gradproof._data.exceptions import exception_line
from gradproof._data.inputs import input_selection, name_of, positional_arguments
from gradproof._data.records import Report
from gradproof._data.settings import RunSettings, run_settings
from gradproof._engine import run_checks
from gradproof._guard import guard_face
from gradproof.errors import UsageError
from gradproof.torch.distributed._lockstep import LostRankError, Ranks
from gradproof.torch.distributed._placed import Local, Placing
from gradproof.torch.distributed._ranks import Part, RankMaps, RanksMap, require_agreement

__all__ = ["check"]

# What is known of a function whose ranks run together: forward mode, undefined cotangents and
# batches would run the backward on some ranks alone.
CHECKS = (
    "backward",
    "linearity",
    "memory_layout",
    "grad_metadata",
    "second_point",
    "determinism",
    "side_effects",
)


@guard_face
def check(
    fn: Callable[..., Any],
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    group: Any = None,
    placements: Mapping[str, Any] | None = None,
    wrt: Any = None,
    checks: Sequence[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int | None = None,
    budget: int | None = None,
    budget_seconds: float | None = None,
) -> Report:
    """Check the derivative of a function that spans ranks.

    It is called on every rank of the group, like a collective, and returns the same report on all.
    Inputs and outputs are those of all ranks together. The backward of each rank receives the
    cotangents of its own outputs. Places in the report name the rank: "rank 1, weight[3]".

    Args:
        fn: a collective function of tensors of this rank, or of DTensors. Parameters and captured
            tensors are inputs too.
        inputs, kwargs: as for `gradproof.check`, of this rank.
        group: the process group; None for all ranks.
        placements: for plain tensors, a dict from names of inputs and outputs (patterns with `*`)
            to `Replicate()`, `Shard(dim)` or `Partial()` of `torch.distributed.tensor`. A
            replicated input is one array, whose whole gradient every rank must return. A
            replicated output counts once. A partial array is a term of a sum over the ranks. Other
            arrays belong to their rank, as with `Shard`. DTensors have their own placements.
        wrt, rtol, atol: as for `gradproof.check`.
        checks: names from `CHECKS`, which are of first order in reverse mode; all where None.
        seed: seed of the probes of all ranks; that of the first rank where None.
        budget: most calls on each rank, as for `gradproof.check`.
        budget_seconds: as for `gradproof.check`, by the clock of the first rank. It is also how
            long a rank waits for another one, a minute where None.

    Returns:
        The `Report`, the same on every rank.

    Raises:
        UsageError: no process group, missing ranks, different arguments on the ranks, or a
            layer of `DistributedDataParallel` or `fully_shard`. The sentence is the same on every
            rank.
        RuntimeError: at the point the function raised on a rank, or the ranks called different
            collectives. The message names the rank on every rank.
        TimeoutError: a rank did not come back.

    Example:
        ``torchrun --nproc-per-node 2 examples/column_parallel.py`` shows one.
    """
    patience = options.parse_optional(
        options.parse_positive_number, "budget_seconds", budget_seconds
    )
    ranks = Ranks(group, patience)
    checks = CHECKS if checks is None else checks
    given: dict[str, Any] = {"checks": checks, "rtol": rtol, "atol": atol, "seed": seed}
    given |= {"budget": budget, "budget_seconds": patience}

    def parsed() -> tuple[Local, RunSettings]:
        options.parse_names("checks", checks, CHECKS)
        settings = run_settings(**given)
        arguments = positional_arguments(fn, inputs)
        placing = Placing(placements or {}, ranks.rank)
        return Local(fn, arguments, kwargs or {}, input_selection(wrt), placing), settings

    try:
        with closing(ranks):
            local, settings = ranks.run_together(parsed)
            require_agreement(ranks, local, {"placements": placements, "wrt": wrt, **given})
            return _report_of_ranks(ranks, local, settings, name_of(fn))
    except LostRankError as lost:
        raise TimeoutError(str(lost)) from None


def _report_of_ranks(ranks: Ranks, local: Local, settings: RunSettings, target: str) -> Report:
    """The report, or what was raised, of the first rank, on every rank."""
    with closing(RankMaps(ranks, local)) as rank_maps:
        parts = ranks.gather_objects(rank_maps.part(0))
        local.placing.require_arrays(dict.fromkeys(chain(*ranks.gather_objects(local.names))))
        report: Report | Exception
        if ranks.rank:
            report = rank_maps.serve()
        else:
            report = _report_of_first(rank_maps, parts, settings, target)
    if isinstance(report, Exception):
        raise report
    return report


def _report_of_first(
    rank_maps: RankMaps, parts: Sequence[Part], settings: RunSettings, target: str
) -> Report | UsageError:
    """The report of the first rank, or its UsageError, sent to the others, who wait for it."""
    try:
        map_ = RanksMap(rank_maps, parts)
        settings = settings.with_precision(map_.resolution)
        report: Report | UsageError = run_checks(map_, settings, target=target)
    except UsageError as error:
        report = error
    except LostRankError:
        raise
    except BaseException as error:
        rank_maps.stop(RuntimeError(f"the first rank ended with {exception_line(error)}"))
        raise
    rank_maps.stop(report)
    return report
