"""Copies of values in an order of runs, the gaps between accesses, and swaps of these."""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_algorithms.offload.swaps.routes import Route

BEFORE_ALL = -1
"""Position of values that are resident at the start."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two accesses to one copy of a value, by positions of runs.

    Attributes
    ----------
    value : int
    after, before : int
        The two runs; `BEFORE_ALL` for an input, the number of runs for an output.
    copy : int
        Number of the copy: equal for the gaps of one copy.
    away : bool
        Whether the value is elsewhere at its beginning: it has to come, without a choice.
    """

    value: int
    after: int
    before: int
    copy: int
    away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A gap that its value spends elsewhere.

    Attributes
    ----------
    gap : int
        Index of the gap.
    route : Route
        The route; for a copy that is in another memory anyway, the route from there (`Order.anyhow`).
    leave_with : int
        The run with whose start the copy may start at the earliest; -1: as soon as the value is there. It is ignored
        for a copy that has to be sent anyway.
    gone_by : int or None
        A run that waits until the copy has ended; None: only when it needs the memory. Transfers that are needed
        anyway have their own waiting run.
    return_with : int
        The run with whose start it returns; -1: as early as it obstructs no other step.
    back_by : int or None
        The run that waits for its return; None: the gap's end.
    """

    gap: int
    route: Route
    leave_with: int = -1
    gone_by: int | None = None
    return_with: int = -1
    back_by: int | None = None


@dataclass(slots=True)
class Copy:
    """One copy of a value: from the run that writes it to its last use.

    Attributes
    ----------
    number, value : int
    written : int
        The run; `BEFORE_ALL` for an input.
    here : bool
        Whether it is created in the processor's memory.
    home : int or None
        Another memory in which it is from the beginning.
    last : int
        Its latest access in the processor's memory.
    freed : bool
        Whether it is freed there after that; False if it must stay, or if the run of that access replaces it.
    gaps : list of int
    remote : dict of int to list of int
        Runs that read it in other memories, by memory.
    ends : list of int
        Other memories in which it must end.
    targets : list of int
        Memories to which it has to be sent, the nearest first.
    refuge : int or None
        The nearest other memory that holds it at some time, whatever is chosen.
    """

    number: int
    value: int
    written: int
    here: bool
    home: int | None
    last: int
    freed: bool = True
    gaps: list[int] = field(default_factory=list[int])
    remote: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    ends: list[int] = field(default_factory=list[int])
    targets: list[int] = field(default_factory=list[int])
    refuge: int | None = None

    @property
    def sent(self) -> bool:
        """Whether it has to leave the processor's memory, which frees it there."""
        return self.here and self.home is None and bool(self.targets)


def leaves(copy: Copy, gap: Gap) -> bool:
    """Whether a swap of a gap has any effect: not if the value comes anyway, or if no run could drop it."""
    return not gap.away and (copy.home is None or gap.after != BEFORE_ALL)
