"""A timeline of allocations: its peak, the holders, and the bytes that could have been recomputed or offloaded.

A profiler records when and by whom memory was allocated and freed, but not when it was read. An allocation that spans
the peak is assumed idle from shortly after its beginning to shortly before its end. The figures are therefore upper
bounds; a plan of the program itself (`remat import torch`, `remat fit torch`) is exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import TYPE_CHECKING, Any

from remat.errors import InstanceError
from remat.units import Units, format_size, format_time

if TYPE_CHECKING:
    import numpy as np

SHOWN = 5
"""Holders of the peak that are named."""

SHORT = 0.02
"""Share of the whole time: what lives no longer than that is no candidate."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocations in the order of their beginning.

    Attributes
    ----------
    begin, end : array of float
        Microseconds; infinity for what was not freed.
    size, label : array of int
        Bytes, and the number of the label.
    labels : sequence of str
        Name of the allocator, such as an operator.
    time : array of float
        Microseconds to compute it; NaN if unknown.
    base : int
        Bytes allocated before the timeline starts.
    """

    begin: np.ndarray
    end: np.ndarray
    size: np.ndarray
    label: np.ndarray
    labels: Sequence[str]
    time: np.ndarray
    base: int = 0


@dataclass(slots=True)
class Recorder:
    """Pairs allocations with their frees, event by event.

    Attributes
    ----------
    begin, end, size, label, time
        Columns of `Allocations`.
    live : dict of int to int
        The allocation at each address.
    before : int
        Bytes that were freed and never allocated: they were there before.
    """

    begin: array[float] = field(default_factory=lambda: array("d"))
    end: array[float] = field(default_factory=lambda: array("d"))
    size: array[int] = field(default_factory=lambda: array("q"))
    label: array[int] = field(default_factory=lambda: array("q"))
    time: array[float] = field(default_factory=lambda: array("d"))
    live: dict[int, int] = field(default_factory=dict)
    before: int = 0

    def allocate(self, now: float, address: int, size: int, label: int, time: float = nan) -> None:
        """Record an allocation."""
        self.live[address] = len(self.begin)
        for column, value in ((self.begin, now), (self.end, inf), (self.time, time)):
            column.append(value)
        self.size.append(size)
        self.label.append(label)

    def free(self, now: float, address: int, size: int) -> None:
        """Record a free."""
        if address in self.live:
            self.end[self.live.pop(address)] = now
        else:
            self.before += size

    def allocations(self, labels: Sequence[str], base: int) -> Allocations:
        """Return the columns as arrays."""
        import numpy as np

        return Allocations(
            begin=np.asarray(self.begin),
            end=np.asarray(self.end),
            size=np.asarray(self.size),
            label=np.asarray(self.label),
            labels=labels,
            time=np.asarray(self.time),
            base=base,
        )


@dataclass(frozen=True, slots=True)
class Explained:
    """Explanation of a timeline's peak.

    Attributes
    ----------
    peak, at : int, float
        Bytes, and when, in microseconds from the start.
    base, kept : int
        Bytes that were there before, and that were never freed.
    holders : tuple of (str, int, int)
        Label, bytes and number of allocations at the peak, the largest first.
    recompute, recompute_time : int, float
        Bytes that spanned the peak and whose computation was timed, and that time.
    offload : int
        Bytes that spanned the peak for long enough to be sent and fetched.
    least : int
        Peak without the idle times of all allocations that could be recomputed or offloaded, at this peak or elsewhere.
    duration : float
        Microseconds from the first to the last event.
    count : int
        Total number of allocations.
    """

    peak: int
    at: float
    base: int
    kept: int
    holders: tuple[tuple[str, int, int], ...]
    recompute: int
    recompute_time: float
    offload: int
    least: int
    duration: float
    count: int

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of a table."""
        units = Units("us", "B")
        total = max(1, self.peak)

        def size(number: int) -> str:
            return format_size(number, both=True)

        yield (
            "peak",
            (
                f"{size(self.peak)}, {format_time(self.at, units)} after the start; {size(self.base)} were there "
                f"before, {size(self.kept)} were never freed"
            ),
        )
        shown = [f"{label} {format_size(number)} ({count:,})" for label, number, count in self.holders[:SHOWN]]
        yield "held by", "; ".join(shown) or "no allocation in the profile"
        time = f", in {format_time(self.recompute_time, units)}" if self.recompute else ""
        again, sent, less = (
            f"{100 * part / total:.0f} %" for part in (self.recompute, self.offload, total - self.least)
        )
        yield "recompute", f"{size(self.recompute)} ({again}) spanned it and could be recomputed{time}"
        yield "offload", f"{size(self.offload)} ({sent}) spanned it long enough to be offloaded and reloaded"
        yield "at best", f"{size(self.least)}, {less} below the peak, without the idle times of all such allocations"

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON (`remat.profile/1`)."""
        return {
            "schema": "remat.profile/1",
            "peak": self.peak,
            "peak_time_us": self.at,
            "duration_us": self.duration,
            "allocations": self.count,
            "base": self.base,
            "never_freed": self.kept,
            "holders": [{"label": label, "size": size, "count": count} for label, size, count in self.holders],
            "recomputable": self.recompute,
            "recompute_time_us": self.recompute_time,
            "offloadable": self.offload,
            "at_best": self.least,
        }


def explain(given: Allocations, bandwidth: float) -> Explained:
    """Explain the peak of a timeline.

    Parameters
    ----------
    given : Allocations
    bandwidth : float
        Bytes per second of a link to the host, each way.

    Raises
    ------
    InstanceError
        Without any allocation.
    """
    import numpy as np

    if not len(given.size):
        raise InstanceError("the profile has no allocations")
    start = float(given.begin.min())
    ended = np.isfinite(given.end)
    stop = float(max(given.begin.max(), given.end[ended].max(initial=start)))
    duration = max(0.0, stop - start)
    peak, at = _peak(given)
    live = (given.begin <= at) & (given.end > at)
    length = np.minimum(given.end, stop) - given.begin
    idle = ended & (length > SHORT * duration)
    timed = idle & np.isfinite(given.time) & (given.time > 0)
    sent = idle & (length * 1e-6 >= 2 * given.size / bandwidth)
    least, _ = _peak(_without_idle_times(given, timed | sent, SHORT * duration / 2))
    timed, sent = live & timed, live & sent
    sums = np.bincount(given.label[live], weights=given.size[live], minlength=len(given.labels))
    counts = np.bincount(given.label[live], minlength=len(given.labels))
    order = np.argsort(-sums, kind="stable")
    holders = tuple((given.labels[int(k)], int(sums[k]), int(counts[k])) for k in order.tolist() if counts[k])
    return Explained(
        peak=peak,
        at=at - start,
        base=given.base,
        kept=int(given.size[~ended].sum()),
        holders=holders,
        recompute=int(given.size[timed].sum()),
        recompute_time=float(given.time[timed].sum()),
        offload=int(given.size[sent].sum()),
        least=least,
        duration=duration,
        count=len(given.size),
    )


def _without_idle_times(given: Allocations, chosen: np.ndarray, used: float) -> Allocations:
    """Return the timeline in which some allocations exist only for a time `used` after the begin and before the end."""
    import numpy as np

    begin, end, size = given.begin[chosen], given.end[chosen], given.size[chosen]
    return replace(
        given,
        begin=np.concatenate([given.begin[~chosen], begin, end - used]),
        end=np.concatenate([given.end[~chosen], begin + used, end]),
        size=np.concatenate([given.size[~chosen], size, size]),
    )


def _peak(given: Allocations) -> tuple[int, float]:
    """Return the peak bytes of all allocations, and its first time; ends precede beginnings."""
    import numpy as np

    begin, end, size = given.begin, given.end, given.size
    freed = np.isfinite(end)
    times = np.concatenate([end[freed], begin])
    change = np.concatenate([-size[freed], size])
    if not len(times):
        return given.base, float(given.begin.min())
    # A stable sort keeps ends first at one instant, and the order of the profile among beginnings.
    order = np.argsort(times, kind="stable")
    held = np.cumsum(change[order])
    most = int(held.argmax())
    return given.base + max(0, int(held[most])), float(times[order][most])


def buffers(given: Allocations) -> Iterator[str]:
    """Yield the lines of a CSV of minimalloc (id, lower, upper, size), in events, for `remat layout`."""
    import numpy as np

    from remat.bridges.minimalloc.table import table_lines

    stop = max(float(given.begin.max()), float(given.end[np.isfinite(given.end)].max(initial=0))) + 1
    ends = np.minimum(given.end, stop)
    times = np.unique(np.concatenate([given.begin, ends]))
    lower, upper = np.searchsorted(times, given.begin), np.searchsorted(times, ends)
    upper = np.maximum(upper, lower + 1)
    names = (f"{k}:{given.labels[label]}" for k, label in enumerate(given.label.tolist()))
    yield from table_lines(names, lower.tolist(), upper.tolist(), given.size.tolist(), None)
