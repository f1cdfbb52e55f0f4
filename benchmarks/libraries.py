"""Checks hand-written derivatives of published libraries, beside PyTorch's gradcheck.

    python benchmarks/libraries.py --install        # once: pinned versions, into build/libraries
    python benchmarks/libraries.py --json benchmarks/results/libraries.json

Each library is installed without its dependencies into one folder, and imported in a process of its
own. A case of `_library_cases.py` says whether its derivative is known to be wrong; docs/defects
shows each such derivative without gradproof, and `--page` runs what it shows. A check that fails
where nothing is known to be wrong is a false alarm, until a defect is shown; the bar is none. A
wrong derivative that is not refused is a miss. Exit status 1 on either.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import _common as common
import _library_cases as library_cases

PAGE = Path(__file__).parents[1] / "docs" / "defects" / "libraries.md"
FOLDER = Path(__file__).parents[1] / "build" / "libraries"
# What those libraries import beside what the tests need.
ALSO = ("PyWavelets", "finufft", "jaxtyping", "kornia_rs", "multipledispatch", "setuptools<81")
ALSO += ("einops", "six", "tqdm", "wadler_lindig")
Row = dict[str, Any]


def install(folder: Path) -> None:
    """Installs every library, pinned and without dependencies: an unpinned PyTorch is gigabytes."""
    wanted = [f"{name}=={version}" for name, version in library_cases.PINNED.items()]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    for name in (*wanted, *ALSO):
        if subprocess.run([*pip, name], check=False).returncode:
            print(f"cannot be had: {name}", file=sys.stderr)


def rows_of(library: str) -> Iterator[Row]:
    """Asks every tool of every case; runs in a process of its own."""
    import gradproof

    for case in library_cases.LIBRARIES[library]():
        row: Row = {"library": library, "case": case.name, "defect": case.defect}
        options: dict[str, Any] = {"order": case.order, "seed": 0, **case.options}
        began = time.process_time()
        report = gradproof.check(case.fn, case.inputs, **options)
        row |= {"gradproof": str(report.verdict), "seconds": time.process_time() - began}
        row["failed"] = [each.name for each in report.checks if each.verdict == "failed"]
        if case.torch:
            for tool, fast in (("slow", False), ("fast", True)):
                began = time.process_time()
                row[tool] = pytorch(case, fast=fast)
                row[f"seconds {tool}"] = time.process_time() - began
        yield row


def pytorch(case: library_cases.Case, *, fast: bool) -> str:
    """What PyTorch's gradcheck says, and gradgradcheck where the second order is asked for."""
    from torch.autograd import gradcheck, gradgradcheck

    asked: list[Callable[..., bool]] = [gradcheck, gradgradcheck][: case.order]
    try:
        for tool in asked:
            tool(case.fn, case.inputs, fast_mode=fast)
    except Exception as error:  # what a library raises is its answer
        return (
            "failed" if "acobian" in str(error) or "expected to be zero" in str(error) else "error"
        )
    return "passed"


def asked(library: str, folder: Path) -> list[Row]:
    """The rows of a library, from a process of its own; last, the reason where it ended early."""
    command = [sys.executable, __file__, "--one", library, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line[1:]) for line in done.stdout.split("\n") if line.startswith("@")]
    if done.returncode:
        rows.append({"library": library, "error": done.stderr.strip().splitlines()[-1]})
    return rows


def is_false_alarm(row: Row) -> bool:
    return row.get("gradproof") == "failed" and not row["defect"]


def is_missed(row: Row) -> bool:
    return row.get("gradproof") != "failed" and bool(row.get("defect"))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """What the record begins with."""
    cases = [row for row in rows if "case" in row]
    wrong = [row for row in cases if row["defect"]]
    timed = [row for row in cases if "slow" in row]
    sums = {
        key: sum(row[key] for row in timed) for key in ("seconds", "seconds slow", "seconds fast")
    }
    return {
        "libraries": len({row["library"] for row in cases}),
        "derivatives": len(cases),
        "wrong": len(wrong),
        "found": sum(row["gradproof"] == "failed" for row in wrong),
        "false alarms": sum(map(is_false_alarm, cases)),
        "inconclusive": sum(row["gradproof"] == "inconclusive" for row in cases),
        "PyTorch asked": len(timed),
        "of them wrong": sum(bool(row["defect"]) for row in timed),
        "slow passes of wrong": sum(row["slow"] == "passed" for row in timed if row["defect"]),
        "fast passes of wrong": sum(row["fast"] == "passed" for row in timed if row["defect"]),
        "time / slow": round(sums["seconds"] / sums["seconds slow"], 2) if timed else None,
        "time / fast": round(sums["seconds"] / sums["seconds fast"], 2) if timed else None,
    }


def by_library(rows: Sequence[Row]) -> list[list[str]]:
    """A line a library: cases, right, wrong, found, false alarms, and what PyTorch's passes."""
    lines = []
    for name, version in library_cases.PINNED.items():
        cases = [row for row in rows if row["library"] == name and "case" in row]
        wrong = [row for row in cases if row["defect"]]
        passes = {
            tool: sum(row.get(tool) == "passed" for row in wrong) for tool in ("slow", "fast")
        }
        asked_ = any("slow" in row for row in cases)
        told = [str(count) if asked_ else "-" for count in passes.values()]
        found = sum(row["gradproof"] == "failed" for row in wrong)
        alarms = sum(map(is_false_alarm, cases))
        lines.append([f"{name} {version}", str(len(cases)), str(len(wrong)), str(found), *told])
        lines[-1].append(str(alarms))
    return lines


HEADS = ("library", "derivatives", "wrong", "refused", "slow passes them", "fast", "false alarms")


BLOCK = re.compile(r"(?<=```python\n)(.*?)(?=```)(```\n\n```text\n)(.*?)(?=```)", re.DOTALL)


def run_page(page: Path, folder: Path) -> list[str]:
    """Runs each block of a page in a process of its own and writes what it prints below it.

    Returns the blocks that printed something else than the page said, or ended with an error.
    """
    differ: list[str] = []

    def printed(found: re.Match[str]) -> str:
        code = f"import sys; sys.path.append({str(folder)!r}); import warnings\n"
        code += 'warnings.simplefilter("ignore")\n' + found[1]
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        if done.returncode or done.stdout != found[3]:
            differ.append(found[1] + done.stdout + done.stderr[-500:])
        return found[1] + found[2] + (found[3] if done.returncode else done.stdout)

    page.write_text(MARKED.sub(table, BLOCK.sub(printed, page.read_text())))
    return differ


MARKED = re.compile(r"(?<=<!-- libraries -->\n\n).*?(?=\n\n<!-- /libraries -->)", re.DOTALL)
RECORD = common.RESULTS / "libraries.json"


def table(_: re.Match[str] | None = None) -> str:
    """What docs/defects/libraries.md shows of the record."""
    content = json.loads(RECORD.read_text())
    told = content["summary"]
    text = (
        "Of {derivatives} hand-written derivatives of {libraries} libraries {wrong} are wrong. "
        "`gradproof.check` refuses {found} of these and {false alarms} right ones; it leaves "
        "{inconclusive} open. PyTorch's gradcheck applies to {of them wrong} wrong ones; its slow "
        "mode passes {slow passes of wrong} and its fast mode {fast passes of wrong} of them. "
        "`gradproof.check` takes {time / slow} times as long as the slow mode, since the functions "
        "are small, and {time / fast} times as long as the fast mode."
    ).format_map(told)
    lines = [text, "", common.markdown_table(HEADS, content["table"])]
    return "\n".join(lines)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--install", action="store_true", help="install the libraries and stop")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they are installed")
    parser.add_argument("--only", default="", help="names of libraries, joined by commas")
    parser.add_argument("--page", action="store_true", help="run the blocks of docs/defects")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the process of one library
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    if options.install:
        install(options.folder)
        return 0
    if options.page:
        differ = run_page(PAGE, options.folder)
        print("\n".join(differ) or "every block prints what the page shows")
        return int(bool(differ))
    if options.one:
        sys.path.append(str(options.folder))
        warnings.simplefilter("ignore")  # the libraries' own
        for row in rows_of(options.one):
            print("@" + json.dumps(row), flush=True)
        return 0
    names = options.only.split(",") if options.only else list(library_cases.LIBRARIES)
    names = names[:3] if options.quick else names
    rows: list[Row] = []
    with common.progress("libraries", len(names)) as advance:
        for name in names:
            rows += asked(name, options.folder)
            advance(name)
    common.show("Published libraries", HEADS, by_library(rows), markdown=options.markdown)
    told = summary(rows)
    print(json.dumps(told, indent=1))
    common.record(options.json, {"summary": told, "table": by_library(rows)})
    bad = [row for row in rows if "error" in row or is_false_alarm(row) or is_missed(row)]
    for row in bad:
        print("look at:", row)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
