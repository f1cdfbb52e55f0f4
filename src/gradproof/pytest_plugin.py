"""The pytest plugin: `check_derivatives`, other faces in its place, and one report of a whole run.

pytest loads this module in every run, so it loads nothing heavy itself; what it needs is imported
when a test uses the fixture. docs/pytest.md explains the options.

What a test checked travels on pytest's own report of that test, as plain values. Under
pytest-xdist it so reaches the main process as soon as the test ends, and is not lost with a
worker that crashes later.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shlex
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from gradproof import _asserts
from gradproof._asserts import WAYS, assert_derivatives, undecided_line
from gradproof._data import options
from gradproof._data.records import Report, Verdict
from gradproof._data.settings import parse_seed
from gradproof._render import json, prepare_file, save_reports, summary
from gradproof.errors import DerivativeError, UsageError

MARKER = "gradproof(**options): defaults of check_derivatives in this module, class or function"

Checked = dict[str, Any]  # what is kept of one report: strings and numbers only

_CHECKED = pytest.StashKey[list[Checked]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and the ini option."""
    group = parser.getgroup("gradproof", "derivatives (gradproof)")
    group.addoption(
        "--gradproof-report",
        metavar="FILE",
        help="write what every check of this run found to FILE.html or FILE.json",
    )
    group.addoption(
        "--gradproof-seed",
        metavar="N",
        type=int,
        help="seed of the probes of every check that is given none",
    )
    group.addoption(
        "--gradproof-gradcheck",
        choices=("replace",),
        help="put gradproof's in the place of torch.autograd.gradcheck and gradgradcheck",
    )
    parser.addini(
        "gradproof_inconclusive",
        "what an inconclusive check does to its test: warn (default), error or ignore",
        default="warn",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what the options cannot mean, before any test runs."""
    config.addinivalue_line("markers", MARKER)
    file = config.getoption("gradproof_report")
    try:  # now, not after an hour of tests
        way = config.getini("gradproof_inconclusive")
        options.parse_choice("gradproof_inconclusive", way, WAYS)
        if (seed := config.getoption("gradproof_seed")) is not None:
            parse_seed("--gradproof-seed", seed)
        if file is not None:
            prepare_file(file, "--gradproof-report")
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    run = _Run(config)
    config.pluginmanager.register(run, "gradproof-run")
    undo = ExitStack()
    config.add_cleanup(undo.close)
    undo.callback(_asserts.set_run, _asserts.set_run(run))
    if run.replaces_gradcheck:
        if importlib.util.find_spec("torch") is None:
            raise pytest.UsageError("--gradproof-gradcheck: PyTorch is not installed")
        from gradproof.torch._suite import replace_gradcheck

        undo.enter_context(replace_gradcheck())
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist only sends
        shows = ("collectonly", "showfixtures", "show_fixtures_per_test")
        runs_tests = not any(config.getoption(name) for name in shows)
        collector = _Collector(file if runs_tests else None)
        config.pluginmanager.register(collector, "gradproof-collector")


@pytest.fixture
def check_derivatives(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Check derivatives as `gradproof.assert_derivatives` does, and count them in the summary.

    `check_derivatives(fn, inputs, kwargs=None, *, inconclusive=None, **options)` returns the
    report. Options that it is not given come from `@pytest.mark.gradproof(...)`, the nearest mark
    first.

    Raises:
        DerivativeError: a derivative was refuted; its message is the report. Also where the
            check is inconclusive and that is an error.
        UsageError: as `gradproof.assert_derivatives`, or a mark with an option without a name.
    """

    def check_derivatives(fn: Any, inputs: Any, kwargs: Any = None, **options: Any) -> Report:
        __tracebackhide__ = True
        return assert_derivatives(fn, inputs, kwargs, **{**_options_of_marks(request), **options})

    return check_derivatives


def _options_of_marks(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options from the marks, the nearest winning."""
    __tracebackhide__ = True
    chosen: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("gradproof"))):
        if mark.args:
            raise UsageError(f"pytest.mark.gradproof: options have names, got {mark.args[0]!r}")
        chosen.update(mark.kwargs)
    return chosen


class _Run(_asserts.Run):
    """A run of pytest, which all asserting faces follow; it knows which test is at work."""

    def __init__(self, config: pytest.Config) -> None:
        self.inconclusive = str(config.getini("gradproof_inconclusive"))
        self._config = config
        self.needs_reports = config.getoption("gradproof_report") is not None
        self.replaces_gradcheck = config.getoption("gradproof_gradcheck") is not None
        self._item: pytest.Item | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Remember the test, whose checks are all that run meanwhile, those of fixtures too."""
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None

    def options(self) -> dict[str, Any]:
        """The seed that the run was given, if any."""
        seed = self._config.getoption("gradproof_seed")
        return {} if seed is None else {"seed": seed}

    def count_report(self, report: Report, way: str) -> Report:
        """Count the report, which the line for a shell repeats that runs its test alone."""
        if self._item is None:  # a file is being imported
            return report
        report = dataclasses.replace(report, repeat=self._repeat_line(self._item, report.seed))
        undecided = report.verdict is Verdict.INCONCLUSIVE
        self._keep(
            verdict=report.verdict.value,
            resolution=summary.resolution(report),
            is_only_warned_of=way == "warn" and undecided,
            json=json.dump(report) if self.needs_reports else "",
        )
        return report

    def count_pass(self, bound: float) -> None:
        self._keep(verdict=Verdict.PASSED.value, resolution=bound, is_only_warned_of=False, json="")

    def _keep(self, **checked: Any) -> None:
        if self._item is not None:
            self._item.stash.setdefault(_CHECKED, []).append(checked)

    def _repeat_line(self, item: pytest.Item, seed: int) -> str:
        # Of the same name, pytest's own takes a text in some versions, and none in others.
        file, *names = item.nodeid.split("::")
        begun_in = self._config.invocation_params.dir
        node = "::".join([os.path.relpath(self._config.rootpath / file, begun_in), *names])
        more = ["--gradproof-gradcheck=replace"] if self.replaces_gradcheck else []
        return shlex.join(["pytest", node, *more, f"--gradproof-seed={seed}"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send along what was checked, and shorten pytest's line on a refuted derivative."""
    report = yield
    if kept := item.stash.get(_CHECKED, []):
        vars(report)["gradproof"] = list(kept)
        kept.clear()
    error = call.excinfo.value if call.excinfo else None
    crash = getattr(report.longrepr, "reprcrash", None)
    if isinstance(error, DerivativeError) and error.report is not None and crash is not None:
        undecided = error.report.verdict is not Verdict.FAILED
        crash.message = (undecided_line if undecided else summary.headline)(error.report)
    return report


def _checks_of_test(report: object) -> list[Checked]:
    checked: list[Checked] = getattr(report, "gradproof", [])
    return checked


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """A test that passed but for an undecided derivative is counted, and shown, as such."""
    if not (report.passed and report.when == "call") or hasattr(report, "wasxfail"):
        return None
    if not any(checked["is_only_warned_of"] for checked in _checks_of_test(report)):
        return None
    return "inconclusive", "?", ("INCONCLUSIVE", {"yellow": True})


class _Collector:
    """Gathers what all tests checked, in the process that reports to the user."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._path = "" if file is None else os.path.abspath(file)  # tests may move elsewhere
        self._checked: list[tuple[str, Checked]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._checked += [(report.nodeid, checked) for checked in _checks_of_test(report)]

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        if self._file is not None:
            named = self._named_checks()
            reports = [(name, json.load(checked["json"])) for name, checked in named]
            save_reports(reports, self._path, "--gradproof-report")

    def _named_checks(self) -> list[tuple[str, Checked]]:
        """Each with a name of its own: the second check of a test is `test_op #2`."""
        count = Counter[str]()
        named = []
        for node, checked in sorted(self._checked, key=lambda pair: pair[0]):
            count[node] += 1
            named.append((node if count[node] == 1 else f"{node} #{count[node]}", checked))
        return named

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write how many derivatives were right, wrong and undecided."""
        if not self._checked:
            return
        rows = [(Verdict(c["verdict"]), float(c["resolution"])) for _, c in self._checked]
        bad = any(verdict is Verdict.FAILED for verdict, _ in rows)
        open_ = any(verdict not in (Verdict.PASSED, Verdict.FAILED) for verdict, _ in rows)
        colour = "red" if bad else "yellow" if open_ else "green"
        terminalreporter.write_line(f"gradproof: {summary.tally(rows)}", **{colour: True})
        if self._file is not None:
            terminalreporter.write_line(f"gradproof: report in {self._file}")
