"""Jobs on many machines: a dask cluster (extra `dask`).

Each thread of a dask worker has a supervised `Worker` process. Therefore limits hold, and answers equal those of the
local executor. Each document is sent once to each machine that needs it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from remat.comparing.cells import Answer, Outcome
from remat.comparing.supervision import Limits, Worker
from remat.errors import MissingExtraError, OptionError, RematError

PATIENCE = 10.0
"""Seconds to wait for a scheduler."""

_local = threading.local()


def perform(request: dict[str, Any], document: bytes, seconds: float, memory: int | None) -> dict[str, Any]:
    """Execute a request in this process's supervised worker (runs on the cluster)."""
    limits = Limits(seconds=seconds, memory=memory)
    if getattr(_local, "limits", None) != limits:
        if getattr(_local, "worker", None) is not None:
            _local.worker.close()
        _local.worker, _local.limits = Worker(limits), limits
    here = _document_here(document, request["source"])
    reply: dict[str, Any] = _local.worker.ask(request | {"source": here})
    if "answer" in reply:  # errors name the document by its path; the path of this copy would be meaningless
        detail = str(reply["answer"].get("detail", ""))
        reply["answer"]["detail"] = detail.replace(here, request["source"])
    return reply


def _kept(document: bytes) -> bytes:
    """Return a document, as a task whose result it is (runs on the cluster)."""
    return document


def _document_here(document: bytes, source: str) -> str:
    """Store a document in a file of this machine, named by its content, in a folder that only this user can write.

    An existing file is used only if it belongs to this user and has that content.
    """
    suffix = ".json.gz" if source.endswith(".gz") else ".json"
    name = hashlib.sha256(document).hexdigest()
    folder = _own_folder()
    path = folder / (name[:32] + suffix)
    if not _is_own(path, stat.S_ISREG) or hashlib.sha256(path.read_bytes()).hexdigest() != name:
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(document)
        os.replace(temporary, path)
    return str(path)


def _own_folder() -> Path:
    """Return this user's folder for documents; a new one if another user has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"remat-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return folder if _is_own(folder, stat.S_ISDIR) else _fresh_folder()


@cache
def _fresh_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="remat-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Whether a path is a file or folder (`kind`), not a link, that only this user can read or write."""
    try:
        found = path.lstat()
    except OSError:
        return False
    if not kind(found.st_mode):
        return False
    return not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)


class ClusterExecutor:
    """Jobs on the workers of a dask scheduler.

    Parameters
    ----------
    scheduler : str, or a cluster or client of dask
        ``HOST:PORT`` of the scheduler, or an object that is connected to one; it is left open.
    limits : Limits
        Limits of each job on each worker.

    Raises
    ------
    remat.MissingExtraError
        If dask.distributed is not installed.
    remat.OptionError
        If no scheduler is at the address, or it has no workers and has requested none.
    """

    def __init__(self, scheduler: str | Any, limits: Limits) -> None:
        try:
            import distributed
        except ImportError:
            raise MissingExtraError("executor dask://", "dask") from None
        self._limits = limits
        cluster: Any = distributed  # partly typed
        self._as_completed = cluster.as_completed
        self._own = not isinstance(scheduler, cluster.Client)
        given: Any = scheduler
        self._client: Any = _connected(cluster, given) if self._own else given
        if self._client.asynchronous:
            raise OptionError("an asynchronous client of dask cannot be waited for", argument="executor")
        # Workers requested from a batch system may start late; jobs wait for them.
        asked = getattr(getattr(self._client, "cluster", None), "requested", None)
        if not self._client.scheduler_info()["workers"] and not asked:
            where = self._client.scheduler.address if self._client.scheduler else scheduler
            self.__exit__(None, None, None)
            raise OptionError(
                f"the dask scheduler at {where!r} has no workers; start some: dask worker", argument="executor"
            )

    def run(self, requests: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]], None, None]:
        """Yield replies as they arrive.

        Raises
        ------
        remat.RematError
            If the connection to the scheduler is lost.
        """
        documents: dict[str, Any] = {}
        futures: dict[Any, int] = {}
        with _without_warnings():  # about large documents
            for index, request in enumerate(requests):
                source = request["source"]
                if source not in documents:
                    # A task and not scattered data: dask repeats it if a worker with the only copy leaves.
                    # The name is always new, because dask may still be forgetting the data of an old name.
                    documents[source] = self._client.submit(_kept, _content(source), pure=False)
                future = self._client.submit(
                    perform, request, documents[source], self._limits.seconds, self._limits.memory, pure=False
                )
                futures[future] = index
        with self._client.as_current():
            completed = self._as_completed(list(futures))
        try:
            for future in completed:
                yield futures[future], _reply_of(future)
        finally:
            with suppress(Exception):  # the scheduler is already gone
                self._client.cancel(list(futures))

    def __enter__(self) -> ClusterExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own:
            self._client.close()


def _connected(distributed: Any, scheduler: str | Any) -> Any:
    """Return a client for a scheduler address or a cluster."""
    where = scheduler
    if isinstance(scheduler, str):
        where = scheduler if "://" in scheduler else f"tcp://{scheduler}"
    elif not hasattr(scheduler, "scheduler_address"):
        what = f"{type(scheduler).__name__} is neither an address nor a cluster or client of dask"
        raise OptionError(what, argument="executor")
    try:
        return distributed.Client(where, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(f"no dask scheduler answers at {scheduler!r}: {error}", argument="executor") from None


@contextmanager
def _without_warnings() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _content(source: str) -> bytes:
    """Read a document; if that fails, the worker reports the error as it would here."""
    try:
        return Path(source).read_bytes()
    except OSError:
        return b""


def _reply_of(future: Any) -> dict[str, Any]:
    """Return the answer of a job; a job that terminated dask workers also has an answer."""
    if future.cancelled():
        raise RematError("the dask scheduler was lost or the jobs were cancelled; with -o the same command resumes")
    error = future.exception()
    if error is None:
        reply: dict[str, Any] = future.result()
        return reply
    detail = f"the dask worker failed: {type(error).__name__}: {error}"
    return {"answer": Answer(outcome=Outcome.CRASHED, detail=detail[:500]).to_dict()}
