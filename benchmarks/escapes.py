"""What slips past gradient checkers: every wrong derivative of the museum, tool by tool.

Each exhibit of tests/museum.py is a wrong derivative, most of them published mistakes, beside its
right twin. A tool tells them apart ("caught") if it refuses the wrong one and accepts the right
one. "missed": it accepts the wrong one; "both": it refuses both; "-": it does not apply, with the
reason, "timeout" where it took longer than `--timeout`; "not run": slow mode would need a Jacobian
of over two million entries, the one of gradgradcheck that of the backward.

`--json FILE --add` keeps what that record says of other exhibits and other tools, `--missing` asks
only of exhibits that it does not name; `--page FILE` writes the tables of the record into a page,
between <!-- escapes --> and <!-- /escapes -->.

Tools: gradcheck's slow mode, its fast mode, slow with every flag (forward mode, batched,
undefined), gradgradcheck with contiguous and with other cotangents, opcheck of the same function
registered as an operator of torch.library (where it takes and returns dense tensors), and
`gradproof.check` with its defaults and the order of the exhibit. Where an exhibit has inputs at
which its mistake hides, and `check` has `sweep=`, `sweep=True` is tried there.

Exit code 1: `gradproof.check` misses one or accuses a right one.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _common as common
import torch
from _cases import alarm
from torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
TOOLS = ("slow", "fast", "flags", "gradgrad", "opcheck", "ours")
HEADS = ("PyTorch slow", "fast", "all flags", "gradgradcheck", "opcheck", "gradproof")
QUICK_EVERY = 12
MOST_ENTRIES = 2_000_000  # of a Jacobian that slow mode is asked for: minutes, and 16 MB each
GROUPS = (
    ("Published mistakes", lambda row: row.wrong and "M" in row.source),
    ("Mistakes measured to slip past other tools", lambda row: row.wrong and row.measured),
    ("Mistakes of our own making", lambda row: row.wrong and row.source == "extra"),
    ("Right functions", lambda row: not row.wrong),
)
_NUMBERS = itertools.count()


class NotApplicable(Exception):
    """The tool has no way to be asked, and why."""


@dataclass
class Row:
    """One exhibit: what each tool made of it."""

    name: str
    source: str
    wrong: bool
    verdicts: dict[str, str] = field(default_factory=dict)
    sweep: str = ""

    @property
    def measured(self) -> bool:
        """Whether it was measured to slip past another tool, and reached no user that we know."""
        return self.source != "extra" and "M" not in self.source

    def cells(self) -> tuple[str, ...]:
        """What the record and the tables show of it."""
        return (
            self.source,
            self.name,
            *(self.verdicts.get(tool, "") for tool in TOOLS),
            self.sweep,
        )


def entries_of(fn: Any, inputs: Any, tool: str = "slow") -> int:
    """Of the Jacobian that a tool measures in slow mode, complex numbers counted twice; 0: none."""
    if tool not in ("slow", "flags", "gradgrad"):
        return 0
    leaves = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    found = fn(*inputs)
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    count = [sum(t.numel() * (2 if t.is_complex() else 1) for t in each if torch.is_tensor(t))
             for each in (leaves, outputs)]  # fmt: skip
    # The backward is a function of the inputs and the cotangents, its results are the gradients.
    return sum(count) * count[0] if tool == "gradgrad" else count[0] * count[1]


def _is_masked(exhibit: Any) -> bool:
    settings = exhibit.options.get("settings")
    return settings is not None and settings.masked


def slow(fn: Any, inputs: Any, exhibit: Any) -> bool:
    return gradcheck(fn, inputs, masked=_is_masked(exhibit))


def fast(fn: Any, inputs: Any, exhibit: Any) -> bool:
    return gradcheck(fn, inputs, fast_mode=True, masked=_is_masked(exhibit))


def flags(fn: Any, inputs: Any, exhibit: Any) -> bool:
    """Each flag by itself, since one that is not supported ends the check."""
    masked = _is_masked(exhibit)
    answers = []
    for flag in ("check_forward_ad", "check_batched_grad", "check_undefined_grad"):
        try:
            answers.append(gradcheck(fn, inputs, masked=masked, **{flag: True}))
        except GradcheckError:
            raise
        except Exception as error:
            answers.append(_unsupported(error))
    return all(answers)


def gradgrad(fn: Any, inputs: Any, exhibit: Any) -> bool:
    return all(
        gradgradcheck(fn, inputs, gen_non_contig_grad_outputs=other) for other in (False, True)
    )


def opcheck(fn: Any, inputs: Any, exhibit: Any) -> bool:
    """The same function and its backward as an operator of torch.library."""
    if not all(isinstance(x, torch.Tensor) and x.layout is torch.strided for x in inputs):
        raise NotApplicable("inputs other than dense tensors")
    value = fn(*inputs)
    several = isinstance(value, (tuple, list))
    values = tuple(value) if several else (value,)
    if not all(isinstance(x, torch.Tensor) and x.layout is torch.strided for x in values):
        raise NotApplicable("outputs other than dense tensors")
    operator = _registered(fn, inputs, values, several)
    told = torch.library.opcheck(operator, inputs, raise_exception=False)
    return all(said == "SUCCESS" for said in told.values())


def _registered(fn: Any, inputs: Any, values: tuple[torch.Tensor, ...], several: bool) -> Any:
    """An operator that computes and differentiates what the function does, its backward another."""
    wanted = [x.requires_grad for x in inputs]
    count, name = len(inputs), f"gradproofescapes::case{next(_NUMBERS)}"

    def forward(*x: torch.Tensor) -> Any:
        found = fn(*x)
        return [y.detach().clone() for y in found] if several else found.detach().clone()

    def backward(*given: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(given[:count], wanted, strict=True)
        leaves = [x.detach().requires_grad_(asked) for x, asked in pairs]
        made = fn(*leaves) if several else (fn(*leaves),)
        ends = [p for p in zip(made, given[count:], strict=True) if p[0].requires_grad]
        asked = [x for x in leaves if x.requires_grad]
        heads, cotangents = zip(*ends, strict=True)
        found = torch.autograd.grad(heads, asked, cotangents, allow_unused=True)
        pairs = zip(asked, found, strict=True)
        return [torch.zeros_like(x) if g is None else g.clone() for x, g in pairs]

    def fakes(x: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [x[0].new_empty(y.shape, dtype=y.dtype) for y in like]

    back = _operator(f"{name}back", backward, count + len(values), "Tensor[]")
    back.register_fake(
        lambda *x: fakes(x, [y for y, asked in zip(x, wanted, strict=False) if asked])
    )
    operator = _operator(name, forward, count, "Tensor[]" if several else "Tensor")
    operator.register_fake(lambda *x: fakes(x, values) if several else fakes(x, values)[0])

    def gradients(ctx: Any, *cotangents: Any) -> Any:
        given = cotangents[0] if several else cotangents
        found = iter(back(*ctx.saved_tensors, *given))
        return tuple(next(found) if asked else None for asked in wanted)

    operator.register_autograd(
        gradients, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    return operator


def _operator(name: str, fn: Any, count: int, result: str) -> Any:
    schema = f"({', '.join(f'Tensor x{k}' for k in range(count))}) -> {result}"

    def kernel(*x: torch.Tensor) -> Any:  # in a thread: below an operator autograd is switched off
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(fn, *x).result()

    return torch.library.custom_op(name, kernel, mutates_args=(), schema=schema)


def ours(fn: Any, inputs: Any, exhibit: Any) -> bool:
    import gradproof

    report = gradproof.check(fn, inputs, order=exhibit.order, seed=0, **exhibit.options)
    return str(report.verdict) != "failed"


def swept(fn: Any, inputs: Any, exhibit: Any) -> bool:
    import gradproof

    options = {**exhibit.options, "sweep": True}
    return (
        str(gradproof.check(fn, inputs, order=exhibit.order, seed=0, **options).verdict) != "failed"
    )


def _unsupported(error: Exception) -> bool:
    return not isinstance(error, AssertionError)


def accepts(tool: Callable[..., bool], fn: Any, inputs: Any, exhibit: Any, timeout: float) -> Any:
    """True or False; where there is no answer, why."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            if (count := entries_of(fn, inputs, tool.__name__)) > MOST_ENTRIES:
                return f"not run: {count:,} entries"
            with alarm(timeout):
                return bool(tool(fn, inputs, exhibit))
        except GradcheckError:
            return False
        except NotApplicable as reason:
            return f"-: {reason}"
        except TimeoutError:
            return "-: timeout"
        except Exception as error:
            return f"-: {type(error).__name__}"


def judged(exhibit: Any, tools: Sequence[str], timeout: float) -> Row:
    """What the tools make of one exhibit."""
    row = Row(exhibit.name, exhibit.source, exhibit.wrong is not None)
    for name in tools:
        tool = globals()[name]
        right = accepts(tool, exhibit.right, exhibit.make_inputs(), exhibit, timeout)
        if exhibit.wrong is None:
            row.verdicts[name] = _word_of_right(right)
            continue
        wrong = accepts(tool, exhibit.wrong, exhibit.make_inputs(), exhibit, timeout)
        row.verdicts[name] = _word(wrong, right)
    if exhibit.wrong is not None and exhibit.hidden_inputs and _can_sweep():
        wrong = accepts(swept, exhibit.wrong, exhibit.hidden_inputs(), exhibit, 4 * timeout)
        right = accepts(swept, exhibit.right, exhibit.hidden_inputs(), exhibit, 4 * timeout)
        row.sweep = _word(wrong, right)
    return row


def _can_sweep() -> bool:
    import gradproof

    return "sweep" in inspect.signature(gradproof.check).parameters


def _word(wrong: Any, right: Any) -> str:
    for said in (wrong, right):
        if isinstance(said, str):
            return said
    if wrong:
        return "missed"
    return "caught" if right else "both"


def _word_of_right(right: Any) -> str:
    if isinstance(right, str):
        return right
    return "accepts" if right else "accuses"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts by tool, and the rows in short."""
    wrong, right = ([row for row in rows if row.wrong is kind] for kind in (True, False))
    return {
        "wrong": len(wrong),
        "right": len(right),
        "verdicts_on_wrong": {tool: _counts(wrong, tool) for tool in TOOLS},
        "verdicts_on_right": {tool: _counts(right, tool) for tool in TOOLS},
        "sweep": dict(Counter(row.sweep for row in wrong if row.sweep)),
        "rows": [[*row.cells(), row.wrong] for row in rows],
    }


def _counts(rows: Sequence[Row], tool: str) -> dict[str, int]:
    said = (row.verdicts[tool].partition(":")[0] for row in rows if tool in row.verdicts)
    return dict(Counter(said))


def recorded(path: Path) -> list[Row]:
    """The rows of a record."""
    rows = []
    for source, name, *said, sweep, wrong in json.loads(path.read_text())["rows"]:
        verdicts = {tool: word for tool, word in zip(TOOLS, said, strict=True) if word}
        rows.append(Row(name, source, wrong, verdicts, sweep))
    return rows


def merged(known: Sequence[Row], new: Sequence[Row], order: Sequence[str]) -> list[Row]:
    """Known rows of exhibits that still exist, with what is newly said, in the order of these."""
    rows = {row.name: row for row in known}
    for row in new:
        old = rows.get(row.name, row)
        verdicts = {**old.verdicts, **row.verdicts}
        rows[row.name] = Row(row.name, row.source, row.wrong, verdicts, row.sweep or old.sweep)
    return [rows[name] for name in order if name in rows]


def show(rows: Sequence[Row], markdown: bool) -> None:
    """Tables of wrong derivatives, and one of right functions that others accuse."""
    for title, chosen in GROUPS:
        cells = [_line(row) for row in rows if chosen(row)]
        if cells:
            common.show(title, ("mistake", *HEADS, "hidden, sweep"), cells, markdown=markdown)


def _line(row: Row, *, labelled: bool = True) -> tuple[str, ...]:
    """The cells of a row; with the museum's label, which only maintainers know, or without."""
    source, name, *rest = row.cells()
    words = name.replace("_", " ")
    return (f"{source} {words}" if labelled else words, *rest)


def page(rows: Sequence[Row]) -> str:
    """What docs/escapes.md shows of a record: counts of every group, and the rows of the first two.

    The other groups have hundreds of rows, which the record has.
    """
    counts = [_count_cells(title, [row for row in rows if chosen(row)]) for title, chosen in GROUPS]
    lines = [common.markdown_table(("", "functions", *HEADS), counts)]
    for title, chosen in GROUPS[:2]:
        cells = [_line(row, labelled=False) for row in rows if chosen(row)]
        table = common.markdown_table(("mistake", *HEADS, "sweep"), cells)
        lines += ["", f"## {title}", "", table.replace(" ---: |", " --- |")]
    return "\n".join(lines)


def _count_cells(title: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """A row of the table of counts: how many functions each tool tells apart, or refuses."""
    wrong = any(row.wrong for row in rows)
    word = "caught" if wrong else "accuses"
    found = [sum(row.verdicts.get(tool) == word for row in rows) for tool in TOOLS]
    head = f"{title}: {'caught' if wrong else 'refused'}"
    return (head, str(len(rows)), *map(str, found))


def write_page(path: Path, rows: Sequence[Row]) -> None:
    """Replace what stands between the marks."""
    text = path.read_text()
    between = re.compile(r"(<!-- escapes -->\n\n).*?(\n\n<!-- /escapes -->)", re.DOTALL)
    path.write_text(between.sub(lambda found: found[1] + page(rows) + found[2], text))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression in 'source name'")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds of one call")
    parser.add_argument("--tools", default=",".join(TOOLS), help="names, joined by commas")
    parser.add_argument("--quick", action="store_true", help="every 12th exhibit")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--json", type=Path, help="write the record to this file")
    parser.add_argument("--add", action="store_true", help="to what the record says already")
    parser.add_argument("--missing", action="store_true", help="only what the record lacks")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    options = parser.parse_args(arguments)
    import museum

    torch.set_num_threads(1)
    chosen = [
        each for each in museum.EXHIBITS if re.search(options.only, f"{each.source} {each.name}")
    ]
    chosen = chosen[::QUICK_EVERY] if options.quick else chosen
    known = recorded(options.json) if options.add or options.missing else []
    if options.missing:
        named = {row.name for row in known}
        chosen = [exhibit for exhibit in chosen if exhibit.name not in named]
    order = [each.name for each in museum.EXHIBITS]
    new: list[Row] = []
    with common.progress("exhibits", len(chosen)) as advance:
        for exhibit in chosen:
            new.append(judged(exhibit, options.tools.split(","), options.timeout))
            # What there is, should it be interrupted.
            common.record(options.json, summary(merged(known, new, order)))
            advance(exhibit.name)
    rows = merged(known, new, order)
    show(rows, options.markdown)
    if options.page:
        write_page(options.page, rows)
    wanted = {True: "caught", False: "accepts"}
    return int(
        any(row.verdicts.get("ours", wanted[row.wrong]) != wanted[row.wrong] for row in rows)
    )


if __name__ == "__main__":
    sys.exit(main())
