"""The table of causes that measured entries show, and what of a Jacobian they explain.

Each recogniser names a mistake only where it predicts every claimed number to the error bars, from
more entries than it has numbers to fit. Several may: then the more special one comes first, in the
order of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from gradproof._data.records import Cause
from gradproof._data.results import JacobianEvidence
from gradproof._data.visible import short_list
from gradproof._explain.case import SLACK, InputBlock, input_blocks
from gradproof._explain.causes import named_cause, ranked_causes
from gradproof._explain.expressions import other_factor
from gradproof._explain.factors import (
    common_factor,
    conjugated_parts,
    lower_precision,
    missing_mask,
    zero_entries,
)
from gradproof._explain.orders import (
    misplaced_entries,
    swapped_inputs,
    symmetric_input,
    transposed_gradient,
    transposed_jacobian,
)
from gradproof._explain.sums import (
    dropped_sum,
    missing_reduction,
    missing_term,
    overwritten_gradient,
)

_MOST_ENTRIES = 1 << 17  # that recognisers look at: of more outputs, the wrong ones first

Recogniser = Callable[[InputBlock], Cause | None]

_OF_BLOCK: tuple[Recogniser, ...] = (
    missing_reduction,
    overwritten_gradient,
    conjugated_parts,
    dropped_sum,
    zero_entries,
    missing_mask,
    lower_precision,
    common_factor,
    transposed_gradient,
    other_factor,
    transposed_jacobian,
    misplaced_entries,
    symmetric_input,
    missing_term,
)


def causes_of_entries(case: JacobianEvidence) -> tuple[Cause, ...]:
    """Causes of a wrong Jacobian, the likeliest first; () where nothing fits."""
    if not (case.wrong.any() and np.isfinite(case.claimed[case.wrong]).all()):
        return ()
    # A gap within the slack of a fit shows no cause: whatever predicts the right number fits it.
    plain = np.abs(case.claimed - case.measured) > 2 * SLACK * case.allowed
    case = replace(case, wrong=case.wrong & plain)
    if not case.wrong.any():
        return ()
    case = _case_with_fewer_rows(case)
    swapped = swapped_inputs(case)
    found = [swapped] if swapped else []
    return ranked_causes([*found, *_causes_of_blocks(case)])


def _case_with_fewer_rows(case: JacobianEvidence) -> JacobianEvidence:
    """A case of as many rows as recognisers look at, wrong rows before others."""
    if case.wrong.size <= _MOST_ENTRIES:
        return case
    wrong_first = np.argsort(~case.wrong_rows, kind="stable")
    kept = np.sort(wrong_first[: max(1, _MOST_ENTRIES // case.columns.size)])
    tables = ("claimed", "measured", "error", "allowed", "wrong", "rows")
    return replace(case, **{name: getattr(case, name)[kept] for name in tables}, whole=False)


def _causes_of_blocks(case: JacobianEvidence) -> Iterator[Cause]:
    """One cause for each name, weighed by the wrong entries of the blocks that it explains."""
    found: dict[str, dict[int, Cause]] = {}
    shares: dict[int, float] = {}
    for block in input_blocks(case):
        shares[block.position] = block.wrong_count / int(case.wrong.sum())
        for recogniser in _OF_BLOCK:
            if cause := recogniser(block):
                found.setdefault(cause.name, {}).setdefault(block.position, cause)
                if cause.name == "zero":
                    break  # nothing is claimed there that a formula could explain
    for name, causes in found.items():
        alike: dict[str, list[int]] = {}  # inputs with the same evidence have one cause
        for position, cause in causes.items():
            alike.setdefault(cause.evidence, []).append(position)
        messages = []
        for positions in [*alike.values()][:3]:
            message = causes[positions[0]].message
            if len(positions) < len(shares):  # others are wrong in another way
                names = short_list([case.domain.slots[position].name for position in positions])
                message = f"of {names}: {message}"
            messages.append(message)
        score = sum(cause.score * shares[position] for position, cause in causes.items())
        yield named_cause(name, "; ".join(messages), "; ".join([*alike][:2]), score)
