"""Calls of gradcheck that were answered twice, as text: how many agree, and each that does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradproof._data.records import ComparedCall, GradcheckAnswer
from gradproof._data.visible import visible_in
from gradproof._render._spans import command, plain_text, wrapped_lines

SHOWN = 20  # differences that are printed; a report in a file holds them all


def differing_calls(compared: Sequence[ComparedCall]) -> list[ComparedCall]:
    """The calls with two answers, first those that the framework accepts; last, undecided ones."""
    found = [each for each in compared if not each.same or each.undecided]
    return sorted(found, key=lambda each: (each.same, each.theirs.says != "True"))


def counts(compared: Sequence[ComparedCall]) -> dict[str, str]:
    """The row of numbers: what is counted, and how many."""
    return {
        "calls": f"{len(compared):,}",
        "same": f"{sum(each.same for each in compared):,}",
        "different": f"{sum(not each.same for each in compared):,}",
        "undecided by gradproof": f"{sum(each.undecided for each in compared):,}",
        "CPU s, PyTorch": f"{sum(each.theirs.seconds for each in compared):.2f}",
        "CPU s, gradproof": f"{sum(each.ours.seconds for each in compared):.2f}",
    }


def answer_text(answer: GradcheckAnswer) -> str:
    """`True`, or `GradcheckError: Jacobian mismatch for output 0 with respect to input 1,`."""
    return ": ".join(filter(None, (answer.says, answer.line)))


def render(compared: Sequence[ComparedCall]) -> str:
    """The numbers, then the calls with two answers; ends with a line break."""
    row = counts(compared)
    widths = [max(len(name), len(count)) for name, count in row.items()]
    lines = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for cells in (row.keys(), row.values())
    ]
    found = differing_calls(compared)
    for each in visible_in(tuple(found[:SHOWN])):
        lines += ["", *_difference(each)]
    if len(found) > SHOWN:
        lines += ["", f"... and {len(found) - SHOWN:,} more; a report in a file holds them all"]
    return "\n".join(lines) + "\n"


def _difference(compared: ComparedCall) -> Iterator[str]:
    yield compared.test
    rows = {
        "call": f"{compared.face}({compared.target}) at {compared.place}",
        "PyTorch": answer_text(compared.theirs),
        "gradproof": answer_text(compared.ours) + " (undecided)" * compared.undecided,
        "cause": compared.cause,
    }
    for name, text in rows.items():
        if text:
            yield from map(plain_text, wrapped_lines(f"  {name:<11}", text))
    if compared.repeat:
        yield from map(plain_text, command(f"  {'repeat':<11}", compared.repeat))
