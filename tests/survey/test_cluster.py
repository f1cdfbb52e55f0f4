"""A survey on a cluster: a scheduler and two workers, started here."""

from __future__ import annotations

import contextlib
import json as plain
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest
from distributed import Client, LocalCluster

import gradproof
from gradproof import Case, Survey, cli
from gradproof._survey import RunProgress, cluster
from gradproof.errors import UsageError

HEAD = """\
import os, signal, sys, time
import numpy as np
from gradproof import case

def back(x, v):
    return v * np.cos(x)

def checked(function):
    return case(inputs="float64[3]", vjp=back)(function)
"""
OPS = (
    HEAD
    + """
@case(inputs="float64[3]", vjp=lambda x, v: 1.1 * back(x, v))
@checked
def sine(x):
    return np.sin(x)

@checked
def boom(x):
    raise RuntimeError("no such luck")

@checked
def leaves(x):
    sys.exit(3)

@checked
def exits(x):
    os._exit(4)

@checked
def wanders(x):
    os.chdir("/")
    print("heard by nobody")
    return np.sin(x)
"""
)
DIES_ONCE = (
    HEAD
    + """
def first(x):
    return np.sin(x)

@checked
def dies_once(x):
    if not os.path.exists("pid"):
        with open("pid.part", "w") as file:
            file.write(f"{os.getppid()} {os.getpid()}")
        os.rename("pid.part", "pid")
        time.sleep(60)
    return np.sin(x)

for name in "abcdef":
    checked(first)
"""
)
DIES = (
    HEAD
    + """
@checked
def dies(x):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)

@checked
def crashes(x):
    os.kill(os.getpid(), signal.SIGKILL)

@checked
def interrupts(x):
    raise KeyboardInterrupt

@checked
def lives(x):
    return np.sin(x)
"""
)


DRAWS = """
import random, threading
random.over = False
def draws():
    while not random.over:
        random.random()
threading.Thread(target=draws, daemon=True).start()
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Client]:
    """A client of a scheduler, which tries a case twice, and two workers."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            silence_logs=100,
            scheduler_kwargs={"allowed_failures": 1},
        ) as processes,
        Client(processes, set_as_default=False) as made,
    ):
        yield made


@pytest.fixture
def client(started: Client) -> Client:
    """The same, once a worker that died in another test is replaced."""
    started.wait_for_workers(2, timeout=60)
    return started


@pytest.fixture
def folder(here):
    """An empty working directory, which the workers have not."""
    return here


def timeless(tree: object) -> object:
    """The same without the seconds of reports and of checks."""
    if isinstance(tree, dict):
        return {key: timeless(value) for key, value in tree.items() if key != "seconds"}
    return [timeless(each) for each in tree] if isinstance(tree, list) else tree


def ended(process: int) -> bool:
    """Whether a process ends within ten seconds."""
    with contextlib.suppress(ProcessLookupError):
        for _ in range(1000):
            os.kill(process, 0)
            time.sleep(0.01)
        return False
    return True


def told(found: Survey) -> list[object]:
    reports = [(name, timeless(report.to_dict())) for name, report in found.reports.items()]
    return [*reports, *((each.name, each.error, each.trace) for each in found.outcomes)]


def test_a_cluster_says_what_one_process_says(client, folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "ops.py").write_text(OPS)
    (folder / "broken.py").write_text("from gradproof import case\n1 / 0\n")
    found = gradproof.survey(["."], client=client, seed=3)
    assert told(found) == told(gradproof.survey(["."], seed=3))
    assert {name: str(report.verdict) for name, report in found.reports.items()} == {
        "inner/ops.py::sine": "passed",
        "inner/ops.py::sine[1]": "failed",
        "inner/ops.py::wanders": "passed",
    }
    assert found.errors == {
        "broken.py": "importing it raised ZeroDivisionError: division by zero",
        "inner/ops.py::boom": "it raised RuntimeError: no such luck",
        "inner/ops.py::leaves": "it raised SystemExit: 3",
        "inner/ops.py::exits": "it raised Exited: os._exit(4)",
    }


def test_the_command_line_says_the_same_on_a_cluster(client, folder, capsys):
    (folder / "ops.py").write_text(OPS)
    outputs = []
    for more in ([], ["--dask", client.scheduler.address]):
        assert cli.main(["run", "ops.py", "--seed", "3", "--json", "-", *more]) == 1
        out, err = capsys.readouterr()
        outputs.append((timeless(plain.loads(out)), err.replace("heard by nobody\n", "")))
    assert outputs[0] == outputs[1]
    assert client.status == "running"


@pytest.mark.skipif(sys.platform == "win32", reason="workers are killed by a signal")
def test_a_worker_killed_in_the_middle_loses_nothing(client, folder):
    (folder / "ops.py").write_text(DIES_ONCE)
    killed = []

    def kill() -> None:
        while not Path("pid").exists() and not over.wait(0.02):
            pass
        with contextlib.suppress(FileNotFoundError):
            killed.extend(map(int, Path("pid").read_text().split()))
            os.kill(killed[0], signal.SIGKILL)

    over = threading.Event()
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = gradproof.survey(["ops.py"], client=client, seed=3)
    finally:
        over.set()
        killer.join()
    assert os.getpid() not in killed
    assert ended(killed[1])  # with its worker: it would sleep for a minute
    firsts = ["first", *(f"first[{nth}]" for nth in range(1, 6))]
    assert list(found.reports) == [f"ops.py::{name}" for name in ["dies_once", *firsts]]
    assert found
    assert told(found) == told(gradproof.survey(["ops.py"], seed=3))


@pytest.mark.skipif(sys.platform == "win32", reason="a worker kills itself by a signal")
def test_a_case_that_kills_every_worker_is_told_as_its_error(client, folder):
    (folder / "ops.py").write_text(DIES)
    found = gradproof.survey(["ops.py"], client=client, seed=3)
    assert list(found.reports) == ["ops.py::lives"]
    assert found.errors["ops.py::interrupts"] == "it raised KeyboardInterrupt"
    assert found.errors["ops.py::crashes"] == "its process crashed (SIGKILL)"
    [(name, error)] = [pair for pair in found.errors.items() if pair[0] == "ops.py::dies"]
    assert name == "ops.py::dies"
    assert error.startswith("its worker died, at each of 2 tries (the last was tcp://127.0.0.1:")
    assert not found


def test_an_interrupt_keeps_what_is_known_and_cancels_the_rest(client, folder, monkeypatch):
    (folder / "ops.py").write_text(HEAD + "for name in 'abcdef':\n    checked(np.sin)\n")
    cancelled, ended = [], []
    cancel = client.cancel
    monkeypatch.setattr(client, "cancel", lambda some: cancelled.append(some) or cancel(some))

    def ends(self: RunProgress, name: str) -> None:
        ended.append(name)
        if len(ended) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(RunProgress, "ends", ends)
    found = gradproof.survey(["ops.py"], client=client)
    assert found.interrupted
    assert len(found.reports) == 2  # of the four that ended one was the file, one is not kept
    assert len(found.unfinished) == 4
    assert [len(some) for some in cancelled] == [0, 1]  # the other worker's
    assert all(future.cancelled() for some in cancelled for future in some)


def test_no_more_cases_are_handed_out_than_there_are_threads(client, folder, monkeypatch):
    """One that kills its worker is blamed for all that the worker holds."""
    (folder / "ops.py").write_text(HEAD + "for name in 'abcdefgh':\n    checked(np.sin)\n")
    at_work, most = set(), []
    monkeypatch.setattr(
        RunProgress, "starts", lambda self, name: (at_work.add(name), most.append(len(at_work)))
    )
    monkeypatch.setattr(RunProgress, "ends", lambda self, name: at_work.remove(name))
    assert len(gradproof.survey(["ops.py"], client=client).reports) == 8
    assert max(most) == 2


@pytest.mark.needs("scipy")
def test_functions_travel_too_and_what_cannot_is_told(client):
    from scipy.optimize import rosen, rosen_der

    cases = [
        Case(rosen, "float64[3]", {"grad": rosen_der}),
        Case(rosen, "float64[3]", {"grad": rosen_der, "args": (threading.Lock(),)}),
    ]
    found = gradproof.survey(cases, client=client, seed=3)
    assert told(found)[0] == told(gradproof.survey(cases[:1], seed=3))[0]
    assert found.errors["rosen[1]"].startswith("it cannot be sent to a worker: TypeError: ")


def test_what_dask_draws_is_not_taken_for_what_a_case_draws(client, folder):
    """Its threads are those of the worker; a check has a process to itself."""
    (folder / "ops.py").write_text(HEAD + "checked(np.sin)\n")
    client.run(exec, DRAWS)
    try:
        found = gradproof.survey(["ops.py"], client=client, seed=3)
    finally:
        client.run(exec, "import random; random.over = True")
    [report] = found.reports.values()
    assert report["hygiene"].notes == ()
    assert told(found) == told(gradproof.survey(["ops.py"], seed=3))


def test_a_worker_of_another_version_is_refused(client, folder, monkeypatch):
    monkeypatch.setattr(gradproof, "__version__", "0.0.1")
    with pytest.raises(UsageError, match=r"client: gradproof 0\.0\.1 is here, on tcp://.*: 0\.1"):
        gradproof.survey([Case(len, "float64[3]")], client=client)


def test_only_a_client_of_dask_is_one():
    with pytest.raises(UsageError, match=r"client: expected a dask\.distributed\.Client"):
        gradproof.survey([Case(len, "float64[3]")], client="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--dask", "tcp://127.0.0.1:1"], "--dask: no scheduler at 'tcp://127.0.0.1:1': OSError"),
        (["--dask", "nowhere://"], "--dask: no scheduler at 'nowhere://': ValueError"),
        (["--dask", "tcp://127.0.0.1:1", "-j", "2"], "-j: a cluster at an address has the workers"),
    ],
)
def test_wrong_usage_is_told_in_one_sentence(folder, capsys, monkeypatch, argv, says):
    monkeypatch.setattr(cluster, "PATIENCE", 0.2)
    (folder / "ops.py").write_text(OPS)
    assert cli.main(["run", "ops.py", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gradproof: {says}")
    assert err.count("\n") == 1


def test_where_dask_is_missing_its_extra_is_named(folder, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "gradproof._survey.cluster")
    monkeypatch.delattr("gradproof._survey.cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)
    (folder / "ops.py").write_text(OPS)
    assert cli.main(["run", "ops.py", "--dask", "local"]) == 2
    assert "pip install 'gradproof[distributed]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_cluster_of_this_machine_is_started_and_ended(folder, capsys):
    (folder / "ops.py").write_text(OPS)
    outputs = []
    for more in ([], ["--dask", "local", "-j", "2"]):
        assert cli.main(["run", "ops.py", "--seed", "3", "--json", "-", *more]) == 1
        outputs.append(timeless(plain.loads(capsys.readouterr().out)))
    assert outputs[0] == outputs[1]
    assert distributed.client._get_global_client() is None
