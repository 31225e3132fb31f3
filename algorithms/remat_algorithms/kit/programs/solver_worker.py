"""Process that solves programs one after another; `kit.programs.solver_process` starts it."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from typing import IO

from remat_algorithms.kit.programs.solver_process import IDLE_SECONDS, Task, receive, send
from remat_algorithms.kit.programs.solver_status import Answer, Job
from remat_algorithms.kit.programs.solvers import job_of


class _Service:
    """Solve incoming tasks while a thread listens for stop requests."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.come = threading.Semaphore(0)
        self.job: Job | None = None

    def listen(self) -> None:
        """Receive tasks and stop requests; when the parent ends, kill this process and the solver's children."""
        with suppress(OSError, EOFError, pickle.UnpicklingError):
            while True:
                task = receive(sys.stdin.buffer)
                if task is not None:
                    self.tasks.append(task)
                    self.come.release()
                elif self.job is not None:
                    self.job.stop()
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def serve(self, out: IO[bytes]) -> None:
        """Solve task after task."""
        while self.come.acquire(timeout=IDLE_SECONDS):
            reply: Answer | BaseException
            try:
                self.job = job_of(self.tasks.pop())
                reply = self.job.solve()
            except Exception as error:  # the parent raises it, like an error of a thread
                reply = error
            self.job = None
            send(out, reply)


def main() -> None:
    """Serve the parent until it ends or sends no task for `IDLE_SECONDS`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # redirects everything that a solver prints
    service = _Service()
    threading.Thread(target=service.listen, daemon=True).start()
    service.serve(out)
    os._exit(0)


if __name__ == "__main__":
    main()
