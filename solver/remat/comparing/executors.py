"""Executors: process many requests at once, in any order, on local workers or on a cluster."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Protocol

from remat.comparing.supervision import Limits, Worker
from remat.errors import OptionError
from remat.messages import brief

Reply = tuple[int, dict[str, Any]]
"""Index of a request, and the worker's reply."""


class Executor(Protocol):
    """Executes requests (see `remat.comparing.worker`) within limits."""

    def run(self, requests: Sequence[dict[str, Any]]) -> Generator[Reply, None, None]:
        """Yield replies as they arrive; closing the iterator stops running jobs."""
        ...

    def __enter__(self) -> Executor: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LocalExecutor:
    """Worker processes on this computer; they stay alive between calls of `run`.

    Parameters
    ----------
    jobs : int
        Number of simultaneous workers.
    limits : Limits
    """

    def __init__(self, jobs: int, limits: Limits) -> None:
        self._workers = [Worker(limits) for _ in range(jobs)]

    def run(self, requests: Sequence[dict[str, Any]]) -> Generator[Reply, None, None]:
        """Yield replies as they arrive."""
        waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(len(requests)):
            waiting.put(index)
        replies: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        over = threading.Event()

        def serve(worker: Worker) -> None:
            try:
                while not over.is_set():
                    try:
                        index = waiting.get_nowait()
                    except queue.Empty:
                        return
                    replies.put((index, worker.ask(requests[index])))
            except BaseException as error:  # a worker that cannot even start: the run must not wait for it
                replies.put(error)

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in self._workers]
        for thread in threads:
            thread.start()
        unanswered = len(requests)
        try:
            while unanswered:
                reply = replies.get()
                if isinstance(reply, BaseException):
                    raise reply
                unanswered -= 1
                yield reply
        finally:
            over.set()
            if unanswered:  # abandoned early: running jobs are no longer needed
                for worker in self._workers:
                    worker.stop()
            for thread in threads:
                thread.join()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()


def open_executor(address: str | Any | None, *, jobs: int | None, limits: Limits) -> Executor:
    """Return the executor for an address.

    Parameters
    ----------
    address : str, cluster or client of dask, or None
        None or ``local``: local worker processes; ``dask://HOST:PORT``: the cluster of that scheduler.
    jobs : int or None
        Number of simultaneous jobs; default: one for each core. A cluster ignores it.

    Raises
    ------
    remat.OptionError
    """
    if address in (None, "local"):
        return LocalExecutor(jobs or os.cpu_count() or 1, limits)
    if not isinstance(address, str):
        from remat.comparing.cluster import ClusterExecutor

        return ClusterExecutor(address, limits)
    if address.startswith("dask://") and len(address) > len("dask://"):
        from remat.comparing.cluster import ClusterExecutor

        return ClusterExecutor(address.removeprefix("dask://"), limits)
    raise OptionError(f"{brief(address)} is neither local nor dask://HOST:PORT", argument="executor")
