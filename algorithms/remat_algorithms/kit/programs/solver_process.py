"""Programs solved in a separate process: a solver that ignores a stop request is killed.

The process is reused for the next program. It ends with its parent, or after some time without a request. Messages in
both directions are pickles, each preceded by its length.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from remat_algorithms.kit.programs.program import FloatArray, Program
from remat_algorithms.kit.programs.solver_status import Answer, Job, Outcome

GRACE = 0.7
"""Seconds between a stop request and the kill, in which a solver can return its best answer."""

IDLE_SECONDS = 20.0
"""Seconds without a program after which a process exits."""

LENGTH = struct.Struct("<Q")

SERVICE = "remat_algorithms.kit.programs.solver_worker"
"""Module that the process runs."""


@dataclass(frozen=True)
class Task:
    """A program, its solver and the limits of the run.

    Attributes
    ----------
    program : Program
    solver : str
        See `remat_algorithms.kit.programs.solvers.solve_program`.
    threads, seed : int
    hint : (columns,) float64 or None
    until : float or None
        `time.time()` at which to stop; this clock is common to all processes.
    gap : float
    """

    program: Program
    solver: str
    threads: int
    seed: int
    hint: FloatArray | None
    until: float | None
    gap: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self.until is None else max(0.001, self.until - time.time())


class Apart(Job):
    """A task that runs in a separate process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._process: _Process | None = None
        self._kill_at: float | None = None

    def solve(self) -> Answer:
        """Solve; see `Job`. The answer is unknown if the process is killed or dies."""
        reply, used = None, True
        while reply is None and used and self._kill_at is None:  # a waiting process may have exited in the meantime
            process, used = _process()
            self._process = process
            reply = process.ask(self.task)
            if reply is None or self._kill_at is not None:
                process.end()
            else:
                _idle.append(process)
        if isinstance(reply, BaseException):
            raise reply
        return reply or Answer(Outcome.UNKNOWN)

    def stop(self) -> None:
        """Ask the solver to stop; kill it if it has not stopped within `GRACE`."""
        now = time.monotonic()
        if self._kill_at is None:
            self._kill_at = now + GRACE
        process = self._process
        if process is not None and (now >= self._kill_at or not process.hurry()):
            process.kill()


class _Process:
    """A process that solves programs one after another."""

    def __init__(self) -> None:
        self._sent = False
        places = [path for path in sys.path if path]
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", SERVICE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
            # Ctrl-C at the terminal reaches only the parent. Killing the group also kills the solver's children.
            process_group=0 if os.name == "posix" else None,
        )

    def ask(self, task: Task) -> Answer | BaseException | None:
        """Solve a program in the process; return None if the process dies."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._sent = False
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            send(self._popen.stdin, task)
            self._sent = True
            reply: Answer | BaseException = receive(self._popen.stdout)
            return reply
        return None

    def hurry(self) -> bool:
        """Ask the solver to stop; return whether the process has a task to stop."""
        if not self._sent or self._popen.stdin is None:
            return False
        with suppress(OSError, ValueError):
            send(self._popen.stdin, None)
        return True

    def kill(self) -> None:
        """Kill the process and its children."""
        with suppress(OSError):
            if self._popen.returncode is not None:
                return
            if hasattr(os, "killpg"):
                os.killpg(self._popen.pid, signal.SIGKILL)
            else:
                self._popen.kill()

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.kill()
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._popen.wait()


_idle: list[_Process] = []
"""Processes that wait for a program."""


def _process() -> tuple[_Process, bool]:
    """Return a process, and whether it was waiting."""
    with suppress(IndexError):
        return _idle.pop(), True
    return _Process(), False


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


def send(stream: IO[bytes], what: object) -> None:
    """Write an object, preceded by its length."""
    content = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read an object written by `send`."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))
