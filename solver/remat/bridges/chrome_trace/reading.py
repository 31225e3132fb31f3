"""Allocations of a trace of the PyTorch profiler (`record_shapes`, `profile_memory`), each with its operator.

An event ``[memory]`` has an address and bytes, negative for a free. It belongs to the innermost operator that is then
running in its thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from remat.bridges.allocations.streaming import stream_objects
from remat.bridges.allocations.timeline import Allocations, Recorder
from remat.errors import InstanceError, OptionError
from remat.messages import brief

MEMORY = "[memory]"
OPERATORS = ("cpu_op", "operator", "user_annotation")
LARGEST_TIME = 2.0**62


@dataclass
class _Events:
    """Operators and memory events, as columns."""

    begin: array[float] = field(default_factory=lambda: array("d"))
    length: array[float] = field(default_factory=lambda: array("d"))
    thread: array[int] = field(default_factory=lambda: array("q"))
    name: array[int] = field(default_factory=lambda: array("q"))
    time: array[float] = field(default_factory=lambda: array("d"))
    owner: array[int] = field(default_factory=lambda: array("q"))
    address: array[int] = field(default_factory=lambda: array("q"))
    change: array[int] = field(default_factory=lambda: array("q"))
    place: array[int] = field(default_factory=lambda: array("q"))
    total: array[int] = field(default_factory=lambda: array("q"))
    names: dict[str, int] = field(default_factory=dict)
    threads: dict[Any, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)


def read_chrome_trace(path: str, device: str | None = None) -> Allocations:
    """Read the allocations of a trace.

    Parameters
    ----------
    path : str
        JSON, compressed or not.
    device : str, optional
        ``cpu``, or ``cuda:0``; default: the device with the most bytes.

    Raises
    ------
    InstanceError
        If the file is not such a trace, or has no memory events; the message has the number of the event.
    OptionError
        For a device that the trace does not have.
    """
    events = _Events()
    for number, event in enumerate(stream_objects(path, "traceEvents")):
        try:
            _note(events, event)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise InstanceError(
                f"{path}: event {number}: {brief(str(event.get('name')))} is malformed: {error!r}"
            ) from None
    if not events.time:
        raise InstanceError(f"{path}: the trace has no {MEMORY} events; record it with profile_memory=True")
    return _paired(events, _chosen(events, device))


def _note(events: _Events, event: dict[str, Any]) -> None:
    name = event.get("name")
    if name == MEMORY:
        given = event["args"]
        place = _name_of(int(given["Device Type"]), int(given["Device Id"]))
        events.time.append(_instant(event["ts"]))
        events.owner.append(_thread(events, event))
        events.address.append(int(given["Addr"]) & (2**62 - 1))
        events.change.append(int(given["Bytes"]))
        events.total.append(int(given.get("Total Allocated", 0)))
        events.place.append(events.places.setdefault(place, len(events.places)))
    elif event.get("ph") == "X" and event.get("cat") in OPERATORS:
        events.begin.append(_instant(event["ts"]))
        events.length.append(max(0.0, _instant(event.get("dur", 0))))
        events.thread.append(_thread(events, event))
        events.name.append(events.names.setdefault(str(name)[:200], len(events.names)))


def _thread(events: _Events, event: dict[str, Any]) -> int:
    key = (str(event.get("pid")), str(event.get("tid")))
    return events.threads.setdefault(key, len(events.threads))


def _instant(value: Any) -> float:
    found = float(value)
    if not abs(found) < LARGEST_TIME:
        raise ValueError("a time out of range")
    return found


def _name_of(kind: int, number: int) -> str:
    named = {0: "cpu", 1: "cuda"}.get(kind, f"device type {kind}")
    return named if kind == 0 else f"{named}:{number}"


def _chosen(events: _Events, device: str | None) -> int:
    names = events.places
    if device is None:
        sums = [0] * len(names)
        for place, change in zip(events.place, events.change, strict=True):
            sums[place] += max(0, change)
        return sums.index(max(sums))
    if device not in names:
        raise OptionError(f"the trace has {', '.join(names)}, not {brief(device)}", argument="device")
    return names[device]


def _paired(events: _Events, place: int) -> Allocations:
    """Pair allocations with their frees."""
    import numpy as np

    chosen = np.flatnonzero(np.asarray(events.place) == place)
    times = np.asarray(events.time)[chosen]
    chosen = chosen[np.argsort(times, kind="stable")]
    operators = _operators(events, chosen)
    names = [*events.names, "(no operator)"]
    recorder = Recorder()
    for event, operator in zip(chosen.tolist(), operators.tolist(), strict=True):
        change, address, now = events.change[event], events.address[event], events.time[event]
        if change < 0:
            recorder.free(now, address, -change)
        elif operator < 0:
            recorder.allocate(now, address, change, len(names) - 1)
        else:
            recorder.allocate(now, address, change, events.name[operator], events.length[operator])
    first = int(chosen[0])
    return recorder.allocations(names, max(recorder.before, events.total[first] - max(0, events.change[first])))


def _operators(events: _Events, chosen: Iterable[int]) -> Any:
    """Return the innermost operator of each memory event in its thread; -1 where there is none."""
    import numpy as np

    picked = np.asarray(list(chosen), dtype=np.int64)
    found = np.full(len(picked), -1, dtype=np.int64)
    begins, lengths, threads = (np.asarray(each) for each in (events.begin, events.length, events.thread))
    times, owners = np.asarray(events.time)[picked], np.asarray(events.owner)[picked]
    for thread in np.unique(owners):
        own = np.flatnonzero(threads == thread)
        own = own[np.lexsort((-lengths[own], begins[own]))]
        stack: list[int] = []
        following = 0
        for position in np.flatnonzero(owners == thread):
            now = times[position]
            while following < len(own) and begins[own[following]] <= now:
                while stack and begins[stack[-1]] + lengths[stack[-1]] < begins[own[following]]:
                    stack.pop()
                stack.append(int(own[following]))
                following += 1
            while stack and begins[stack[-1]] + lengths[stack[-1]] < now:
                stack.pop()
            if stack:
                found[position] = stack[-1]
    return found
