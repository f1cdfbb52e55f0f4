"""The pytest plugin: the fixture `check_derivatives`, and one report of a whole run.

pytest loads this module in every run, so it loads nothing heavy itself; what it needs is imported
when a test uses the fixture. docs/pytest.md explains the options.

What a test checked travels on pytest's own report of that test, as plain values. Under
pytest-xdist it so reaches the main process as soon as the test ends, and is not lost with a
worker that crashes later.
"""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from gradproof import _output
from gradproof._asserts import WAYS, default_is, settle, undecided_line, way_of
from gradproof._data.frames import without_ours
from gradproof._data.records import Report, Verdict
from gradproof._render import json, summary
from gradproof.errors import DerivativeError, UsageError

MARKER = "gradproof(**options): defaults of check_derivatives in this module, class or function"

Checked = dict[str, Any]  # what is kept of one report: strings and numbers only

_BEFORE = pytest.StashKey[str]()
_CHECKED = pytest.StashKey[list[Checked]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the two options and the ini option."""
    group = parser.getgroup("gradproof", "derivatives (gradproof)")
    group.addoption(
        "--gradproof-report",
        metavar="FILE",
        help="write what every check_derivatives of this run found to FILE.html or FILE.json",
    )
    group.addoption(
        "--gradproof-seed",
        metavar="N",
        type=int,
        help="seed of the probes of every check_derivatives that is given none",
    )
    parser.addini(
        "gradproof_inconclusive",
        "what an inconclusive check does to its test: warn (default), error or ignore",
        default="warn",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what the options cannot mean, before any test runs."""
    config.addinivalue_line("markers", MARKER)
    if _inconclusive(config) not in WAYS:
        raise pytest.UsageError(
            f"gradproof_inconclusive: expected one of {', '.join(WAYS)}, "
            f"got {_inconclusive(config)!r}"
        )
    config.stash[_BEFORE] = default_is(_inconclusive(config))
    seed = config.getoption("gradproof_seed")
    if seed is not None and seed < 0:
        raise pytest.UsageError(f"--gradproof-seed: expected an integer >= 0, got {seed}")
    file = config.getoption("gradproof_report")
    if file is not None:
        try:  # now, not after an hour of tests
            _output.format_of(file, "--gradproof-report")
            _output.prepare(file, "--gradproof-report")
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist only sends
        config.pluginmanager.register(_Collector(file), "gradproof-collector")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Runs inside this process are over: what an inconclusive check did before it does again."""
    if _BEFORE in config.stash:
        default_is(config.stash[_BEFORE])


def _inconclusive(config: pytest.Config) -> str:
    return str(config.getini("gradproof_inconclusive"))


@pytest.fixture
def check_derivatives(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Check derivatives as `gradproof.assert_derivatives` does, and count them in the summary.

    `check_derivatives(fn, inputs, kwargs=None, *, inconclusive=None, **options)` returns the
    report. Options that it is not given come from `@pytest.mark.gradproof(...)`, the nearest mark
    first.

    Raises:
        DerivativeError: a derivative was refuted; its message is the report. Also where the
            check is inconclusive and that is an error.
        UsageError: as `gradproof.assert_derivatives`, or a mark with an option that it does not
            have.
    """

    def check_derivatives(
        fn: Callable[..., Any],
        inputs: Any,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Report:
        __tracebackhide__ = True
        import gradproof

        chosen = {**_defaults(request, gradproof.check), **options}
        way = way_of(chosen.pop("inconclusive", None))
        try:
            report = gradproof.check(fn, inputs, kwargs, **chosen)
        except Exception as error:  # of the user's function, or UsageError: not our frames
            without_ours(error)
            raise error
        if options.get("seed") is None:
            report = _output.repeated(report, _repeat(request, report))
        _keep(request, report, way)
        settle(report, way, stacklevel=3)
        return report

    return check_derivatives


def _defaults(request: pytest.FixtureRequest, check: Callable[..., Any]) -> dict[str, Any]:
    """Options from the marks, the nearest winning, and the seed of the command line."""
    __tracebackhide__ = True
    seed = request.config.getoption("gradproof_seed")
    options: dict[str, Any] = {} if seed is None else {"seed": seed}
    known = ["inconclusive", *list(inspect.signature(check).parameters)[3:]]  # after kwargs
    for mark in reversed(list(request.node.iter_markers("gradproof"))):
        if mark.args:
            raise UsageError(f"pytest.mark.gradproof: options have names, got {mark.args[0]!r}")
        for name in mark.kwargs:
            if name not in known:
                raise UsageError(
                    f"pytest.mark.gradproof: unknown option {name!r}; there are {', '.join(known)}"
                )
        options.update(mark.kwargs)
    return options


def _repeat(request: pytest.FixtureRequest, report: Report) -> str:
    node = str(request.config.cwd_relative_nodeid(request.node.nodeid))
    return shlex.join(["pytest", node, f"--gradproof-seed={report.seed}"])


def _keep(request: pytest.FixtureRequest, report: Report, way: str) -> None:
    wanted = request.config.getoption("gradproof_report") is not None
    kept = {
        "verdict": report.verdict.value,
        "resolution": summary.resolution(report),
        "told": way == "warn" and report.verdict is Verdict.INCONCLUSIVE,
        "json": json.dump(report) if wanted else "",
    }
    request.node.stash.setdefault(_CHECKED, []).append(kept)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send along what was checked, and shorten pytest's line on a refuted derivative."""
    told = yield
    if checked := item.stash.get(_CHECKED, []):
        vars(told)["gradproof"] = list(checked)
        checked.clear()
    error = call.excinfo.value if call.excinfo else None
    crash = getattr(told.longrepr, "reprcrash", None)
    if isinstance(error, DerivativeError) and error.report is not None and crash is not None:
        undecided = error.report.verdict is not Verdict.FAILED
        crash.message = (undecided_line if undecided else summary.headline)(error.report)
    return told


def _checked_in(told: object) -> list[Checked]:
    checked: list[Checked] = getattr(told, "gradproof", [])
    return checked


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """A test that passed but for an undecided derivative is counted, and shown, as such."""
    if not (report.passed and report.when == "call") or hasattr(report, "wasxfail"):
        return None
    if not any(checked["told"] for checked in _checked_in(report)):
        return None
    return "inconclusive", "?", ("INCONCLUSIVE", {"yellow": True})


class _Collector:
    """Gathers what all tests checked, in the process that reports to the user."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._path = "" if file is None else os.path.abspath(file)  # tests may move elsewhere
        self._checked: list[tuple[str, Checked]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._checked += [(report.nodeid, checked) for checked in _checked_in(report)]

    def pytest_sessionfinish(self) -> None:
        if self._file is None:
            return
        reports = [(name, json.load(checked["json"])) for name, checked in self._named()]
        made = _output.as_html if self._file.lower().endswith(".html") else _output.as_json
        _output.write(self._path, made(reports), "--gradproof-report")

    def _named(self) -> list[tuple[str, Checked]]:
        """Each with a name of its own: the second check of a test is `test_op #2`."""
        count: dict[str, int] = {}
        named = []
        for node, checked in sorted(self._checked, key=lambda pair: pair[0]):
            count[node] = count.get(node, 0) + 1
            named.append((node if count[node] == 1 else f"{node} #{count[node]}", checked))
        return named

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._checked:
            return
        rows = [(Verdict(c["verdict"]), float(c["resolution"])) for _, c in self._checked]
        bad = any(verdict is Verdict.FAILED for verdict, _ in rows)
        open_ = any(verdict not in (Verdict.PASSED, Verdict.FAILED) for verdict, _ in rows)
        colour = "red" if bad else "yellow" if open_ else "green"
        terminalreporter.write_line(f"gradproof: {summary.tally(rows)}", **{colour: True})
        if self._file is not None:
            terminalreporter.write_line(f"gradproof: report in {self._file}")
