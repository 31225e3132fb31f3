"""The outer guard of a time limit: what does not stop by itself is interrupted.

Algorithms stop by themselves: they ask `Context.stopped`, and their limits count work. This guard is for what asks too
seldom. It raises an exception in the thread that solves, as a second Ctrl-C would, so that a time limit holds by
construction and not by the care of every loop.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

GRACE_SHARE, GRACE_SECONDS = 0.03, 0.2
"""What an algorithm may take beyond its limit before it is interrupted: a share of the limit, and seconds."""

LAST_SHARE, LAST_SECONDS = 0.08, 0.7
"""When placement and verification are given up: the rest of a tenth of the limit, and of a second."""

RETRY_SECONDS = 0.02
"""Time between two attempts to interrupt, where the first one came at a bad moment or was swallowed."""

UNSAFE = ("<frozen importlib", "/ortools/", "\\ortools\\")
"""Code that must not be interrupted: half an imported extension, or a callback out of a solver in another language."""


class Overrun(BaseException):
    """Raised in a thread whose call has not returned in time; no `except Exception` swallows it."""


def grace(limit: float | None, *, last: bool = False) -> float:
    """Return the seconds beyond a time limit after which a call is interrupted."""
    share, seconds = (LAST_SHARE, LAST_SECONDS) if last else (GRACE_SHARE, GRACE_SECONDS)
    return seconds + share * (limit or 0.0)


def guarded(call: Callable[[], T], end: float | None) -> tuple[T, bool] | tuple[None, bool]:
    """Call a function, and interrupt it if it has not returned in time.

    Parameters
    ----------
    call : callable
    end : float or None
        `time.monotonic()` value; None never interrupts.

    Returns
    -------
    (value, False)
        What the call returned.
    (None, True)
        It was interrupted.

    Notes
    -----
    Guards nest: each raises an exception class of its own, and catches no other. Code in other languages is not
    interrupted; the exception is raised when that code returns.
    """
    if end is None:
        return call(), False
    own: type[Overrun] = type("Overrun", (Overrun,), {})
    alarm = _Alarm(threading.get_ident(), own, end)
    value: T | None = None
    over = False
    try:
        try:
            alarm.start()
            value = call()
        finally:
            alarm.cancel()
    except own:
        value, over = None, True
    while True:  # an exception that arrives this late ends nothing any more
        try:
            alarm.cancel()
            return (None, True) if over else (value, False)  # type: ignore[return-value]
        except own:
            over = True


class _Alarm:
    """Raises an exception in a thread at an instant, and until somebody has caught it."""

    def __init__(self, thread: int, raised: type[Overrun], end: float) -> None:
        self._thread, self._raised, self._end = thread, raised, end
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._done = self._fired = False

    def start(self) -> None:
        threading.Thread(target=self._watch, name="remat time limit", daemon=True).start()

    def cancel(self) -> None:
        """Raise nothing from now on, nor what has not arrived yet."""
        with self._lock:
            self._done = True
        self._wake.set()
        if self._fired:
            _raise_in(self._thread, None)

    def _watch(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            if self._wake.wait(left):
                return
        while True:
            with self._lock:
                if self._done:
                    return
                if _interruptible(sys._current_frames().get(self._thread)):
                    self._fired = True
                    _raise_in(self._thread, self._raised)
            if self._wake.wait(RETRY_SECONDS):
                return


def _interruptible(frame: FrameType | None) -> bool:
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in UNSAFE):
            return False
        frame = frame.f_back
    return True


def _raise_in(thread: int, raised: type[Overrun] | None) -> None:
    """Raise an exception in a thread when it next runs Python code; None takes back one that has not arrived."""
    import ctypes

    what = None if raised is None else ctypes.py_object(raised)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
