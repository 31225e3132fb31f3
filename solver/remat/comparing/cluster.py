"""The same jobs on many machines: a dask cluster (extra `dask`).

Each thread of a dask worker keeps a supervised `Worker` process of its own, so that limits hold and answers are
those of the local executor. Each document travels once to each machine that needs it.
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
    """Do a request in this process's own supervised worker (runs on the cluster)."""
    limits = Limits(seconds=seconds, memory=memory)
    if getattr(_local, "limits", None) != limits:
        if getattr(_local, "worker", None) is not None:
            _local.worker.close()
        _local.worker, _local.limits = Worker(limits), limits
    here = _document_here(document, request["source"])
    reply: dict[str, Any] = _local.worker.ask(request | {"source": here})
    if "answer" in reply:  # errors name the document by its path; its copy here means nothing to anybody
        detail = str(reply["answer"].get("detail", ""))
        reply["answer"]["detail"] = detail.replace(here, request["source"])
    return reply


def _kept(document: bytes) -> bytes:
    """Be a task whose result is a document (runs on the cluster)."""
    return document


def _document_here(document: bytes, source: str) -> str:
    """Keep a document in a file of this machine, named by its content, in a folder that nobody else can write.

    What stands there already is taken only if it is this user's own file with that content.
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
    """Return this user's folder for documents; a fresh one where somebody else has taken its name."""
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
    """Whether this is a file or folder (`kind`), and no link to one, that only this user can read or write."""
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
        Of each job, on each worker.

    Raises
    ------
    remat.MissingExtraError
        Without dask.distributed.
    remat.OptionError
        If there is no scheduler at the address, or it has no workers and none were asked for.
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
        # Workers that a batch system was asked for may come late; jobs wait for them.
        asked = getattr(getattr(self._client, "cluster", None), "requested", None)
        if not self._client.scheduler_info()["workers"] and not asked:
            where = self._client.scheduler.address if self._client.scheduler else scheduler
            self.__exit__(None, None, None)
            raise OptionError(
                f"the dask scheduler at {where!r} has no workers; start some: dask worker", argument="executor"
            )

    def run(self, requests: Sequence[dict[str, Any]]) -> Generator[tuple[int, dict[str, Any]], None, None]:
        """Yield replies as they come.

        Raises
        ------
        remat.RematError
            If the scheduler is lost.
        """
        documents: dict[str, Any] = {}
        futures: dict[Any, int] = {}
        with _without_warnings():  # of large documents
            for index, request in enumerate(requests):
                source = request["source"]
                if source not in documents:
                    # A task and not scattered data: dask does it again where a worker took the only copy along. And
                    # never under an old name, whose data it may still be forgetting.
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
            with suppress(Exception):  # where the scheduler is gone, nothing is left to be stopped
                self._client.cancel(list(futures))

    def __enter__(self) -> ClusterExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own:
            self._client.close()


def _connected(distributed: Any, scheduler: str | Any) -> Any:
    """Return a client of the scheduler at an address, or of a cluster."""
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
    """Read a document; one that cannot be read fails on the worker as it would here."""
    try:
        return Path(source).read_bytes()
    except OSError:
        return b""


def _reply_of(future: Any) -> dict[str, Any]:
    """Return what a job answered; a job that took dask workers down is an answer, too."""
    if future.cancelled():
        raise RematError("the dask scheduler was lost, or somebody cancelled the jobs; -o lets the same command go on")
    error = future.exception()
    if error is None:
        reply: dict[str, Any] = future.result()
        return reply
    detail = f"the dask worker failed: {type(error).__name__}: {error}"
    return {"answer": Answer(outcome=Outcome.CRASHED, detail=detail[:500]).to_dict()}
