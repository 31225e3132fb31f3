"""Processes and their descendants: a solver's helpers end with it, even in sessions that they created."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

_BECOME_SUBREAPER = 36
"""``PR_SET_CHILD_SUBREAPER`` of Linux's ``prctl``."""


def adopt_orphans() -> None:
    """Let orphaned descendants become children of this process, so that `descendants` finds them (Linux)."""
    with suppress(Exception):  # another system: only the process group is known
        import ctypes

        ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process; empty if the system does not list them (Linux does)."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and (parent := _parent(int(name))) is not None:
                children.setdefault(parent, []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        new = children.pop(waiting.pop(), [])
        found += new
        waiting += new
    return found


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])  # the name may hold spaces and parentheses
    except (OSError, ValueError, IndexError):
        return None


def kill_all(pid: int) -> None:
    """Kill a process, the group that it leads, and its descendants.

    The process is stopped first, so that it starts no others meanwhile. Its descendants are searched twice.
    """
    if not hasattr(os, "killpg"):
        _send(pid, signal.SIGTERM)
        return
    _send(pid, signal.SIGSTOP)
    for _ in range(2):
        for child in descendants(pid):
            _send(child, signal.SIGKILL)
    kill_group(pid)
    _send(pid, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """Kill the group of a process, which may already have ended."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError, OSError):
            os.killpg(leader, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        os.kill(pid, number)
