"""Supervised workers: one process each, killed when its job takes too much time or memory.

A killed worker's job is a cell of the comparison, and the next job gets a new worker.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from remat.comparing.cells import Answer, Outcome
from remat.comparing.processes import kill_all, kill_group
from remat.errors import RematError
from remat.units import format_size, format_time

GRACE = 5.0
"""Seconds beyond a time limit for work outside the solver: placement, verification, a last iteration."""

LOADING = 300.0
"""Maximum seconds for reading an instance."""

INTERVAL = 0.05
"""Seconds between two checks of a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a job.

    Attributes
    ----------
    seconds : float
        Time of the solver; a worker is killed `GRACE` seconds (or half the limit) later.
    memory : int or None
        Bytes resident in the worker.
    """

    seconds: float
    memory: int | None = None

    @property
    def last_seconds(self) -> float:
        """Time after which a worker is killed."""
        return self.seconds + max(GRACE, self.seconds / 2)


class Worker:
    """A worker process and its limits. Use it from one thread; any thread may call `stop`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._stopped = False

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a request; if the worker dies or is killed, the answer reports it.

        Returns
        -------
        dict
            ``{"facts": ...}`` or ``{"answer": ...}``.
        """
        watch = _Watch(self._limits)
        process = self._running()
        self._forget_words()
        assert process.stdin is not None
        assert process.stdout is not None
        guard = threading.Thread(target=watch.guard, args=(process.pid,), daemon=True)
        guard.start()
        reply: dict[str, Any] | None = None
        with suppress(BrokenPipeError, ValueError, OSError):
            process.stdin.write(json.dumps(dict(request)) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                message = json.loads(line)
                if "started" not in message:
                    reply = message
                    break
                watch.begin()
        watch.end()
        guard.join()
        if reply is None:
            reply = {"answer": self._post_mortem(process, watch).to_dict()}
        elif self._limits.memory is not None and _resident(process.pid) > self._limits.memory // 2:
            self.close()  # leftovers of this job must not count against the next one
        return reply

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            try:
                self._errors = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "remat.comparing.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    text=True,
                    encoding="utf-8",
                    start_new_session=True,  # a Ctrl-C at the terminal is for the parent
                )
            except OSError as error:  # no space for its messages, too many processes or open files
                raise RematError(f"cannot start a worker process: {error.strerror or error}") from None
            if self._stopped:  # stopped meanwhile, before there was a process to kill
                kill_all(self._process.pid)
        return self._process

    def _post_mortem(self, process: subprocess.Popen[str], watch: _Watch) -> Answer:
        if hasattr(os, "waitid"):  # until it is waited for, its number is not reused
            with suppress(ChildProcessError, OSError):
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                kill_group(process.pid)
        code = process.wait()
        last = self._last_words()
        self.close()
        seconds = round(watch.seconds, 3)
        if self._stopped:
            return Answer(outcome=Outcome.CRASHED, detail="stopped with the run", seconds=seconds)
        if watch.killed is not None:
            outcome, detail = watch.killed
            return Answer(outcome=outcome, detail=detail, seconds=seconds)
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        if code == -9:
            how += ", perhaps because the machine was out of memory"
        detail = f"the worker died ({how})" + (f": {last}" if last else "")
        return Answer(outcome=Outcome.CRASHED, detail=detail, seconds=seconds)

    def _forget_words(self) -> None:
        """Drop the output of earlier jobs, which would be attributed to the next. The worker shares the offset."""
        if self._errors is not None:
            with suppress(OSError):
                self._errors.seek(0)
                self._errors.truncate()

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        with suppress(OSError, ValueError):
            end = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, end - 2000))
            lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else ""
        return ""

    def stop(self) -> None:
        """Kill the process, whatever it is running."""
        self._stopped = True
        process = self._process
        if process is not None:
            kill_all(process.pid)

    def close(self) -> None:
        """End the process; another one starts on demand."""
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            if process.poll() is None:
                kill_all(process.pid)
            process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None


class _Watch:
    """Monitors a worker during one job, and kills it beyond the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._done = threading.Event()
        self._began = time.monotonic()
        self._deadline = self._began + LOADING
        self._late = f"killed: still reading the instance after {format_time(LOADING)}"
        self._finished: float | None = None
        self.killed: tuple[Outcome, str] | None = None

    @property
    def seconds(self) -> float:
        """Duration of the job."""
        return (self._finished or time.monotonic()) - self._began

    def begin(self) -> None:
        """Record that the instance is loaded: the time limit starts now."""
        self._began = time.monotonic()
        self._deadline = self._began + self._limits.last_seconds
        self._late = f"killed: still running long after the limit of {format_time(self._limits.seconds)}"

    def end(self) -> None:
        """Record that the job is done."""
        self._finished = time.monotonic()
        self._done.set()

    def guard(self, pid: int) -> None:
        """Monitor until `end` (in a separate thread)."""
        memory = self._limits.memory
        while not self._done.wait(INTERVAL):
            if memory is not None and (resident := _resident(pid)) > memory:
                held, limit = format_size(resident, both=True), format_size(memory, both=True)
                self.killed = (Outcome.MEMORY_LIMIT, f"killed at {held}, above the limit of {limit} for a job")
            elif time.monotonic() > self._deadline:
                self.killed = (Outcome.TIME_LIMIT, self._late)
            if self.killed is not None:
                kill_all(pid)
                return


def _resident(pid: int) -> int:
    """Return the resident bytes of a process; 0 if the system does not report them."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
