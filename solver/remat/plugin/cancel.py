"""Cancelling solves from other threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Cancel:
    """A switch that stops solves from another thread.

    Hand it to `remat.solve`, or to any other function that takes `cancel`, and call `set` in another thread, or in a
    signal handler. The solves end with their best schedules so far, as after Ctrl-C, with the termination
    ``interrupted``. A switch that is set stops later solves at once.

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
        # Without a lock, which a forked process or a signal handler could find taken.
        self._set = False
        self._calls: dict[object, Callable[[], None]] = {}

    @property
    def is_set(self) -> bool:
        """Whether the solves are to stop."""
        return self._set

    def set(self) -> None:
        """Stop all solves that were given this switch, and those to come."""
        self._set = True
        for call in self._calls.copy().values():
            call()

    @contextmanager
    def calling(self, call: Callable[[], None]) -> Iterator[None]:
        """Have a function called, once or more often, when the switch is set; at once if it is set already.

        The thread that sets it calls.
        """
        key = object()
        self._calls[key] = call
        try:
            if self._set:
                call()
            yield
        finally:
            self._calls.pop(key, None)
