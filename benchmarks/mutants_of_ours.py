"""The tester is tested: mistakes made in our own judging code, and the tests that notice them.

One comparison, operator, constant or statement of `_measure`, `_judge`, `_verdict` or `_locate` is
changed at a time, in a forked process whose package and tests are loaded, and the quick tests that
reach the changed statement are run until one fails. What survives is equivalent, or wants a test,
or wants to be deleted.

    mutants_of_ours.py --map reached.json --number 40 --seed 0 --seconds 60
    mutants_of_ours.py --map reached.json --at _judge/entries.py:140

`--map` is made first where it is not there: one run of the tests, in which every run of statements
without a branch notes that it was reached. Tests that it lacks are added; it belongs to the commit
it was made at: make it anew where the package has changed. First are asked the tests that noticed
other mutants, then those that reach least else and are soonest done. A mutant that no test failed
for within `--seconds` of tests (of the processor, so that the load does not matter), of which some
were left, is "open": it counts as not killed. Bar: 85 % of 200.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import importlib
import inspect
import itertools
import json
import math
import multiprocessing
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import _common as common
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gradproof"
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


# The loaded package changed in place, in a process that is thrown away afterwards.


def sources() -> dict[str, bytes]:
    """The files of the judging layers."""
    found = [file for layer in LAYERS for file in sorted((PACKAGE / layer).glob("*.py"))]
    return {file.relative_to(PACKAGE).as_posix(): file.read_bytes() for file in found}


def changed(file: str, source: bytes | str) -> bool:
    """Makes a loaded module do what this source says; False where none of it could be changed.

    Functions get their new code, wherever else they were imported to; numbers and the like are
    replaced in every module of the package that has them by that name.
    """
    name = "gradproof." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    module = importlib.import_module(name)
    fresh = {"__name__": name, "__package__": module.__package__, "__file__": module.__file__}
    exec(compile(source, str(module.__file__), "exec"), fresh)
    return _replaced(module, fresh, name)


def _replaced(owner: Any, fresh: Mapping[str, Any], name: str) -> bool:
    """Whether any member of a module or class is now another."""
    found = False
    for member, new in fresh.items():
        old = vars(owner).get(member)
        if isinstance(old, type) and old.__module__ == name:
            found |= _replaced(old, vars(new), name)
        elif (function := _function(old, name)) is not None:
            found |= _recoded(function, _function(new, name))
        elif _plain(old) and _plain(new) and not member.startswith("__") and _differ(old, new):
            found = True
            for holder in [owner, *_modules()]:
                if vars(holder).get(member) is old:
                    setattr(holder, member, new)
    return found


def _plain(value: Any) -> bool:
    """Whether a value is made of numbers and texts alone, or of records of these."""
    if is_dataclass(value) and not isinstance(value, type):
        return all(_plain(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, dict):
        return all(map(_plain, [*value, *value.values()]))
    if isinstance(value, (tuple, list, frozenset)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (int, float, str))


def _differ(one: Any, other: Any) -> bool:
    """Whether plain values do: by what they say, for the classes of records were made anew."""
    return repr(one) != repr(other) if "frozenset" not in repr(one) else bool(one != other)


def _modules() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("gradproof.")]


def _function(member: Any, name: str) -> FunctionType | None:
    """The function below decorators; None where it is none of this module."""
    for below in ("__func__", "fget", "func"):
        member = getattr(member, below, member)
    member = inspect.unwrap(member) if callable(member) else None
    ours = isinstance(member, FunctionType) and member.__module__ == name
    return member if ours else None


def _recoded(old: FunctionType, new: FunctionType | None) -> bool:
    """Whether a function's code or its defaults are now others."""
    if new is None or len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
        return False
    differs = old.__code__ != new.__code__
    old.__code__ = new.__code__
    for defaults in ("__defaults__", "__kwdefaults__"):
        if repr(getattr(old, defaults)) != repr(getattr(new, defaults)):
            setattr(old, defaults, getattr(new, defaults))
            differs = True
    return differs


# Which statements are reached.

_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.FunctionDef)


@dataclass(frozen=True)
class Straight:
    """Statements of a function that are run one after the other, with no branch between them.

    Attributes:
        name: `file:Class.function#3`, the fourth of its function.
        function: that they are in.
        body: list of statements that holds them.
        at: position of the first in it.
    """

    name: str
    function: str
    body: list[ast.stmt]
    at: int

    @property
    def line(self) -> int:
        """Of the first of them, from 1."""
        return self.body[min(self.at, len(self.body) - 1)].lineno


def straights(file: str, module: ast.Module) -> list[Straight]:
    """Those of all functions of a file, in order."""
    numbers: Counter[str] = Counter()
    found = []
    for function, node in [("", module), *_nodes(module, "")]:
        if isinstance(node, (ast.Module, ast.ClassDef)) or not function:
            continue
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if not isinstance(body, list):
                continue
            first = int(isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None)
            for at in range(first, max(len(body), first + 1)):
                if body and (at == first or isinstance(body[at - 1], _COMPOUND)):
                    found.append(
                        Straight(f"{file}:{function}#{numbers[function]}", function, body, at)
                    )
                    numbers[function] += 1
    return found


def noting(file: str, source: bytes) -> str:
    """The file with a note wherever statements that run one after the other begin."""
    module = ast.parse(source)
    for each in reversed(straights(file, module)):
        each.body[each.at : each.at] = ast.parse(f"reached_by_tests({each.name!r})").body
    return ast.unparse(ast.fix_missing_locations(module))


def around(mutant: Mutant, files: Mapping[str, bytes]) -> set[str]:
    """The statements that a mutant may change: its own, or those that name what it changes."""
    own = straights(mutant.file, module := ast.parse(files[mutant.file]))
    if here := [each for each in own if each.function == mutant.function]:
        before = [each for each in here if each.line <= mutant.line]
        return {max(before or here[:1], key=lambda each: each.line).name}
    named = _names(module, mutant.line)
    found: set[str] = set()
    seen = set(named)
    while named:
        name = named.pop()
        for file, source in files.items():
            inside, further = _naming(file, source, name)
            found |= inside
            named |= further - seen
            seen |= further
    return found or {each.name for each in own}


def _names(module: ast.Module, line: int) -> set[str]:
    """What the statement of a module around this line defines."""
    for statement in module.body:
        if statement.lineno <= line <= (statement.end_lineno or 0):
            if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
                return {statement.name}
            nodes = ast.walk(statement)
            return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def _naming(file: str, source: bytes, name: str) -> tuple[set[str], set[str]]:
    """The statements that use a name, and what is defined by it outside of functions."""
    if name.encode() not in source:
        return set(), set()
    module = ast.parse(source)
    own, inside, further = straights(file, module), set[str](), set[str]()
    for function, node in _nodes(module, ""):
        used = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        if used or (isinstance(node, ast.Attribute) and node.attr == name):
            before = [e for e in own if e.function == function and e.line <= node.lineno]
            if before:
                inside.add(max(before, key=lambda each: each.line).name)
            else:
                further |= _names(module, node.lineno)
    return inside, further


# Tests, in a process forked from one that has collected them all.

_STARTING = 0.01  # seconds that any test takes
_LOADING = 60.0  # seconds beyond those of tests, after which a mutant is one that never ends
_SHARED = 30  # times as long it may wait for a processor, which others use too
_OPTIONS = ("-qq", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--assert=plain")


class Trials:
    """A plugin of pytest: once the tests are collected, it tries mutants instead of running them.

    Attributes:
        failed: in a forked process, the tests that failed.
        out: those that failed or were skipped.
        noticed: how many mutants each noticed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.failed: list[str] = []
        self.out: set[str] = set()
        self.noticed: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self.failed.append(report.nodeid)
        if report.failed or report.skipped:
            self.out.add(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Make the map, or what is missing of it, then try the sample."""
        self.items = {item.nodeid: item for item in session.items}
        where, reached = self._options.map, {"statements": [], "tests": {}}
        if where.exists():
            reached = json.loads(where.read_text("utf-8"))
        if any(test not in reached["tests"] for test in self.items):
            reached = _forked(self._reached, reached, limit=None)
            where.write_text(json.dumps(reached), encoding="utf-8")
        chosen, found = sample(self._options), []
        with common.progress("mutants", len(chosen)) as advance:
            for mutant in chosen:
                advance(f"{mutant.file}:{mutant.line}")
                found.append((mutant, self._judged(mutant, reached)))
                common.record(self._options.json, recorded(found, self._options))
        told(found, self._options.markdown)
        return True

    def _reached(self, known: dict[str, Any]) -> dict[str, Any]:
        """Test -> its time and the statements it reaches, none of it where it does not pass.

        Those that are `known` are not run again.
        """
        hits: set[str] = set()
        builtins.reached_by_tests = hits.add  # type: ignore[attr-defined]
        numbers = {name: number for number, name in enumerate(known["statements"])}
        for file, source in sources().items():
            changed(file, noting(file, source))
        found = dict(known["tests"])
        left = [item for test, item in self.items.items() if test not in found]
        for item, following in _in_turn(left):
            hits.clear()
            started = time.perf_counter()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            taken = time.perf_counter() - started
            told = set() if item.nodeid in self.out else hits
            reached = sorted(numbers.setdefault(name, len(numbers)) for name in told)
            found[item.nodeid] = {"seconds": taken, "reached": reached}
        return {"statements": list(numbers), "tests": found}

    def _judged(self, mutant: Mutant, reached: dict[str, Any]) -> Outcome:
        """What becomes of a mutant."""
        started, seconds = time.perf_counter(), self._options.seconds
        files = sources()
        ordered = reaching(around(mutant, files), reached, self.noticed)
        tests = [test for test in ordered if test in self.items]
        if not tests:
            return Outcome("unreached", "", 0, 0, 0.0)
        source = mutant.applied(files[mutant.file])
        tried = _forked(self._noticed, mutant.file, source, tests, limit=seconds + _LOADING)
        by, run = tried or ("time", 0)
        self.noticed[by] += 1
        state = "killed" if by else "survived" if run >= len(tests) else "open"
        return Outcome(state, by, max(run, 0), len(tests), time.perf_counter() - started)

    def _noticed(self, file: str, source: bytes, tests: Sequence[str]) -> tuple[str, int]:
        """The first test that fails, and how many were run; -1 where nothing could be changed."""
        until = time.process_time() + self._options.seconds
        try:
            if not changed(file, source):
                return "", -1
        except Exception:  # no such program: the import fails
            return "the import", 0
        run = 0
        for item, following in _in_turn([self.items[test] for test in tests]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            run += 1
            if self.failed or time.process_time() > until:
                break
        return "".join(self.failed[:1]), run


def _in_turn(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the next one."""
    return itertools.zip_longest(items, items[1:])


def _forked(target: Callable[..., Any], *arguments: Any, limit: float | None) -> Any:
    """What a function returns in a process of its own; None where that did not end in time.

    The limit is in seconds of the processor: another that is busy makes no mutant an endless one.
    """
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_inside, args=(target, arguments, send, limit))
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(limit and _SHARED * limit) else None
    except EOFError:  # it ended without a word
        return None
    finally:
        process.kill()
        process.join()


def _inside(
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    send: Connection,
    limit: float | None,
) -> None:
    if limit is not None:
        until = math.ceil(time.process_time() + limit)
        resource.setrlimit(resource.RLIMIT_CPU, (until, until))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    send.send(target(*arguments))


def reaching(
    statements: set[str], reached: dict[str, Any], noticed: Mapping[str, int]
) -> list[str]:
    """The tests that reach any of these statements.

    First those that noticed most other mutants, then those that reach least else, and soonest: a
    test that reaches everything depends on little of it, and a long one takes the time of many.
    Those of one function of tests are alike: the second comes where one of twice that does, the
    third of three times.
    """
    wanted = {at for at, name in enumerate(reached["statements"]) if name in statements}
    cheapest = sorted(
        (len(each["reached"]) * max(each["seconds"], _STARTING), test)
        for test, each in reached["tests"].items()
        if not wanted.isdisjoint(each["reached"])
    )
    seen: Counter[str] = Counter()
    order = []
    for cost, test in cheapest:
        function = test.partition("[")[0]
        seen[function] += 1
        order.append((-noticed.get(test, 0), seen[function] * cost, test))
    return [test for *_, test in sorted(order)]


def told(found: Sequence[tuple[Mutant, Outcome]], markdown: bool) -> None:
    """Prints what no test noticed, and how many were killed."""
    rows = [
        (f"{m.file}:{m.line}", m.before, m.after, o.state, f"{o.tests:,} of {o.reaching:,}")
        for m, o in found
        if o.state != "killed"
    ]
    columns = ("where", "before", "after", "", "tests")
    common.show("Mutants that no test noticed", columns, rows, markdown=markdown)
    states = Counter(outcome.state for _, outcome in found)
    killed = states["killed"] / max(1, len(found))
    print(f"{killed:.0%} of {len(found)} killed (bar {BAR:.0%}): {dict(states)}")


class WithoutJax(PathFinder):
    """A finder that finds no JAX, whose threads do not stand a fork: its tests are skipped."""

    @classmethod
    def find_spec(cls, name: str, *where: Any) -> ModuleSpec | None:
        """Where a module is."""
        return None if name.partition(".")[0] == "jax" else super().find_spec(name, *where)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    os.chdir(ROOT)
    sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutJax
    status = pytest.main([*options.tests, *_OPTIONS], plugins=[Trials(options)])
    return int(status)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--number", type=int, default=200, help="of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for one mutant")
    parser.add_argument("--map", type=Path, required=True, help="which tests reach what; made once")
    parser.add_argument("--layers", nargs="*", default=LAYERS, help="FOLDER, FILE: of the sample")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="of which the map is made")
    parser.add_argument("--at", nargs="*", default=[], help="FILE, FILE:LINE: all mutants there")
    options = parser.parse_args(arguments)
    if options.quick:
        options.number = min(options.number, 2)
    return options


def sample(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that are tried: those named, or a random sample of all."""
    every = [m for file, source in sources().items() for m in mutants(file, source)]
    if options.at:
        return [m for m in every if {m.file, f"{m.file}:{m.line}"} & set(options.at)]
    every = [m for m in every if m.file.startswith(tuple(options.layers))]
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
