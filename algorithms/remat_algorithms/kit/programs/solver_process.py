"""Programs solved in a process of their own: a solver that does not hear is killed, and nothing of it stays.

The process is kept for the next program, ends by itself when nobody asks it for some time, and with its parent. What
goes to and fro are pickles, each behind its length.
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
"""Seconds within which a solver that was asked to stop has to hand over what it has."""

IDLE_SECONDS = 20.0
"""Seconds without a program after which a process ends."""

LENGTH = struct.Struct("<Q")

SERVICE = "remat_algorithms.kit.programs.solver_worker"
"""The module that the process runs."""


@dataclass(frozen=True)
class Task:
    """A program, its solver, and what it may take.

    Attributes
    ----------
    program : Program
    solver : str
        See `remat_algorithms.kit.programs.solvers.solve_program`.
    threads, seed : int
    hint : (columns,) float64 or None
    until : float or None
        `time.time()` at which to stop, which all processes share.
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
        """Seconds until the end; None without one."""
        return None if self.until is None else max(0.001, self.until - time.time())


class Apart(Job):
    """A task at work in a process of its own."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._process: _Process | None = None
        self._kill_at: float | None = None

    def solve(self) -> Answer:
        """Solve; see `Job`. The answer is unknown where the process is killed, or dies."""
        reply, used = None, True
        while reply is None and used and self._kill_at is None:  # one that was waiting may have ended just now
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
        """Ask the solver to stop; kill it when it has not done so within `GRACE`."""
        now = time.monotonic()
        if self._kill_at is None:
            self._kill_at = now + GRACE
        process = self._process
        if process is not None and (now >= self._kill_at or not process.hurry()):
            process.kill()


class _Process:
    """A process that solves programs, one after the other."""

    def __init__(self) -> None:
        self._sent = False
        places = [path for path in sys.path if path]
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", SERVICE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
            # Ctrl-C at the terminal is for the parent; what a solver starts is killed with it.
            process_group=0 if os.name == "posix" else None,
        )

    def ask(self, task: Task) -> Answer | BaseException | None:
        """Have a program solved; None where the process has died meanwhile."""
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
        """Ask the solver to stop; return whether there is anybody to ask."""
        if not self._sent or self._popen.stdin is None:
            return False
        with suppress(OSError, ValueError):
            send(self._popen.stdin, None)
        return True

    def kill(self) -> None:
        """Kill the process, and what it has started."""
        with suppress(OSError):
            if self._popen.returncode is not None:
                return
            if hasattr(os, "killpg"):
                os.killpg(self._popen.pid, signal.SIGKILL)
            else:
                self._popen.kill()

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self.kill()
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._popen.wait()


_idle: list[_Process] = []
"""Processes that wait for a program."""


def _process() -> tuple[_Process, bool]:
    """Return a process, and whether it has been waiting."""
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
    """Write an object behind its length."""
    content = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read what `send` has written."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(LENGTH.unpack(head)[0]))
