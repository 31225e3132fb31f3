"""A service that takes a program, and neither solves it nor hears anything."""

from __future__ import annotations

import sys
import threading

if __name__ == "__main__":
    sys.stdin.buffer.read(1)
    threading.Event().wait(60)
