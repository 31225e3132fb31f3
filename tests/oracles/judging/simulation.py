"""Simulate timed steps, event by event, and note each rule that they break."""

from bisect import insort


def clusters(times, span=None):
    """Map every time to its instant: that of the first time at most 1e-9 of the span (the last one) before it."""
    times = sorted(set(times))
    span = times[-1] if span is None and times else span
    tolerance = 1e-9 * span if any(isinstance(time, float) for time in times) else 0
    instant, anchor = {}, None
    for time in times:
        if anchor is None or time - anchor > tolerance:
            anchor = time
        instant[time] = anchor
    return instant


def in_turn(instant, start, free, end, rank):
    """Return the sort key of periodic steps: at one instant, zero-time steps first, then those without resources.

    `free` is when what a step holds is free again; `rank` orders those that are equal in this.
    """
    at = instant[start]
    return at, (instant[end] > at) + (instant[free] > at), rank


def instants_of(actions, span=None):
    """Map every start and end to its instant."""
    return clusters((time for action in actions for time in (action.start, action.released, action.end)), span)


def check_resources(actions, instant, report):
    """Every resource serves one step at a time."""
    users = {}
    for action in actions:
        for resource in action.resources:
            users.setdefault(resource, []).append((instant[action.start], action.index, instant[action.released]))
    for intervals in users.values():
        free_at = None
        for start, index, until in sorted(intervals):
            # Those before began earlier, or at the same instant and are listed before: they must be over.
            if free_at is not None and free_at > start:
                report.violations.append((index, "resource-busy"))
            free_at = until if free_at is None else max(free_at, until)


class Simulation:
    """Residency as it changes from event to event."""

    def __init__(self, graph, machine, actions, instant, report):
        self.graph, self.machine, self.actions = graph, machine, actions
        self.instant, self.report = instant, report
        self.used = {memory: machine.static.get(memory, 0) for memory in machine.memories}
        self.used[machine.first] += graph.static
        self.resident = {memory: {} for memory in machine.memories}  # bytes per value, complete ones only
        self.running = {}  # by index
        self.writing, self.reading = {}, {}  # by place, how many running steps
        self.runs = {}
        self.pinned = {(memory, value) for value, memory in graph.inputs if value in graph.pinned}
        self.log = []  # what happened, in order: "begin", "end" or "free", the action, the bytes in use afterwards

    def run(self):
        """Simulate all events, then check the final state."""
        for value, memory in self.graph.inputs:
            self.put(memory, value, self.graph.values[value])
        for memory, capacity in self.machine.memories.items():
            self.report.peaks[memory] = self.used[memory]
            self.report.peak_steps[memory] = None
            if capacity is not None and self.used[memory] > capacity:
                self.blame(None, "capacity")

        at = self.instant
        starting, ending = {}, {}
        for action in self.actions:
            starting.setdefault(at[action.start], []).append(action)
            if at[action.start] != at[action.end]:
                ending.setdefault(at[action.end], []).append(action)
        for now in sorted(set(at.values())):
            # Whoever began earlier and ends now: all complete, and only then do their frees apply.
            over = sorted(ending.get(now, []), key=lambda action: action.index)
            for action in over:
                self.complete(action)
            for action in over:
                self.free(action)
            for action in starting.get(now, []):
                self.begin(action)
                if at[action.end] == now:
                    self.complete(action)
                    self.free(action)

        for name, task in self.graph.tasks.items():
            if (task.required or task.once) and name not in self.runs:
                self.blame(None, "required-missing")
        for value, memory in self.graph.outputs:
            if self.resident[memory].get(value) != self.graph.values[value]:
                self.blame(None, "output-missing")

    def put(self, memory, value, size):
        """Set the bytes of a value in a memory, replacing the previous amount."""
        self.used[memory] += size - self.resident[memory].get(value, 0)
        self.resident[memory][value] = size

    def blame(self, index, rule):
        """Note a violation, once per step and rule."""
        if index is None or (index, rule) not in self.report.violations:
            self.report.violations.append((index, rule))

    def begin(self, action):
        """Check what the step finds, then allocate."""
        for place, size in action.needs.items():
            memory, value = place
            if self.writing.get(place):
                self.blame(action.index, "value-busy")
            there = self.resident[memory].get(value)
            if there is None or there < size:
                self.blame(action.index, "read-missing")
        for place, size in action.writes.items():
            memory, value = place
            if self.writing.get(place) or self.reading.get(place):
                self.blame(action.index, "value-busy")
            if action.partial and self.resident[memory].get(value, 0) + size > self.graph.values[value]:
                self.blame(action.index, "bad-bytes")
        if action.task is not None:
            task = self.graph.tasks[action.task]
            self.runs[action.task] = self.runs.get(action.task, 0) + 1
            if self.runs[action.task] > 1 and task.once:
                self.blame(action.index, "once-repeated")
            if self.runs[action.task] > 1 and not task.recomputable:
                self.blame(action.index, "not-recomputable")

        self._occupy(action, 1)
        for memory, capacity in self.machine.memories.items():
            used = self.used[memory]
            if used > self.report.peaks[memory]:
                self.report.peaks[memory] = used
                self.report.peak_steps[memory] = action.index
            if action.adds.get(memory, 0) > 0 and capacity is not None and used > capacity:
                self.blame(action.index, "capacity")
        self.log.append(("begin", action, dict(self.used)))

    def _occupy(self, action, count):
        """Let a step begin (1) or end (-1) to hold bytes and places."""
        for memory, size in action.adds.items():
            self.used[memory] += count * size
        for places, held in ((action.writes, self.writing), (action.needs, self.reading)):
            for place in places:
                held[place] = held.get(place, 0) + count

    def complete(self, action):
        """Release reads and workspace, and replace old copies by the written values."""
        self._occupy(action, -1)
        for (memory, value), size in action.writes.items():
            if action.partial:
                size = min(size + self.resident[memory].get(value, 0), self.graph.values[value])
            self.put(memory, value, size)
        self.log.append(("end", action, dict(self.used)))

    def free(self, action):
        """Apply the step's frees; those that are not allowed do not happen."""
        for place, size in action.frees:
            memory, value = place
            there = self.resident[memory].get(value)
            if place in self.pinned:
                self.blame(action.index, "pinned-input")
            elif self.writing.get(place) or self.reading.get(place):
                self.blame(action.index, "value-busy")
            elif there is None or (size is not None and there < size):
                self.blame(action.index, "free-missing")
            elif size is None or there == size:
                self.put(memory, value, 0)
                del self.resident[memory][value]
            else:
                self.put(memory, value, there - size)
        self.log.append(("free", action, dict(self.used)))


def check_without_tolerance(simulation):
    """Replay all events without tolerance, and blame actions that start before their prerequisites end."""
    tolerance = 1e-9 * simulation.report.makespan
    before = dict.fromkeys(simulation.machine.memories, 0)
    resource_free, written, left_alone, ends = {}, {}, {}, {}
    given_back = {memory: [] for memory in simulation.machine.memories}  # (when, how many bytes), sorted
    for what, action, used in simulation.log:
        if what == "begin":
            given = action.start
            waits = [resource_free.get(resource, 0) for resource in action.resources]
            waits += [written.get(place, 0) for place in action.needs]
            waits += [left_alone.get(place, 0) for place in action.writes]
            for memory, capacity in simulation.machine.memories.items():
                if capacity is not None and used[memory] > before[memory]:
                    waits.append(_when_it_fits(given_back[memory], used[memory], capacity))
            time = max([given, *waits])
            ends[action.index] = max(action.end, time + action.duration)
            resource_free |= dict.fromkeys(action.resources, ends[action.index] - action.delay)
        else:
            time = given = max(action.end, ends[action.index])
            if what == "end":
                written |= dict.fromkeys(action.writes, time)
                touched = [*action.needs, *action.writes]
            else:
                given, touched = action.end, [place for place, _ in action.frees]
                time = max([time, *(left_alone.get(place, 0) for place in touched)])
                written |= dict.fromkeys([place for place, size in action.frees if size is not None], time)
            left_alone |= {place: max(time, left_alone.get(place, 0)) for place in touched}
            for memory, bytes_there in before.items():
                if bytes_there != used[memory]:
                    insort(given_back[memory], (time, bytes_there - used[memory]))
        if time - given > tolerance:
            simulation.blame(action.index, "time-hidden")
        before = used


def _when_it_fits(given_back, used, capacity):
    """Return from when on the bytes in use, with those that are given back later, are within the capacity."""
    for when, size in reversed(given_back):
        if used + size > capacity:
            return when
        used += size
    return 0
