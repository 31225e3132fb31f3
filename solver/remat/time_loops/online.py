"""Online checkpointing: decisions, step by step, for a time loop whose number of steps is not known in advance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from remat.errors import OptionError
from remat.plugin import registry
from remat.schedule.actions import Action, Advance, actions_of
from remat.schedule.operations import Layout


class OnlineSchedule:
    """Decisions for an adjoint with an unknown number of steps, from the registry's `online-revolve` by default.

    The time loop calls `advance` before each step from its live state, executes the returned actions, and takes the
    step. When the last step is known, it calls `finish` and executes the actions that it yields::

        schedule = OnlineSchedule(slots=30)
        while True:
            for action in schedule.advance():   # Discard and Checkpoint, mostly none of them or both
                ...
            state = step(state)
            if is_over(state):
                break
        for action in schedule.finish(reached=True):
            ...                                 # Restore, Discard, Advance, Checkpoint, Backward

    Parameters
    ----------
    slots : int
        Checkpoints that can be stored at a time, including the initial state's; at least 1.
    algorithm : str
        A registry name whose metadata has a value for `online`.

    Raises
    ------
    remat.OptionError
        If there is no slot, or the algorithm does not support online decisions.

    Notes
    -----
    O(slots) memory; O(1) amortised time for each step.
    """

    def __init__(self, slots: int, *, algorithm: str = "online-revolve") -> None:
        _check_slots(slots)
        found = registry.find(algorithm, "adjoint")
        decisions = found.load_online()
        if decisions is None:
            known = [entry.name for entry in registry.algorithms("adjoint") if entry.online]
            raise OptionError(f"{algorithm} does not decide online; use {', '.join(known)}", argument="algorithm")
        self._decisions: Any = decisions(slots)
        self._finished = False

    @property
    def live(self) -> int:
        """Index of the live state: the number of steps taken."""
        live: int = self._decisions.live
        return live

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The stored states, in time order."""
        return tuple(self._decisions.checkpoints)

    def advance(self) -> tuple[Action, ...]:
        """Decide what precedes one more step from the live state: at most a `Discard`, then a `Checkpoint`.

        Raises
        ------
        remat.OptionError
            After `finish`.
        """
        self._check()
        entries = self._decisions.advance()
        return tuple(
            action for action in actions_of(entries, _layout(self.live), ()) if not isinstance(action, Advance)
        )

    def finish(self, *, reached: bool = False) -> Iterator[Action]:
        """Declare that the last step is known; return the actions that reverse all steps.

        Parameters
        ----------
        reached : bool
            False: the step that begins at the live state is the last one. There are `live` + 1 steps, and the last
            backward starts from the live state. True: the live state ends the last step. There are `live` steps, and
            the last backward starts with a restart from a checkpoint.

        Raises
        ------
        remat.OptionError
            If `reached` is true but no step has been taken, or on a second call.
        """
        self._check()
        if reached and self.live == 0:
            raise OptionError("finish: no step has been taken yet, so there is none to reverse")
        self._finished = True
        steps = self.live if reached else self.live + 1
        return actions_of(self._decisions.finish(reached=reached), _layout(steps - 1), ())

    def _check(self) -> None:
        if self._finished:
            raise OptionError("the online schedule is finished; make a new one for another run")


def _check_slots(slots: object) -> None:
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 1:
        raise OptionError(f"slots: expected a whole number >= 1 (one holds the initial state), not {slots!r:.60}")


def _layout(last: int) -> Layout:
    return Layout(last, shared=True)
