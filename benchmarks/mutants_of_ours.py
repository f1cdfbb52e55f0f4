"""The tester is tested: mistakes made in our own judging code, and the tests that notice them.

One comparison, operator, constant or statement of `_measure`, `_judge`, `_verdict` or `_locate` is
changed at a time, in a copy of the tree, and the quick tests that reach the function around it are
run, the quickest first, until one fails. What survives is equivalent, or wants a test, or wants to
be deleted.

    mutants_of_ours.py --map reached.json --number 40 --seed 0 --seconds 60
    mutants_of_ours.py --map reached.json --at _judge/entries.py:140

`--map` is made first where it is not there: one run of the tests, in which every function of these
layers notes that it was reached. It belongs to the commit it was made at; make it anew for another.
A mutant that no test failed for within `--seconds` of tests, of which some were left, is "open": it
counts as not killed. Bar: 85 % of 200 killed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import _common as common
import hypothesis  # noqa: F401  # what every test imports is here before a process is forked
import numpy  # noqa: F401
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "gradproof"
LAYERS = ("_measure", "_judge", "_verdict", "_locate")
BAR = 0.85

SWAPPED: dict[type, tuple[type, ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        file: of the package.
        line: of it, from 1.
        function: around the change, `Class.function`; "" at the top of the module.
        kind: "comparison", "operator", "constant" or "statement".
        before: the changed piece of code.
        after: what stands there instead.
        start: where the piece begins in the file's bytes.
    """

    file: str
    line: int
    function: str
    kind: str
    before: str
    after: str
    start: int

    def applied(self, source: bytes) -> bytes:
        """The file with the change in it."""
        before = self.before.encode()
        assert source[self.start :].startswith(before)
        end = self.start + len(before)
        return source[: self.start] + self.after.encode() + source[end:]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    Attributes:
        state: "killed", "survived", "open" (tests were left when the time was over), or
            "unreached" by any test.
        by: the test that failed; "the import", or "time", where it ended otherwise.
        tests: how many were run.
        reaching: how many reach it.
        seconds: that it took.
    """

    state: str
    by: str
    tests: int
    reaching: int
    seconds: float


# The mutants of a file.


def mutants(file: str, source: bytes) -> Iterator[Mutant]:
    """Every change of a file, in order of place."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for function, node in _nodes(ast.parse(source), ""):
        for kind, changed in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before = source[start:end].decode()
            yield Mutant(file, node.lineno, function, kind, before, changed, start)


def _nodes(node: ast.AST, function: str) -> Iterator[tuple[str, Any]]:
    """Every node with the function around it; annotations, docstrings and imports left out."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            within = function
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                within = f"{function}.{child.name}".lstrip(".")
            yield within, child
            yield from _nodes(child, within)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(kind, the code instead) for what can be changed at this very node."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in SWAPPED.get(type(node.ops[0]), ()):
            yield "comparison", _with(node, ops=[other()])
    elif isinstance(node, (ast.BinOp, ast.BoolOp)):
        for other in SWAPPED.get(type(node.op), ()):
            yield "operator", _with(node, op=other())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "operator", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.AugAssign):
        for other in SWAPPED.get(type(node.op), ()):
            yield "operator", _with(node, op=other())
        yield "statement", "pass"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield "constant", repr(2 * node.value or 1)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "statement", "pass"


def _with(node: ast.AST, **fields: Any) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return ast.unparse(changed)


# A copy of the tree, and which tests reach what.


def copied(folder: Path) -> Path:
    """A copy of the tree as it is, without what git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def sources(tree: Path) -> dict[str, bytes]:
    """The files of the judging layers."""
    found = [file for layer in LAYERS for file in sorted((tree / PACKAGE / layer).glob("*.py"))]
    return {file.relative_to(tree / PACKAGE).as_posix(): file.read_bytes() for file in found}


def noting(file: str, source: bytes) -> str:
    """The file with a note of each function that is reached."""
    module = ast.parse(source)
    for function, node in _nodes(module, ""):
        if isinstance(node, ast.FunctionDef):
            note = ast.parse(f"_hits_.HITS.add({f'{file}:{function}'!r})").body
            node.body[_first(node) : _first(node)] = note
    place = _first(module) + (b"from __future__" in source)
    module.body[place:place] = ast.parse("from gradproof import _hits_").body
    return ast.unparse(ast.fix_missing_locations(module))


def _first(node: ast.FunctionDef | ast.Module) -> int:
    return int(ast.get_docstring(node) is not None)


class Reached:
    """A plugin of pytest: which functions each passed test reached, and how long it took."""

    def __init__(self) -> None:
        self.tests: dict[str, dict[str, Any]] = {}
        self._out: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what a test reaches."""
        from gradproof import _hits_

        _hits_.HITS.clear()
        started = time.perf_counter()
        result = yield
        taken = time.perf_counter() - started
        if item.nodeid not in self._out:
            self.tests[item.nodeid] = {"seconds": taken, "functions": sorted(_hits_.HITS)}
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out what fails here, where there is no repository."""
        if report.failed or report.skipped:
            self._out.add(report.nodeid)


def mapped(tests: Sequence[str]) -> dict[str, Any]:
    """Test -> its time and the functions it reaches, of the tests that pass."""
    with tempfile.TemporaryDirectory() as name:
        tree = copied(Path(name))
        for file, source in sources(tree).items():
            (tree / PACKAGE / file).write_text(noting(file, source), encoding="utf-8")
        (tree / PACKAGE / "_hits_.py").write_text("HITS = set()\n", encoding="utf-8")
        tried = _in_a_process(_map, tree, tests, limit=None)
        if not tried:
            raise SystemExit((tree / _SAID).read_text("utf-8"))
        return {test: found for test, found in tried.items() if found.get("functions")}


def _map(tests: Sequence[str], send: Connection) -> None:
    plugin = Reached()
    pytest.main([*tests, *_OPTIONS], plugins=[plugin])
    send.send(plugin.tests)


# Tests of one mutant, in a process of its own.

_FIRST = 20  # tests; what is noticed is mostly noticed by one of these
_LOADING = 120.0  # seconds to load files of tests, beyond which a mutant is one that never ends
_SAID = "output_of_tests.txt"
_OPTIONS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--no-header",
    "--tb=no",
    "--assert=plain",
)


class Chosen:
    """A plugin of pytest: runs these tests in this order, until one fails or the time is over."""

    def __init__(self, tests: Sequence[str], seconds: float) -> None:
        self._order = {test: place for place, test in enumerate(tests)}
        self._until = time.perf_counter() + seconds
        self.failed, self.run, self.over = "", 0, False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Keep these tests, in this order."""
        self._session = session
        wanted = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(wanted, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which one fails."""
        self.run += report.when == "call"
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_runtest_logfinish(self) -> None:
        """Run no more where the time is over."""
        self.over = time.perf_counter() > self._until
        if self.over:
            self._session.shouldstop = "the time is over"


def _tested(tests: Sequence[str], seconds: float, send: Connection) -> None:
    plugin = Chosen(tests, seconds)
    files = sorted({test.partition("::")[0] for test in tests})
    status = pytest.main([*files, *_OPTIONS, "-x"], plugins=[plugin])
    broken = status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not plugin.over
    send.send((plugin.failed or ("the import" if broken else ""), plugin.run))


def _in_a_process(target: Any, tree: Path, *arguments: Any, limit: float | None) -> Any:
    """What `target` sends from a process that has the packages loaded, but nothing of ours.

    None where it did not end within the limit.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_inside, args=(target, tree, arguments, send))
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(limit) else None
    except EOFError:  # it ended without a word
        return None
    finally:
        process.kill()
        process.join()


def _inside(target: Any, tree: Path, arguments: tuple[Any, ...], send: Connection) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "gradproof"]:
        del sys.modules[name]
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path[:] = [str(tree / "src"), *(path for path in sys.path if "gradproof" not in path)]
    with Path(_SAID).open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        target(*arguments, send)


def judged(mutant: Mutant, tree: Path, reached: dict[str, Any], options: Any, mark: int) -> Outcome:
    """What becomes of a mutant; the tree is as it was afterwards.

    Args:
        mutant: what is changed.
        tree: the copy.
        reached: the map.
        options: of the command line.
        mark: another number for each mutant: the file's age, by which Python knows its bytecode.
    """
    started, file = time.perf_counter(), tree / PACKAGE / mutant.file
    tests = reaching(mutant, reached)
    if not tests:
        return Outcome("unreached", "", 0, 0, 0.0)
    source, stat = file.read_bytes(), file.stat()
    try:
        file.write_bytes(mutant.applied(source))
        os.utime(file, (stat.st_atime, int(stat.st_mtime) + mark))
        by, run = _noticed(tree, tests, options.seconds)
    finally:
        file.write_bytes(source)
        os.utime(file, (stat.st_atime, stat.st_mtime))
    state = "killed" if by else "survived" if run >= len(tests) else "open"
    return Outcome(state, by, run, len(tests), time.perf_counter() - started)


def _noticed(tree: Path, tests: Sequence[str], seconds: float) -> tuple[str, int]:
    """The first test that fails, and how many were run: a few first, whose files load quickly."""
    count = 0
    for part in filter(None, (tests[:_FIRST], tests[_FIRST:])):
        started = time.perf_counter()
        limit = 3 * seconds + _LOADING
        by, run = _in_a_process(_tested, tree, part, seconds, limit=limit) or ("time", 0)
        count, seconds = count + run, seconds - (time.perf_counter() - started)
        if by or seconds < 0:
            return by, count
    return "", count


def reaching(mutant: Mutant, reached: dict[str, Any]) -> list[str]:
    """The tests that reach the function around a mutant, or any of its module, quickest first."""
    here = f"{mutant.file}:{mutant.function}"
    found = {
        test: each["seconds"]
        for test, each in reached.items()
        if any(
            one == here or (not mutant.function and one.startswith(here))
            for one in each["functions"]
        )
    }
    return sorted(found, key=lambda test: found[test])


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if not options.map.exists():
        options.map.write_text(json.dumps(mapped(options.tests)), encoding="utf-8")
    reached = json.loads(options.map.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        tree = copied(Path(name))
        chosen = sample(tree, options)
        found: list[tuple[Mutant, Outcome]] = []
        with common.progress("mutants", len(chosen)) as advance:
            for mark, mutant in enumerate(chosen, 1):
                advance(f"{mutant.file}:{mutant.line}")
                found.append((mutant, judged(mutant, tree, reached, options, mark)))
                common.record(options.json, recorded(found, options))
    rows = [
        (f"{m.file}:{m.line}", m.before, m.after, o.state, f"{o.tests:,} of {o.reaching:,}")
        for m, o in found
        if o.state != "killed"
    ]
    columns = ("where", "before", "after", "", "tests")
    common.show("Mutants that no test noticed", columns, rows, markdown=options.markdown)
    states = Counter(outcome.state for _, outcome in found)
    killed = states["killed"] / max(1, len(found))
    print(f"{killed:.0%} of {len(found)} killed (bar {BAR:.0%}): {dict(states)}")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--number", type=int, default=200, help="of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant")
    parser.add_argument("--map", type=Path, required=True, help="which tests reach what; made once")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="of which the map is made")
    parser.add_argument("--at", nargs="*", default=[], help="FILE, FILE:LINE: all mutants there")
    options = parser.parse_args(arguments)
    if options.quick:
        options.number = min(options.number, 2)
    return options


def sample(tree: Path, options: argparse.Namespace) -> list[Mutant]:
    """The mutants that are tried: those named, or a random sample of all."""
    every = [m for file, source in sources(tree).items() for m in mutants(file, source)]
    if options.at:
        return [m for m in every if {m.file, f"{m.file}:{m.line}"} & set(options.at)]
    return random.Random(options.seed).sample(every, min(options.number, len(every)))


def recorded(
    found: Sequence[tuple[Mutant, Outcome]], options: argparse.Namespace
) -> dict[str, Any]:
    """What is written to the record."""
    states = Counter(outcome.state for _, outcome in found)
    return {
        "seed": options.seed,
        "seconds": options.seconds,
        "tests": options.tests,
        "counts": dict(states),
        "mutants": [{**asdict(mutant), **asdict(outcome)} for mutant, outcome in found],
    }


if __name__ == "__main__":
    sys.exit(main())
