"""A survey on a scheduler of Dask and two workers, which are started here, and die."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import gradproof
from gradproof import Case, SurveyReport, by_hand
from survey_cases import case_of, dies, interrupts, point, raises, right, sine_case, waits, wrong

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by a signal")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a scheduler, which tries a case on two workers, and of two workers."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=100,
            scheduler_kwargs={"allowed_failures": 1},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def executor(client: Client) -> Iterator[Executor]:
    """Its executor, once a worker that died in another test is replaced."""
    client.wait_for_workers(2, timeout=60)
    with client.get_executor() as executor:
        yield executor


def verdicts(found: SurveyReport) -> dict[str, str]:
    return {name: str(report.verdict) for name, report in found.reports.items()}


def test_a_cluster_says_what_one_process_says(executor):
    cases = [sine_case(), sine_case(wrong), case_of(raises), case_of(interrupts)]
    found = SurveyReport(gradproof.survey(cases, executor))
    assert verdicts(found) == {"sin": "passed", "sin[1]": "failed"}
    assert found.errors["raises"] == "it raised RuntimeError: no such luck"
    assert found.errors["interrupts"].startswith("it raised KeyboardInterrupt")
    for name, report in SurveyReport(gradproof.survey(cases[:2])).reports.items():
        for one, other in zip(report.checks, found.reports[name].checks, strict=True):
            assert (one.verdict, one.findings) == (other.verdict, other.findings)


def test_a_worker_killed_in_the_middle_loses_nothing(executor, tmp_path):
    over = threading.Event()

    def kill_the_worker() -> None:
        while not (tmp_path / "process").exists() and not over.wait(0.02):
            pass
        with contextlib.suppress(FileNotFoundError):
            os.kill(int(Path(tmp_path, "process").read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_worker)
    killer.start()
    hand = by_hand(waits, vjp=lambda x, v, folder: right(x, v))
    options = {"kwargs": {"folder": str(tmp_path)}}
    cases = [Case(hand, point(), options), *(sine_case(wrong, name=f"{k}") for k in range(8))]
    try:
        found = SurveyReport(gradproof.survey(cases, executor))
    finally:
        over.set()
        killer.join()
    assert found.errors == {}
    assert verdicts(found) == {"waits": "passed", **{f"{k}": "failed" for k in range(8)}}


def test_a_case_that_kills_its_worker_is_an_error_and_the_others_go_on(executor):
    cases = [case_of(dies), *(sine_case(name=f"{k}") for k in range(8))]
    found = SurveyReport(gradproof.survey(cases, executor))
    assert verdicts(found) == {f"{k}": "passed" for k in range(8)}
    [(name, error)] = found.errors.items()
    assert name == "dies"
    assert error.startswith("it could not be run: KilledWorker: ")
