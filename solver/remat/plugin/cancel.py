"""Cancellation of solves from other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancel:
    """A switch that stops solves from another thread.

    Pass it as `cancel` to `remat.solve` or another function. Call `set` in another thread or in a signal handler. The
    solves then return their best schedules, as after Ctrl-C, with the termination ``interrupted``. A switch that is
    already set stops later solves immediately.

    Examples
    --------
    >>> import remat
    >>> cancel = remat.Cancel()
    >>> cancel.set()
    >>> cancel.is_set
    True
    >>> str(remat.solve(remat.example("resnet50"), algorithm="chain-best", budget="1GB", cancel=cancel).termination)
    'interrupted'
    """

    def __init__(self) -> None:
        # No lock: a forked process or a signal handler could find it taken.
        self._set = False
        self._calls: dict[object, Callable[[], None]] = {}

    @property
    def is_set(self) -> bool:
        """Whether the solves should stop."""
        return self._set

    def set(self) -> None:
        """Stop all current and future solves that have this switch."""
        self._set = True
        for call in self._calls.copy().values():
            call()

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Register a function that runs, once or more often, when the switch is set; immediately if it already is.

        The thread that sets the switch runs the function.
        """
        key = object()
        self._calls[key] = call
        try:
            if self._set:
                call()
            yield
        finally:
            self._calls.pop(key, None)
