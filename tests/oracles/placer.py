"""Place a list of steps in time by the placement rules, trying every candidate instant.

A step starts at the earliest instant that is not before the start of the step listed before it, and at which

- its resources are free;
- what it reads is complete: the listed writers have ended;
- its `after` steps have ended;
- for each value it writes somewhere, every earlier-listed reader, writer or freer of it there has ended;
- for each value it frees somewhere, every earlier-listed reader or writer of it there ends no later than it does;
- its bytes fit.

Readings of the format where it is brief
----------------------------------------
- A step that reads a value somewhere also waits for the end of every earlier-listed step that frees it there. The list
  of conditions above does not say so, and only partial moves show the difference: two moves of different parts of one
  value over different channels would overlap, and the first would then free bytes of a value that the second is
  reading, which the verifier refuses.
- A step that adds no bytes to a memory fits there, whatever the memory holds.
- Comparisons are exact, also between floats.
- The list must be consistent: only the verifier detects reads of values that were never written. Steps that break a
  rule in isolation raise ValueError.
"""

from dataclasses import replace

from . import lowering
from .actions import read_step


def place(document, steps, budget=None):
    """Find start times for a list of steps.

    Parameters
    ----------
    document : dict
        The instance, on its own machine.
    steps : list of dict
        Steps in issue order; any `start` is ignored, `after` is obeyed.
    budget : int, optional
        Overrides a capacity, as in `lowering.machine`.

    Returns
    -------
    list or tuple
        Start times, or ("infeasible", index of the first step that never fits).
    """
    machine = lowering.machine(document, budget)
    return place_on(lowering.lower(document, machine), machine, steps)


def place_on(graph, machine, steps, initial=None):
    """Find start times for a list of steps of a graph; `initial` says where placeable inputs lie."""
    lying = [(value, memory) for value, memories in (initial or {}).items() for memory in memories]
    graph = replace(graph, inputs=[*graph.inputs, *lying])
    placed = []
    for index, step in enumerate(steps):
        action, rules = read_step(graph, machine, index, step)
        if rules:
            raise ValueError(f"step {index}: {', '.join(rules)}")
        earliest = _earliest(action, placed, step.get("after") or [])
        # Once the last listed step has started, memory only changes when something ends.
        candidates = [earliest, *sorted({other.end for other in placed if other.end > earliest})]
        start = next((time for time in candidates if _fits(graph, machine, placed, action, time)), None)
        if start is None:
            return ("infeasible", index)
        action.start = start
        placed.append(action)
    return [action.start for action in placed]


def with_starts(document, steps, budget=None):
    """Return the steps with their placed start times; ValueError if they do not fit."""
    starts = place(document, steps, budget)
    if isinstance(starts, tuple):
        raise ValueError(f"step {starts[1]} does not fit")
    return [step | {"start": start} for step, start in zip(steps, starts, strict=True)]


def _earliest(action, placed, after):
    """Return the earliest start that respects everything but memory."""
    earliest = placed[-1].start if placed else 0
    reads, writes, freed = action.reads, set(action.writes), action.freed
    for other in placed:
        other_reads, other_writes, other_freed = other.reads, set(other.writes), other.freed
        must_have_ended = (
            other.index in after
            or other_writes & reads
            or (other_reads | other_writes | other_freed) & writes
            or other_freed & reads
        )
        if set(other.resources) & set(action.resources):
            earliest = max(earliest, other.released)
        if must_have_ended:
            earliest = max(earliest, other.end)
        if (other_reads | other_writes) & freed:
            earliest = max(earliest, other.end - action.duration)
    return earliest


def _fits(graph, machine, placed, action, time):
    """Say whether the bytes that the step adds fit at that instant."""
    for memory, added in action.adds.items():
        capacity = machine.memories[memory]
        if added > 0 and capacity is not None and _usage(graph, machine, placed, memory, time) + added > capacity:
            return False
    return True


def _usage(graph, machine, placed, memory, time):
    """Bytes in use at an instant no earlier than any start, once everything that ends by then has ended."""
    resident = {value: graph.values[value] for value, where in graph.inputs if where == memory}
    events = []
    for action in placed:
        if action.end > time:
            continue
        if action.duration > 0:
            # At one instant: steps that began before complete, then they free, then others come and go.
            events.append((action.end, 0, action.index, action, True, False))
            events.append((action.end, 1, action.index, action, False, True))
        else:
            events.append((action.end, 2, action.index, action, True, True))
    for *_, action, completes, frees in sorted(events, key=lambda event: event[:3]):
        for (where, value), size in action.writes.items() if completes else ():
            if where == memory:
                resident[value] = size + (resident.get(value, 0) if action.partial else 0)
        for (where, value), size in action.frees if frees else ():
            if where == memory and value in resident:
                left = 0 if size is None else resident[value] - size
                if left > 0:
                    resident[value] = left
                else:
                    del resident[value]
    held = sum(action.adds.get(memory, 0) for action in placed if action.end > time)
    static = machine.static.get(memory, 0) + (graph.static if memory == machine.first else 0)
    return static + sum(resident.values()) + held
