"""Outer guard of a time limit: interrupt calls that do not stop voluntarily.

Algorithms stop voluntarily: they poll `Context.stopped`, and their limits count work. This guard is for code that polls
too rarely. It raises an exception in the solving thread, as a second Ctrl-C would. A time limit therefore does not
depend on the care of every loop.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from remat.plugin.cancel import Cancel

T = TypeVar("T")

GRACE_SHARE, GRACE_SECONDS = 0.03, 0.2
"""Time that an algorithm may exceed its limit before it is interrupted: a share of the limit, and seconds."""

LAST_SHARE, LAST_SECONDS = 0.08, 0.7
"""Further time until placement and verification are abandoned: the rest of a tenth of the limit, and of a second."""

CANCEL_SECONDS = 0.1
"""Time between the cancellation of an algorithm and its interruption."""

RETRY_SECONDS = 0.02
"""Time between two attempts to interrupt if the first one was unsafe or the exception was swallowed."""

UNSAFE = ("<frozen importlib", "/ortools/", "\\ortools\\", "core/_internal.py", "core\\_internal.py")
"""Files whose code must not be interrupted: imports of extensions, callbacks of solvers in other languages, and calls
from numpy's C code, which replaces any exception by another error."""

THREADS, WAITING = "threading.py", ("bootstrap", "run", "join", "wait")
"""In this file only functions with these names may be interrupted. Others hold a lock or start a thread, which counts
as the thread that starts it until it runs."""


COLLECTING = ("gc_callback", "__del__")
"""Ends of the names of functions that the garbage collector calls: an exception raised there is lost."""

REFERENCES = ("weakref.py", "_weakrefset.py")
"""Files with callbacks of weak references: an exception raised there is lost, too."""

CALLS_NOTHING = frozenset(
    {
        *("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "DELETE_FAST", "DELETE_DEREF", "DELETE_GLOBAL"),
        *("POP_TOP", "POP_EXCEPT", "RETURN_VALUE", "RETURN_CONST", "END_FOR", "POP_ITER", "NOP"),
    }
)
"""Instructions that call no function: code that runs below one is a destructor, or the callback of a weak reference."""


class Overrun(BaseException):
    """Raised in a thread whose call has not returned in time; no `except Exception` swallows it."""


def grace(limit: float | None, *, last: bool = False) -> float:
    """Return the seconds beyond a time limit after which a call is interrupted."""
    share, seconds = (LAST_SHARE, LAST_SECONDS) if last else (GRACE_SHARE, GRACE_SECONDS)
    return seconds + share * (limit or 0.0)


def guarded(
    call: Callable[[], T], end: float | None, cancel: Cancel | None = None
) -> tuple[T, bool] | tuple[None, bool]:
    """Call a function, and interrupt it if it has not returned in time.

    Parameters
    ----------
    call : callable
    end : float or None
        `time.monotonic()` value; None never interrupts.
    cancel : Cancel, optional
        Interrupts the call soon after it is set.

    Returns
    -------
    (value, False)
        The result of the call.
    (None, True)
        It was interrupted.

    Notes
    -----
    Guards nest: each raises and catches its own exception class. Code in other languages is not interrupted; the
    exception is raised when that code returns.
    """
    if end is None and cancel is None:
        return call(), False
    own: type[Overrun] = type("Overrun", (Overrun,), {})
    alarm, watchdog = _Alarm(threading.get_ident(), own, math.inf if end is None else end), _watchdog
    hurried = nullcontext() if cancel is None else cancel.calling(lambda: watchdog.hurry(alarm))
    value: T | None = None
    over = False
    try:
        try:
            watchdog.watch(alarm)
            with hurried:
                value = call()
        finally:
            watchdog.forget(alarm)
    except own:
        value, over = None, True
    while True:  # an exception that arrives this late ends nothing any more
        try:
            watchdog.forget(alarm)
            return (None, True) if over else (value, False)  # type: ignore[return-value]
        except own:
            over = True


class _Alarm:
    """An exception class that is raised in a thread from a given time on, until it is caught."""

    def __init__(self, thread: int, raised: type[Overrun], due: float) -> None:
        self.thread, self.raised, self.due = thread, raised, due
        self.fired = False

    def fire(self) -> None:
        """Raise the exception if the thread's current code may be interrupted; otherwise, and afterwards, try again."""
        self.due = time.monotonic() + RETRY_SECONDS
        starting = dict(_STARTING)
        if _interruptible(sys._current_frames().get(self.thread)) and not _closes_generator(self.thread):
            self.fired = True
            _raise_in(self.thread, self.raised, starting)


class _Watchdog:
    """One thread that waits for all alarms of a process; it is started with the first one, and stays."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alarms: set[_Alarm] = set()
        self._runs = False

    def watch(self, alarm: _Alarm) -> None:
        """Fire an alarm when it is due."""
        with self._changed:
            self._alarms.add(alarm)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="remat time limits", daemon=True).start()
            self._changed.notify()

    def hurry(self, alarm: _Alarm) -> None:
        """Fire an alarm soon, unless it is due before."""
        with self._changed:
            alarm.due = min(alarm.due, time.monotonic() + CANCEL_SECONDS)
            self._changed.notify()

    def forget(self, alarm: _Alarm) -> None:
        """Cancel the alarm, including an exception that has not arrived yet."""
        with self._changed:
            self._alarms.discard(alarm)
        if alarm.fired:
            _take_back()
            alarm.fired = False

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for alarm in [alarm for alarm in self._alarms if alarm.due <= now]:
                    alarm.fire()
                due = min((alarm.due for alarm in self._alarms), default=math.inf)
                self._changed.wait(None if due == math.inf else max(0.0, due - time.monotonic()))


_watchdog = _Watchdog()


def _after_fork() -> None:
    """Give a forked process a new watchdog, because threads and owners of locks do not survive a fork."""
    global _watchdog
    _watchdog = _Watchdog()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _interruptible(frame: FrameType | None) -> bool:
    """Whether an exception in this frame does no harm and reaches the guard."""
    below = None
    while frame is not None:
        code = frame.f_code
        if any(part in code.co_filename for part in UNSAFE) or code.co_name.endswith(COLLECTING):
            return False
        if code.co_filename.endswith(REFERENCES) or (below is not None and _instruction(frame) in CALLS_NOTHING):
            return False
        if code.co_filename.endswith(THREADS) and not code.co_name.lstrip("_").startswith(WAITING):
            return False
        below, frame = frame, frame.f_back
    return True


def _instruction(frame: FrameType) -> str:
    """Return the name of the instruction that a frame executes."""
    import dis

    return "" if frame.f_lasti < 0 else dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _closes_generator(thread: int) -> bool:
    """Whether a thread handles the end of a generator, where an exception may be lost."""
    handled: Any = sys._current_exceptions().get(thread)
    return isinstance(handled[1] if isinstance(handled, tuple) else handled, GeneratorExit)


_STARTING: dict[Any, Any] = getattr(threading, "_limbo", {})
"""Threads that were started and do not run yet."""


def _raise_in(thread: int, raised: type[Overrun], starting: dict[Any, Any]) -> None:
    """Raise an exception in a thread when it next runs Python code.

    The function does nothing if the threads that are starting now differ from `starting`. Until a new thread runs, the
    interpreter identifies it with the thread that starts it, and would raise the exception in the new one. The starting
    thread would then wait for it forever.
    """
    import ctypes

    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    identity, what = ctypes.c_ulong(thread), ctypes.py_object(raised)
    # No other thread runs between these two: the interpreter changes threads after calls and at the ends of loops.
    if starting == _STARTING:
        raise_in(identity, what)


class _Replaced(Overrun):
    """Replaces an exception that is no longer wanted, and is caught where it is raised."""


def _take_back() -> None:
    """Take back an exception that was raised in this thread and has not arrived.

    Another exception replaces it and is caught here. `PyThreadState_SetAsyncExc(thread, NULL)` would forget the
    exception but keep the interpreter's request to check for one. Every later call would check again, and CPython
    3.11 would never leave a function call under a trace function (coverage, debuggers).
    """
    import ctypes

    try:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(_Replaced))
        while True:  # the exception arrives at the end of a round
            pass
    except _Replaced:
        return
