"""A service that accepts a program, never solves it and ignores every message."""

from __future__ import annotations

import sys
import threading

if __name__ == "__main__":
    sys.stdin.buffer.read(1)
    threading.Event().wait(60)
