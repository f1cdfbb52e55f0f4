"""Work on a cluster of Dask (`dask.distributed`), whose workers may die.

A case whose worker dies is tried on others: as often as the scheduler allows, by default four
times in all. Dask blames every task that the dead worker held, at work or waiting; so no more are
handed out than there are threads, and none waits behind another.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

import distributed
from distributed import Client, Future, KilledWorker, LocalCluster

import gradproof
from gradproof._data.frames import sentence
from gradproof._survey.pool import Crashed, interrupts_held
from gradproof.errors import UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")

PATIENCE = 10  # seconds that a scheduler gets to answer
_SOON = 1.0  # seconds after which the workers are counted again

# Output, working directory and much else are the process's: its threads take turns.
_TURN = threading.Lock()


class Cluster(Generic[Job, Result]):
    """Workers of a cluster that apply one function to jobs.

    Args:
        function: its name, jobs and results are pickled, by value where they are of `__main__`.
        client: of the cluster; it stays open.

    Raises:
        UsageError: the client cannot be used; a worker has no gradproof, or another version.
    """

    def __init__(self, function: Callable[[Job], Result], client: Client) -> None:
        if not isinstance(client, Client) or client.asynchronous:
            raise UsageError("client: expected a dask.distributed.Client that is not asynchronous")
        self._function, self._client = function, client
        self._counted, self._threads = 0.0, 1
        for worker, version in client.run(_version, on_error="return").items():
            if version != gradproof.__version__:
                said = sentence(version) if isinstance(version, BaseException) else version
                raise UsageError(
                    f"client: gradproof {gradproof.__version__} is here, on {worker}: {said}"
                )

    def results(
        self, jobs: Sequence[Job], starts: Callable[[Job], None]
    ) -> Generator[tuple[Job, Result | Crashed], None, None]:
        """Each job with its result, in the order in which they end; `starts` is told of each."""
        waiting = list(reversed(jobs))
        at_work: dict[Future, Job] = {}
        ended = distributed.as_completed(
            (), loop=self._client.loop, with_results=True, raise_errors=False
        )
        try:
            while waiting or at_work:
                while waiting and len(at_work) < self._places():
                    job = waiting.pop()
                    starts(job)
                    try:
                        future = self._client.submit(_in_turn, self._function, job, pure=False)
                    except TypeError as error:
                        yield job, Crashed(f"it cannot be sent to a worker: {sentence(error)}")
                        continue
                    at_work[future] = job
                    ended.add(future)
                if at_work:
                    future, result = next(ended)
                    yield at_work.pop(future), _result(future, result)
        finally:
            with contextlib.suppress(OSError):  # the scheduler is gone
                self._client.cancel(list(at_work))

    def _places(self) -> int:
        """How many jobs may be at work: as many as there are threads, one before any joined."""
        if time.monotonic() - self._counted > _SOON:
            self._threads = max(1, sum(self._client.nthreads().values()))
            self._counted = time.monotonic()
        return self._threads

    def close(self) -> None:
        """Nothing: the cluster is the user's."""


def _version() -> str:
    return gradproof.__version__


def _in_turn(function: Callable[[Job], Result], job: Job) -> Result:
    with _TURN:
        return function(job)


def _result(future: Future, result: Any) -> Any:
    """What the job returned, or how it ended."""
    if future.status == "finished":
        return result
    error = result[1] if isinstance(result, tuple) else result
    if isinstance(error, KilledWorker):
        tries, last = error.allowed_failures + 1, error.last_worker.address
        return Crashed(f"its worker died, at each of {tries} tries (the last was {last})")
    return Crashed(f"the cluster could not run it: {sentence(error)}")


@contextlib.contextmanager
def connected(where: str, workers: int) -> Iterator[Client]:
    """A client of the scheduler at an address, or of `workers` processes here where it is "local".

    Raises:
        UsageError: nobody answers there.
    """
    with contextlib.ExitStack() as stack:
        if where == "local":
            with interrupts_held():  # as inherited by every thread and process of the cluster
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    memory_limit=0,  # none, as without a cluster
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,  # we tell of what died
                )
            stack.enter_context(cluster)
            yield stack.enter_context(Client(cluster, set_as_default=False))
            return
        try:
            client = Client(where, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"--dask: no scheduler at {where!r}: {sentence(error)}") from error
        yield stack.enter_context(client)
