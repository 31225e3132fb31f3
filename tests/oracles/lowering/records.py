"""Plain task graphs and machines, and how long a run or a transfer takes."""

from dataclasses import dataclass, field, replace
from fractions import Fraction


@dataclass(frozen=True)
class Task:
    """One task: its time, reads, writes, and limits on its runs."""

    time: float
    reads: tuple = ()
    writes: tuple = ()
    workspace: int = 0
    in_place: bool = False
    required: bool = True
    recomputable: bool = True
    once: bool = False
    parallel: dict | None = None
    on: tuple | None = None  # the processors on which it may run; None: any
    times: dict | None = None  # of each type of processor that can run it; None: `time` on any
    side: str = ""  # "forward" or "backward": one of each may run at once
    spared: dict = field(default_factory=dict)  # by type of processor, how much less two at once take, at most
    parts: tuple = ()  # of a collective: (reads, writes, memory or None) for each processor of its run
    busy: bool = False  # whether a collective occupies these processors
    sent: int = 0  # bytes that a collective sends from each of its memories to the next, where that is known


@dataclass(frozen=True)
class Graph:
    """A task graph; `inputs` and `outputs` are (value, memory) pairs, `pinned` a set of values."""

    tasks: dict
    values: dict
    inputs: list = field(default_factory=list)
    pinned: frozenset = frozenset()
    outputs: list = field(default_factory=list)
    static: int = 0
    placeable: frozenset = frozenset()  # inputs whose memories the schedule chooses, one to `copies` of them
    copies: int = 1
    most: dict = field(default_factory=dict)  # copies of those placeable inputs for which it is another number
    ratios: dict = field(default_factory=dict)  # values of which a link that packs sends another share than usual
    follows: dict = field(default_factory=dict)  # placeable inputs, and what has to lie in their places at the end


@dataclass(frozen=True)
class Link:
    """A directed connection; `channel` is the resource that a transfer occupies."""

    source: str
    target: str
    bandwidth: float | None
    latency: float
    channel: object
    delay: float = 0  # from when the channel is free until the data is there
    also: tuple = ()  # what a transfer occupies beside its channel
    packed: tuple | None = None  # bytes per time of what is sent, and of the codec (None: infinite); the share sent

    def duration(self, size, own=None):
        """Return how long `size` bytes occupy the channel, an integer when it divides exactly.

        A link that packs sends the share `own` of the bytes, where the value has one.
        """
        if own is not None and self.packed is not None:
            return whole(self.latency + size * self.per_byte(own))
        if self.bandwidth is None:
            return self.latency
        return self.latency + ratio(size, self.bandwidth)

    def per_byte(self, own):
        """Return the exact time of a byte of a value, of which the share `own` is sent after the codec."""
        *rates, usual = self.packed
        wire, codec = (0 if rate is None else 1 / Fraction(str(rate)) for rate in rates)
        return Fraction(str(usual if own is None else own)) * wire + codec


@dataclass(frozen=True)
class Machine:
    """Memories (name to capacity or None), processors (name to memory), links; speeds and types of processors."""

    memories: dict
    processors: dict
    links: list
    speeds: dict = field(default_factory=dict)
    types: dict = field(default_factory=dict)
    static: dict = field(default_factory=dict)  # permanent bytes of a memory

    @property
    def first(self):
        """Name of the working memory, that of the first processor of speed 1: it is listed first here."""
        return next(iter(self.memories))

    def link(self, source, target):
        """Return the first link from source to target, or None."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)


def whole(time):
    """Return an exact time as an integer if it is one, else as a float."""
    return int(time) if isinstance(time, Fraction) and time.denominator == 1 else float(time)


def ratio(numerator, denominator):
    """Return the quotient, as an integer when both are integers and it is exact."""
    if isinstance(numerator, int) and isinstance(denominator, int) and numerator % denominator == 0:
        return numerator // denominator
    return numerator / denominator


def run_time(task, processors, speed=1, kinds=()):
    """Return the time of `task` on that many processors: time / p^alpha / the speed of the slowest of them.

    Of a task with times by type it is that of the slowest of `kinds`, and None where one of them cannot run it.
    """
    if task.times is not None:
        if any(kind not in task.times for kind in kinds):
            return None
        task = replace(task, time=max(task.times[kind] for kind in kinds), times=None)
    time = _time_on(task, processors)
    if speed == 1:
        return time
    slower = time / speed
    return int(slower) if isinstance(time, int) and slower.is_integer() and slower < 2**53 else slower


def _time_on(task, processors):
    if processors == 1:
        return task.time
    alpha = task.parallel.get("alpha", 1)
    if alpha == int(alpha):
        alpha = int(alpha)  # keeps integers exact
    return ratio(task.time, processors**alpha)
