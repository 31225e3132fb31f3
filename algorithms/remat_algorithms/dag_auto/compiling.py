"""Whether the compiled search is at hand; where it is not, another process compiles while this one interprets.

Both give the same answers, so it does not matter when the change comes.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from dataclasses import dataclass, field


@dataclass
class _Compiler:
    ready: bool = False
    failed: bool = False
    process: subprocess.Popen[bytes] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_COMPILER = _Compiler()


def is_ready() -> bool:
    """Whether the compiled search can be loaded at once; begins to compile it where it cannot."""
    compiler = _COMPILER
    with compiler.lock:
        if compiler.ready or compiler.failed:
            return compiler.ready
        if compiler.process is None:
            from remat_algorithms.dag_auto.kernel import is_kept

            if is_kept():
                compiler.ready = True
            else:
                _start(compiler)
        elif compiler.process.poll() is not None:
            compiler.ready = compiler.process.returncode == 0
            compiler.failed = not compiler.ready
        return compiler.ready


def _start(compiler: _Compiler) -> None:
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-m", "remat_algorithms.dag_auto.kernel"]
    try:
        compiler.process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:
        compiler.failed = True
        return
    atexit.register(compiler.process.terminate)
