"""Work on a cluster of Dask (`dask.distributed`), whose workers may die.

A check owns its process, and Dask's threads live in a worker's: they draw from the global random
numbers, which a check would take for its function's doing. So each thread of a worker has a process
of its own for the cases. One that crashes ends its case, as anywhere.

A case whose worker dies is tried on others: as often as the scheduler allows, by default four
times in all. Dask blames every task that the dead worker held, at work or waiting; so no more are
handed out than there are threads, and none waits behind another.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.util
import pickle
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, TypeVar

import cloudpickle
import distributed
from distributed import Client, Future, KilledWorker, LocalCluster

import gradproof
from gradproof._data.frames import sentence
from gradproof._survey.pool import Crashed, Pool, interrupts_held
from gradproof.errors import UsageError

Job = TypeVar("Job")
Result = TypeVar("Result")

PATIENCE = 10  # seconds that a scheduler gets to answer
_SOON = 1.0  # seconds after which the workers are counted again

_OWN = threading.local()  # of a worker's thread: its pool of one process


class Cluster(Generic[Job, Result]):
    """Workers of a cluster that apply one function to jobs; the client stays open.

    The function's name, jobs and results are pickled, by value where they are of `__main__`.
    UsageError where the client cannot be used, or a worker has no gradproof, or another version.
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
                while waiting and len(at_work) < self.at_once():
                    job = waiting.pop()
                    starts(job)
                    try:
                        packed = cloudpickle.dumps((self._function, job))
                    except (pickle.PicklingError, AttributeError, TypeError) as error:
                        yield job, Crashed(f"it cannot be sent to a worker: {sentence(error)}")
                        continue
                    future = self._client.submit(_on_worker, packed, pure=False)
                    at_work[future] = job
                    ended.add(future)
                if at_work:
                    future, result = next(ended)
                    yield at_work.pop(future), _result(future, result)
        finally:
            with contextlib.suppress(OSError):  # the scheduler is gone
                self._client.cancel(list(at_work))

    def at_once(self) -> int:
        """How many jobs may be at work: as many as there are threads, one before any joined."""
        if time.monotonic() - self._counted > _SOON:
            self._threads = max(1, sum(self._client.nthreads().values()))
            self._counted = time.monotonic()
        return self._threads

    def close(self) -> None:
        """Nothing: the cluster is the user's."""


def _version() -> str:
    return gradproof.__version__


def _on_worker(packed: bytes) -> bytes | Crashed:
    """What a worker does with a job: unread, it goes to the process of this thread, and back."""
    if not hasattr(_OWN, "pool"):
        _OWN.pool = Pool(_unpacked, 1)
        multiprocessing.util.Finalize(None, _OWN.pool.close, exitpriority=1)
    # A nanny makes its worker a daemon, which may have no processes, lest they outlive it: ours end
    # with their parent.
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # private
    before, config["daemon"] = config.get("daemon"), False
    try:
        [(_, result)] = _OWN.pool.results([packed], lambda _: None)
    finally:
        config["daemon"] = before
    return result  # type: ignore[no-any-return]  # of the pool above


def _unpacked(packed: bytes) -> bytes | Crashed:
    try:
        function, job = pickle.loads(packed)
    except Exception as error:  # whatever importing the user's modules raises
        return Crashed(f"it cannot be read on a worker: {sentence(error)}")
    return cloudpickle.dumps(function(job))  # type: ignore[no-any-return]  # cloudpickle has no types


def _result(future: Future, result: Any) -> Any:
    """What the job returned, or how it ended."""
    if future.status == "finished":
        return result if isinstance(result, Crashed) else pickle.loads(result)
    error = result[1] if isinstance(result, tuple) else result
    if isinstance(error, KilledWorker):
        tries, last = error.allowed_failures + 1, error.last_worker.address
        return Crashed(f"its worker died, at each of {tries} tries (the last was {last})")
    return Crashed(f"the cluster could not run it: {sentence(error)}")


@contextlib.contextmanager
def connected(where: str, workers: int) -> Iterator[Client]:
    """A client of the scheduler at an address, or of `workers` processes here where it is "local".

    UsageError where nobody answers there.
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
