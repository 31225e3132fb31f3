"""`python -m remat` is the command `remat`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress


def run() -> int:
    """Run the command line, which is imported here: an interrupt of the imports ends like any other one."""
    try:
        from remat.cli.main import main
    except KeyboardInterrupt:
        exec("")  # clears the interpreter's memory of an interrupt during `exec`, see `remat.cli.main`
        sys.stderr.write("Error: interrupted\n")
        return 130
    code = main()
    if code != 130:  # an interrupt at the interpreter's exit does not change the exit code
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    raise SystemExit(run())
