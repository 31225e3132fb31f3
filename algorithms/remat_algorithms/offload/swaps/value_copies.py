"""What an order of runs does with values: their copies, the gaps between accesses, and swaps of these."""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_algorithms.offload.swaps.routes import Route

BEFORE_ALL = -1
"""Position of what is resident at the start."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two accesses to one copy of a value, by positions of runs.

    Attributes
    ----------
    value : int
    after, before : int
        The two runs; `BEFORE_ALL` for an input, the number of runs for an output.
    copy : int
        Which copy of which value: equal for the gaps of one copy.
    away : bool
        Whether the value is elsewhere at its beginning: it has to come, and nobody chooses.
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
        Of a copy that lies elsewhere anyhow, the one from there (`Order.anyhow`).
    leave_with : int
        The run with whose start the copy may start at the earliest; -1: as soon as the value is there. Of a copy that
        has to be sent anyhow, that is its time, whatever this says.
    gone_by : int or None
        A run that waits until the copy has ended; None: only when it needs the room. What has to be sent anyhow is
        waited for where that is.
    return_with : int
        The run with whose start it comes back; -1: as early as it is in nobody's way.
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
        Whether it comes into being in the processor's memory.
    home : int or None
        Another memory in which it lies from the beginning.
    last : int
        Its latest access in the processor's memory.
    freed : bool
        Whether it goes from there after that: not what must stay, nor what the run of that access replaces.
    gaps : list of int
    remote : dict of int to list of int
        Runs that read it in other memories, by memory.
    ends : list of int
        Other memories in which it must end.
    targets : list of int
        Memories to which it has to be sent, the nearest first.
    refuge : int or None
        The nearest other memory in which it lies sooner or later, whatever is chosen.
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
        """Whether it has to leave the processor's memory, and that frees it there."""
        return self.here and self.home is None and bool(self.targets)


def leaves(copy: Copy, gap: Gap) -> bool:
    """Whether a swap of a gap does anything: what comes anyhow, or what no run could drop, does not leave."""
    return not gap.away and (copy.home is None or gap.after != BEFORE_ALL)
