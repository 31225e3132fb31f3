"""Judge a schedule by simulating it, event by event, exactly as the schedule format says.

Rules
-----
unknown-task, unknown-value, unknown-memory, unknown-processor, unknown-link
    A name that the instance or the machine does not have.
bad-step
    A step without a proper `start`, of no known kind, on impossible processors, dropping what its task neither
    reads nor writes.
resource-busy
    A step begins on a resource while another is served there; at one instant, steps begin in listed order, one of no
    length being over before the next begins.
read-missing
    What a run or a copy reads is not there, or not all of it.
value-busy
    A step reads, frees or writes a value that another one is writing there; or writes one that another one is
    reading there; or frees one that another one is reading there.
free-missing
    Nothing there to free (or fewer bytes than are moved away).
bad-bytes
    A partial move of a wrong size, without `drop`, or to where the value then has more bytes than its size.
pinned-input
    A pinned input is freed, wholly or in part, in a memory in which it lies at the start.
required-missing
    A `required` or `once` task never runs.
once-repeated, not-recomputable
    A second run of a task that is `once`, or not `recomputable`.
output-missing
    An output is not completely in its memory at the end.
capacity
    More bytes than the memory has.
initial-placement
    A placeable input lies nowhere at the start, or in more memories than copies are allowed; a layer is in no stage.
deadlock
    Orders that wait for each other for ever.
time-hidden
    Looked for only where no other rule is broken: if each step waited, to the last digit, for what has ended before it
    at the same instant, one would begin or free later than given by more than the tolerance of an instant.

Readings of the format where it is brief
----------------------------------------
- Reading a value whose first bytes are still being written breaks two rules: read-missing and value-busy.
- Where two steps conflict, the one that starts later (or frees) is named; a capacity violation names each step
  that adds bytes to a memory that then exceeds its capacity, and no step for the initial residency.
- Presence and busyness are per value and memory, also for partial moves: a part of a value cannot leave while
  another step is reading (even moving) the value there.  Bytes have no identity: a value is readable where the
  number of its bytes is its size.
- Several frees of one value at one instant: the first listed one frees, the others find nothing (free-missing).
- A free that breaks a rule is not carried out; every other step is, so that one error does not breed many.
- The makespan is the greatest end of any step, drop steps included.
- If any start or end is a float, instants are clusters: sorted times within 1e-9 of the makespan of the first
  time of the cluster.  A step whose start and end fall into one cluster has no length.
- Recompute time is the sum of the runs' times, each on one processor, minus the no-recompute time: running a task
  on several processors is no negative recomputation.  The cheapest producers: values already written by a needed
  task need no other (a task that reads a value cannot be the first to write it); then values with one producer;
  then, in the graph's order, the least time, the first listed
  on ties.
- Pinned inputs may be re-produced by a copy or a run (nothing is freed by anybody).
- The schedule's machine, where it has one, replaces the instance's; the default memory of inputs follows it.
- `after` is not judged.
- A schedule by orders that breaks a rule of the orders has no steps, and is not judged further.
- Placeable inputs are pinned in the memories in which `initial` has them, but for those of a chain: what replaces one
  of these has to be there at the end. An entry of `initial` for anything else is no placement (initial-placement); an
  unknown memory is unknown-memory.
- A memory named twice for one input counts once.
- Of two runs at once that break a rule, the second one does not happen, and the first one is alone.
"""

import itertools
import re
from dataclasses import dataclass, field, replace

from . import lowering, orders
from .actions import is_time, read_step


@dataclass
class Report:
    """The verdict: violations as (step index or None, rule), and the figures of the schedule."""

    violations: list = field(default_factory=list)
    makespan: float = 0
    peaks: dict = field(default_factory=dict)
    peak_steps: dict = field(default_factory=dict)  # first step at which the peak stands, None: at the start
    recompute_time: float = 0
    transferred: dict = field(default_factory=dict)
    idle: dict = field(default_factory=dict)
    overlap: dict = field(default_factory=dict)  # of each channel that is no processor: its time beside runs
    machine_differs: bool = False

    @property
    def ok(self):
        """No violation."""
        return not self.violations

    @property
    def rules(self):
        """The set of broken rules."""
        return {rule for _, rule in self.violations}


def check(document, schedule, budget=None):
    """Judge a schedule.

    Parameters
    ----------
    document : dict
        The instance.
    schedule : dict or list
        A schedule document, or its list of steps; every step with its `start`.
    budget : int or dict, optional
        Overrides capacities, as in `lowering.machine`; not used when the schedule has a machine.

    Returns
    -------
    Report
    """
    machine = lowering.machine(document, budget)
    report = Report()
    if isinstance(schedule, dict) and schedule.get("machine") is not None:
        own = lowering.read_machine(schedule["machine"])
        report.machine_differs = own != machine
        machine = own
    document, follows = orders.in_groups(document, machine, schedule)
    graph = lowering.lower(document, machine, orders.degrees_of(document, schedule))
    steps, initial = schedule, {}
    if isinstance(schedule, dict):
        steps, initial = schedule.get("steps"), schedule.get("initial") or {}
        if schedule.get("orders") is not None:
            transfers = (document.get("cluster") or {}).get("transfers") or "overlap"
            steps, initial, broken, graph = orders.steps_of(document, graph, machine, schedule, transfers)
            if broken:
                report.violations = [(None, rule) for rule in sorted(set(broken))]
                return report
    inputs, rules = _placed(graph, machine, initial)
    report.violations += [(None, rule) for rule in rules]
    graph = replace(
        graph,
        inputs=[*graph.inputs, *inputs],
        pinned=graph.pinned | graph.placeable - set(graph.follows),
        outputs=[*graph.outputs, *((graph.follows[value], name) for value, name in inputs if value in graph.follows)],
    )

    actions = []
    for index, step in enumerate(steps):
        action, rules = read_step(graph, machine, index, step)
        if action is not None and not is_time(step.get("start")):
            action, rules = None, [*rules, "bad-step"]
        report.violations += [(index, rule) for rule in rules]
        if action is not None:
            action.start = step["start"]
            actions.append(action)

    actions = _join_pairs(graph, machine, steps, actions, report)
    report.makespan = max((action.end for action in actions), default=0)
    instant = _instants(actions, report.makespan)
    _check_resources(actions, instant, report)
    simulation = _Simulation(graph, machine, actions, instant, report)
    simulation.run()
    if not report.violations:
        _without_tolerance(simulation)
    _count(graph, machine, actions, report)
    for device, first in follows.items():
        own, others = machine.processors[device], machine.processors[first]
        report.peaks[own], report.idle[device] = report.peaks[others], report.idle[first]
    return report


def _join_pairs(graph, machine, steps, actions, report):
    """Give two runs at once the time that they take together; one alone occupies the processor for both."""
    there = {action.index: action for action in actions}
    for index, step in enumerate(steps):
        if index not in there or "run" not in step or not step.get("paired"):
            continue
        second, first = there[index], there.get(index - 1)
        good = first is not None and first.task is not None and not steps[index - 1].get("paired")
        if good:
            tasks = [graph.tasks[one.task] for one in (first, second)]
            good = {task.side for task in tasks} == {"forward", "backward"} and first.start == second.start
            good = good and first.resources == second.resources and len(first.resources) == 1
        if not good:
            report.violations.append((index, "bad-step"))
            del there[index]
            continue
        (device,) = first.resources
        kind = machine.types[device]
        first.duration = first.duration + second.duration - min(task.spared.get(kind, 0) for task in tasks)
        second.duration, second.resources = first.duration, ()
    return [action for action in actions if action.index in there]


def _placed(graph, machine, initial):
    """Return the placeable inputs with their memories at the start, and the rules that these break."""
    rules = ["initial-placement" for value in initial if value not in graph.placeable]
    inputs = []
    for value in sorted(graph.placeable):
        memories = list(dict.fromkeys(initial.get(value) or []))
        rules += ["unknown-memory" for name in memories if name not in machine.memories]
        if not 1 <= len(memories) <= graph.most.get(value, graph.copies):
            rules.append("initial-placement")
        inputs += [(value, name) for name in memories if name in machine.memories]
    return inputs, sorted(set(rules))


def _instants(actions, makespan):
    """Map every start and end to its instant."""
    times = sorted({time for action in actions for time in (action.start, action.released, action.end)})
    tolerance = 1e-9 * makespan if any(isinstance(time, float) for time in times) else 0
    instant, anchor = {}, None
    for time in times:
        if anchor is None or time - anchor > tolerance:
            anchor = time
        instant[time] = anchor
    return instant


def _check_resources(actions, instant, report):
    """Every resource serves one step at a time."""
    users = {}
    for action in actions:
        for resource in action.resources:
            users.setdefault(resource, []).append((instant[action.start], instant[action.released], action.index))
    for intervals in users.values():
        intervals.sort(key=lambda interval: (interval[0], interval[2]))
        for later, (start, _, index) in enumerate(intervals):
            for _, until, _ in intervals[:later]:
                # It began before, or at the same instant and is listed before: it must be over.
                if until > start:
                    report.violations.append((index, "resource-busy"))
                    break


class _Simulation:
    """Residency as it changes from event to event."""

    def __init__(self, graph, machine, actions, instant, report):
        self.graph, self.machine, self.actions = graph, machine, actions
        self.instant, self.report = instant, report
        self.static = {memory: machine.static.get(memory, 0) for memory in machine.memories}
        self.static[machine.first] += graph.static
        self.resident = {memory: {} for memory in machine.memories}  # bytes per value, complete ones only
        self.running = []
        self.runs = {}
        self.pinned = {(memory, value) for value, memory in graph.inputs if value in graph.pinned}
        self.log = []  # what happened, in order: "begin", "end" or "free", the action, the bytes in use afterwards

    def note(self, what, action):
        """Write down an event."""
        self.log.append((what, action, {memory: self.usage(memory) for memory in self.machine.memories}))

    def run(self):
        """Play all events, then look at what is left."""
        for value, memory in self.graph.inputs:
            self.resident[memory][value] = self.graph.values[value]
        for memory, capacity in self.machine.memories.items():
            self.report.peaks[memory] = self.usage(memory)
            self.report.peak_steps[memory] = None
            if capacity is not None and self.usage(memory) > capacity:
                self.blame(None, "capacity")

        at = self.instant
        starting = {}
        for action in self.actions:
            starting.setdefault(at[action.start], []).append(action)
        for now in sorted(set(at.values())):
            # Whoever began earlier and ends now: all complete, and only then do their frees apply.
            ending = sorted((a for a in self.running if at[a.end] == now), key=lambda action: action.index)
            for action in ending:
                self.complete(action)
            for action in ending:
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

    def usage(self, memory):
        """Bytes in use now: static, resident, and held by running steps."""
        held = sum(action.adds.get(memory, 0) for action in self.running)
        return self.static[memory] + sum(self.resident[memory].values()) + held

    def blame(self, index, rule):
        """Note a violation, once per step and rule."""
        if index is None or (index, rule) not in self.report.violations:
            self.report.violations.append((index, rule))

    def begin(self, action):
        """Check what the step finds, then allocate."""
        for place, size in action.needs.items():
            memory, value = place
            if any(place in other.writes for other in self.running):
                self.blame(action.index, "value-busy")
            there = self.resident[memory].get(value)
            if there is None or there < size:
                self.blame(action.index, "read-missing")
        for place, size in action.writes.items():
            memory, value = place
            if any(place in other.writes or place in other.needs for other in self.running):
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

        self.running.append(action)
        for memory, capacity in self.machine.memories.items():
            used = self.usage(memory)
            if used > self.report.peaks[memory]:
                self.report.peaks[memory] = used
                self.report.peak_steps[memory] = action.index
            if action.adds.get(memory, 0) > 0 and capacity is not None and used > capacity:
                self.blame(action.index, "capacity")
        self.note("begin", action)

    def complete(self, action):
        """Release reads and workspace; what was written is there, in the place of any old copy."""
        self.running.remove(action)
        for (memory, value), size in action.writes.items():
            if action.partial:
                size = min(size + self.resident[memory].get(value, 0), self.graph.values[value])
            self.resident[memory][value] = size
        self.note("end", action)

    def free(self, action):
        """Apply the step's frees; those that are not allowed do not happen."""
        for place, size in action.frees:
            memory, value = place
            there = self.resident[memory].get(value)
            if place in self.pinned:
                self.blame(action.index, "pinned-input")
            elif any(place in other.writes or place in other.needs for other in self.running):
                self.blame(action.index, "value-busy")
            elif there is None or (size is not None and there < size):
                self.blame(action.index, "free-missing")
            elif size is None or there == size:
                del self.resident[memory][value]
            else:
                self.resident[memory][value] = there - size
        self.note("free", action)


def _without_tolerance(simulation):
    """Let all that happened happen again, nothing before what it waits for: who is late?"""
    tolerance = 1e-9 * simulation.report.makespan
    before = dict.fromkeys(simulation.machine.memories, 0)
    resource_free, written, left_alone, ends = {}, {}, {}, {}
    given_back = {memory: [] for memory in simulation.machine.memories}  # (when, how many bytes)
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
                given_back[memory].append((time, bytes_there - used[memory]))
        if time - given > tolerance:
            simulation.blame(action.index, "time-hidden")
        before = used


def _when_it_fits(given_back, used, capacity):
    """Return from when on the bytes in use, with those that are given back later, are within the capacity."""
    for when, size in sorted(given_back, reverse=True):
        if used + size > capacity:
            return when
        used += size
    return 0


def _count(graph, machine, actions, report):
    """Fill in transferred bytes, idle times and the recompute time."""
    report.transferred = {f"{link.source}->{link.target}": 0 for link in machine.links}
    report.idle = dict.fromkeys(machine.processors, report.makespan)
    report.idle |= {name: report.makespan for link in machine.links for name in (link.channel, *link.also)}
    run_time = 0
    for action in actions:
        if action.task is not None:
            run_time += graph.tasks[action.task].time
        if action.link is not None:
            report.transferred["->".join(action.link)] += sum(action.writes.values())
        if action.task is not None and graph.tasks[action.task].parts:
            places = action.around
            for way in zip(places, places[1:] + places[:1], strict=True):
                if machine.link(*way) is not None:
                    report.transferred["->".join(way)] += graph.tasks[action.task].sent
        for resource in action.resources:
            report.idle[resource] -= action.duration - action.delay
    report.recompute_time = run_time - no_recompute_time(graph)
    report.overlap = {link.channel: 0 for link in machine.links if link.channel not in machine.processors}
    instants = sorted({time for action in actions for time in (action.start, action.released, action.end)})
    for begin, end in itertools.pairwise(instants):
        active = [action for action in actions if action.start <= begin and end <= action.released]
        working = [graph.tasks[action.task] for action in active if action.task is not None]
        if any(task.busy or not task.parts for task in working):
            crossing = [action for action in active if action.link is not None or action.around]
            for channel in {name for action in crossing for name in action.resources}:
                if channel in report.overlap:
                    report.overlap[channel] += end - begin


def no_recompute_time(graph):
    """Return the time of each required task and of the cheapest producer of each other needed value, once.

    Of a chain's variants (`B3.1`, `B3.2`, ...) those count that make the total least: a stage's choice does not
    depend on the others'.
    """
    variants = {}
    for name in graph.tasks:
        stage, dot, _ = name.partition(".")
        if dot and re.fullmatch("B[0-9]+", stage) and not graph.tasks[name].required:
            variants.setdefault(stage, []).append(name)
    chosen = {stage: names[0] for stage, names in variants.items()}
    for stage, names in variants.items():
        chosen[stage] = min(names, key=lambda name: _closure_time(graph, {**chosen, stage: name}.values()))
    return _closure_time(graph, chosen.values())


def _closure_time(graph, chosen):
    needed = {name for name, task in graph.tasks.items() if task.required or task.once} | set(chosen)
    inputs = {value for value, _ in graph.inputs}
    while True:
        made = inputs | {value for name in needed for value in _first_made(graph.tasks[name])}
        wanted = {value for name in needed for value in graph.tasks[name].reads}
        wanted |= {value for value, _ in graph.outputs}
        producers = {
            value: [name for name, task in graph.tasks.items() if value in _first_made(task)]
            for value in graph.values
            if value in wanted - made
        }
        producers = {value: names for value, names in producers.items() if names}
        if not producers:
            return sum(graph.tasks[name].time for name in needed)
        forced = [names[0] for names in producers.values() if len(names) == 1]
        # One choice at a time: it may supply other values, too.
        names = forced or next(iter(producers.values()))
        needed.add(min(names, key=lambda name: graph.tasks[name].time))


def _first_made(task):
    """Values that a task can be the first to write: one that it reads must be there already."""
    return set(task.writes) - set(task.reads)
