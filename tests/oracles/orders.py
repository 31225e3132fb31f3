"""Play the orders of a pipeline: from `stages` and `orders` of a schedule document to a list of timed steps.

A clock goes from event to event. At every instant first everything that ends ends, then every free way takes the first
that waits for it, and only then every device whose next operation finds all that it reads begins it.

Where transfers hold devices up, each device has a program instead: between two operations it offers what the one has
made, then asks for what the other is the first one of its device to read. Offers and asks stand one by one, or
(``grouped``) all at once; ``blocking`` transfers are offered only. Whoever has come to one goes on when that is done;
a transfer can begin when those that it takes have come to it. At every instant, of those that can begin, the one that
could so first does (of equal ones, by sender, receiver and value), as long as there is one whose devices do nothing
else; then operations begin.

Rules
-----
initial-placement
    A layer is in no stage, or in stages of too many devices; a placeable input is in too many memories at the start,
    or in none.
bad-step
    An operation that cannot be read, or whose stage or micro-batch there is not, or which is not of this device; which
    runs a task that another one runs; a W or BW of layers without halves; a layer that the device's type cannot run,
    or whose parameters do not lie on the device.
required-missing
    An operation is missing: a forward, a backward or a weight half that none of them runs.
deadlock
    Operations wait for ever.

Readings of the format where it is brief
----------------------------------------
- BW runs the B of all its layers, the last one first, and then their W; layers without halves have their B only.
- A W of a stage in which some layers have halves runs those of these layers.
- The layers of a stage that is a list run in ascending order.
- A stage puts the parameters of its layers on its device even if no operation names it; two stages with the same layers
  on one device are one copy.
- What an operation makes goes to every device on which any operation reads it. All that it makes is ready at once, when
  it ends, and goes in the order of the letters x, s, y, v, e, for one letter in that of the layers, for gradients of
  one output in that of its readers, and for one value in that of the devices.
- `initial` is taken as it is given.
- Values that nobody reads are dropped by whoever makes them.
- Drops are those of the last use to end; of uses that end at one time, of the one listed last.
"""

import re
from dataclasses import dataclass, field, replace
from functools import partial

from . import closing
from .lowering import ratio, run_time


@dataclass
class _Operation:
    """One entry of an order: its tasks, what it needs from elsewhere, and what it makes."""

    device: str
    tasks: list
    needs: set
    makes: list
    beside: frozenset = frozenset()  # of the tasks, those that go on at once with the one before
    passes: list = field(default_factory=list)  # stage, its layers, and whether this is no forward
    started: bool = False


@dataclass
class _Way:
    """A channel: until when it is occupied, and what waits for it as (link, value)."""

    free_at: object = 0
    waiting: list = field(default_factory=list)


def steps_of(document, graph, machine, schedule, transfers="overlap"):
    """Turn the orders of a schedule document into steps.

    Parameters
    ----------
    document : dict
        The instance.
    graph : Graph
        The task graph of the pipeline.
    machine : Machine
    schedule : dict
        A `remat.schedule/2` document with `stages` and `orders`.
    transfers : str
        What the cluster says that they hold up.

    Returns
    -------
    steps : list of dict or None
        Steps with their starts, sorted by them; None where a rule is broken.
    initial : dict
        The memories of every placeable input at the start.
    rules : list of str
        The rules that are broken, before there are any steps.
    graph : Graph
        With what ends the step.
    """
    stages = [_layers(stage["layers"]) for stage in schedule["stages"]]
    parts = [stage.get("part", [1, 1]) for stage in schedule["stages"]]
    devices = [stage["device"] for stage in schedule["stages"]]
    initial = schedule.get("initial")
    if initial is None:
        initial = {
            value: sorted({device for layers, device in zip(stages, devices, strict=True) if _layer(value) in layers})
            for value in graph.placeable
        }
    every = {int(name[2:].split(".")[0]) for name in graph.tasks if name.startswith("Fe")}
    rules = []
    if every - {layer for layers in stages for layer in layers}:
        rules.append("initial-placement")
    homes = [{device for own, device in zip(stages, devices, strict=True) if layer in own} for layer in every]
    if any(len(home) > graph.copies for home in homes):
        rules.append("initial-placement")
    if any(not 1 <= len(set(initial.get(value, ()))) <= graph.copies for value in graph.placeable):
        rules.append("initial-placement")

    orders, ran = {}, set()
    for device in machine.processors:
        orders[device] = []
        for text in schedule["orders"].get(device, []):
            listed = [_tasks(graph, machine, one, (stages, parts), devices, device) for one in text.split("&")]
            if None in listed or ran & set(listed[0]) or any(ran & set(one) for one in listed[1:]):
                rules.append("bad-step")
                continue
            tasks, beside = (listed[0], frozenset()) if len(listed) == 1 else _pair(*listed)
            needed = {value for name in tasks for value in graph.tasks[name].reads if value in graph.placeable}
            if any(machine.processors[device] not in initial.get(value, ()) for value in needed):
                rules.append("bad-step")
            ran |= set(tasks)
            orders[device].append(_operation(graph, device, listed, tasks, beside))
            orders[device][-1].passes = [_pass(part, stages) for part in text.split("&")]
    if set(schedule["orders"]) - set(machine.processors):
        rules.append("bad-step")
    if set(graph.tasks) - ran:
        rules.append("required-missing")
    if rules:
        return None, initial, rules, graph
    end = closing.of_ranks if document.get("sharding") else closing.ended
    graph, last = end(document, graph, machine, orders, initial)
    if document.get("sharding"):  # what tasks read has changed
        for device, operations in orders.items():
            orders[device] = [
                replace(_operation(graph, device, _apart(one), one.tasks, one.beside), passes=one.passes)
                for one in operations
            ]
    for device, task in last:
        orders[device].append(_operation(graph, device, [[task]], [task], frozenset()))
    for operations in orders.values():  # which may make more, now
        for operation in operations:
            operation.makes += [
                v for name in operation.tasks for v in graph.tasks[name].writes if v not in operation.makes
            ]
    if transfers == "overlap":
        steps = _play(graph, machine, orders, initial)
    else:
        steps = _Programs(graph, machine, orders, initial, transfers).play()
    if steps is None:
        return None, initial, ["deadlock"], graph
    return _with_drops(graph, machine, steps), initial, [], graph


def _layers(given):
    if isinstance(given, dict):
        return list(range(given["from"], given["to"] + 1))
    return sorted(given)


def _layer(value):
    return int(value[1:].split(".")[0])


def _numbered(value):
    """Order values by letter, layer, whose gradient of an output it is (where that is not the next layer), batch."""
    layer, *reader, batch = map(int, value[1:].split("."))
    return "xsyve".index(value[0]), layer, reader or [layer + 1], batch


def degrees_of(document, schedule):
    """Return, for each layer, how many devices share every micro-batch; None where no stage says so."""
    given = schedule.get("stages") if isinstance(schedule, dict) else None
    if not given or all("part" not in stage for stage in given):
        return None
    count = sum(layer.get("repeat", 1) for layer in document["layers"])
    of = {layer: stage.get("part", [1, 1])[1] for stage in given for layer in _layers(stage["layers"])}
    return [of.get(layer, 1) for layer in range(1, count + 1)]


GROUPED = (
    *("forward_time", "backward_time", "weight_time", "paired_time", "output_size", "saved_size", "weight_saved_size"),
    *("gradient_size", "forward_workspace", "backward_workspace", "parameter_size", "parameter_gradient_size"),
    *("optimizer_size", "update_time", "tensor"),
)


def in_groups(document, machine, schedule):
    """Return the instance as devices have it that run stages together, and who does as which device does.

    A layer's time includes the ring in which its devices add up what the entry says: 2 (t - 1) rounds, each as long as
    the slowest link between neighbours takes for a t-th of it.
    """
    given = schedule.get("stages") if isinstance(schedule, dict) else None
    groups = [stage for stage in given or () if stage.get("tensor", 1) > 1]
    if not groups:
        return document, {}
    names, follows, layers = list(machine.processors), {}, []
    for layer in document["layers"]:
        layers += [{**layer, "repeat": 1} for _ in range(layer.get("repeat", 1))]
    for stage in groups:
        count, first = stage["tensor"], names.index(stage["device"])
        own = names[first : first + count]
        follows |= dict.fromkeys(own[1:], own[0])
        ring = [machine.link(one, other) for one, other in zip(own, [*own[1:], own[0]], strict=True)]
        for number in _layers(stage["layers"]):
            layer = layers[number - 1]
            if "tensor" not in layer:  # on another group of these, too
                continue
            work = dict(layer["tensor"][str(count)])
            for phase in ("forward", "backward"):
                size = work.pop(f"{phase}_collective_size", 0)
                rounds = [r.latency + r.delay + (ratio(size, count * r.bandwidth) if r.bandwidth else 0) for r in ring]
                time, wait = work[f"{phase}_time"], 2 * (count - 1) * max(rounds)
                later = {kind: one + wait for kind, one in time.items()} if isinstance(time, dict) else time + wait
                work[f"{phase}_time"] = later
            layers[number - 1] = {key: value for key, value in layer.items() if key not in GROUPED} | work
    return document | {"layers": layers}, follows


def _tasks(graph, machine, text, held, devices, device):
    """Return the tasks of one entry of an order of `device`, or None where it has no right to be there."""
    stages, parts = held
    match = re.fullmatch(r"(F|BW|B|W)(\d+)\.(\d+)", text)
    if match is None or int(match[2]) >= len(stages) or devices[int(match[2])] != device:
        return None
    phase, stage = match[1], int(match[2])
    part, of = parts[stage]
    batch = int(match[3]) * of + part - 1
    layers = stages[stage]
    if phase == "F":
        tasks = [f"Fe{layer}.{batch}" for layer in layers]
    else:
        tasks = [f"{half}{layer}.{batch}" for half in phase for layer in reversed(layers)]
        halved = [name for name in tasks if name[0] != "W" or name in graph.tasks]
        if "W" in phase and not any(name[0] == "W" for name in halved):
            return None
        tasks = halved
    if any(name not in graph.tasks for name in tasks):
        return None
    time = _clock(graph, machine)
    return None if any(time(name, device) is None for name in tasks) else tasks


def _pass(text, stages):
    phase, stage, _ = re.fullmatch(r"(F|BW|B|W)(\d+)\.(\d+)", text).groups()
    return int(stage), stages[int(stage)], phase != "F"


def _pair(forward, backward):
    """Layer by layer, a forward and a backward at once; then what is left of either, then second halves."""
    tasks, beside = [], set()
    first, last = [name for name in backward if name[0] == "B"], [name for name in backward if name[0] == "W"]
    for index in range(max(len(forward), len(first))):
        if index < min(len(forward), len(first)):
            tasks += [forward[index], first[index]]
            beside.add(len(tasks) - 1)
    both = min(len(forward), len(first))
    return [*tasks, *forward[both:], *first[both:], *last], frozenset(beside)


def _apart(operation):
    """Return the tasks of both sides of a pair, which need all that they do not make by themselves."""
    if not operation.beside:
        return [operation.tasks]
    forward = [name for name in operation.tasks if name.startswith("F")]
    return [forward, [name for name in operation.tasks if not name.startswith("F")]]


def _operation(graph, device, parts, tasks, beside):
    """Each part of a pair needs all that it does not make by itself: the other one's results come too late."""
    made, needs = [], set()
    for part in parts:
        own = []
        for name in part:
            needs |= set(graph.tasks[name].reads) - set(own)
            own += graph.tasks[name].writes
        made += own
    return _Operation(device, tasks, needs, made, beside)


def _clock(graph, machine):
    """Return the time of a task on a device, as a function."""

    def time(name, device):
        return run_time(graph.tasks[name], 1, machine.speeds.get(device, 1), [machine.types[device]])

    return time


def _play(graph, machine, orders, initial):
    """Return runs and copies with their starts, or None where somebody waits for ever."""
    readers = {}
    for device, operations in orders.items():
        for operation in operations:
            for value in operation.needs - set(operation.makes):
                readers.setdefault(value, []).append(device)
    there = {(memory, value) for value, memories in initial.items() for memory in memories}
    ways = {link.channel: _Way() for link in machine.links}
    busy, time = dict.fromkeys(orders), _clock(graph, machine)
    events = []  # (when, what happens)
    steps, now = [], 0

    def end_of(operation):
        def happen():
            busy[operation.device] = None
            source = machine.processors[operation.device]
            there.update((source, value) for value in operation.makes)
            for value in sorted((value for value in operation.makes if value[0] in "xsyve"), key=_numbered):
                targets = [machine.processors[device] for device in orders if device in readers.get(value, ())]
                for target in dict.fromkeys(targets):
                    if target != source:
                        link = machine.link(source, target)
                        ways[link.channel].waiting.append((link, value))

        return happen

    def begin(operation):
        operation.started = True
        busy[operation.device] = operation
        at = now
        for index, name in enumerate(operation.tasks):
            step = {"run": name, "on": [operation.device], "start": at}
            steps.append(step | ({"paired": True} if index in operation.beside else {}))
            if index + 1 not in operation.beside:
                at = at + _lasts(graph, machine, time, operation, index)
        events.append((at, end_of(operation)))

    together = {name: task for name, task in graph.tasks.items() if task.parts}

    def meet(name):
        """Begin an exchange if it is its turn on all its ways."""
        task = graph.tasks[name]
        own = [ways[channel] for channel in closing.channels(machine, task)]
        if any(way.waiting[0] != name or way.free_at > now for way in own):
            return False
        on = [next(one for one, at in machine.processors.items() if at == place) for _, _, place in task.parts]
        steps.append({"run": name, "on": on, "start": now})
        for way in own:
            way.waiting.pop(0)
            way.free_at = now + task.time
        made = {(place, value) for _, written, place in task.parts for value in written}
        events.append((now + task.time, lambda: there.update(made)))
        return True

    def send(way, link, value):
        steps.append({"copy": value, "from": link.source, "to": link.target, "start": now})
        way.free_at = now + link.duration(graph.values[value])
        events.append((way.free_at, lambda: None))
        arrival = way.free_at + link.delay
        events.append((arrival, lambda: there.add((link.target, value))))

    while True:
        moved = True
        while moved:
            moved = False
            for event in [event for event in events if event[0] == now]:
                events.remove(event)
                event[1]()
                moved = True
            for way in ways.values():
                if way.waiting and isinstance(way.waiting[0], str):
                    moved = meet(way.waiting[0]) or moved
                elif way.waiting and way.free_at <= now:
                    send(way, *way.waiting.pop(0))
                    moved = True
            if moved:
                continue
            for device, operations in orders.items():
                first = next((operation for operation in operations if not operation.started), None)
                memory = machine.processors[device]
                if busy[device] is None and first and all((memory, value) in there for value in first.needs):
                    begin(first)
                    moved = True
            if not moved:
                for name, task in list(together.items()):
                    if all((place, value) in there for read, _, place in task.parts for value in read):
                        for channel in closing.channels(machine, together.pop(name)):
                            ways[channel].waiting.append(name)
                        moved = True
                        break
        if not events:
            break
        now = min(when for when, _ in events)
    if any(not operation.started for operations in orders.values() for operation in operations):
        return None
    return steps


class _Programs:
    """Devices that do one thing after the other: operations (strings of tasks), and sets of transfers."""

    def __init__(self, graph, machine, orders, initial, transfers):
        self.graph, self.machine, self.both = graph, machine, transfers != "blocking"
        self.there = {(memory, value) for value, memories in initial.items() for memory in memories}
        self.devices = list(orders)
        self.doing = dict.fromkeys(orders)  # an operation or a transfer that is going on
        self.events, self.steps, self.now = [], [], 0
        self.can = {}  # transfers that all have come to: since when
        self.came = {}  # transfers: who has come to it
        first_reader, offers = {}, {}
        for device, operations in orders.items():
            for number, operation in enumerate(operations):
                for value in operation.needs:
                    first_reader.setdefault((device, value), number)
        for device, operations in orders.items():
            for number, operation in enumerate(operations):
                for value in operation.makes:
                    for other in self.devices:
                        if other != device and (other, value) in first_reader:
                            offers.setdefault((device, number + 1), []).append((device, other, value))
        asks = {}
        for listed in offers.values():
            for transfer in listed:
                _, other, value = transfer
                asks.setdefault((other, first_reader[other, value]), []).append(transfer)
        self.programs = {}
        for device, operations in orders.items():
            program = []
            for number in range(len(operations) + 1):
                turn = sorted(offers.get((device, number), []), key=self._rank)
                turn += sorted(asks.get((device, number), []), key=self._rank) if self.both else []
                program += [set(turn)] if transfers == "grouped" else [{transfer} for transfer in turn]
                program += operations[number : number + 1]
            self.programs[device] = [entry for entry in program if entry]

    def _rank(self, transfer):
        """Order by value as it is numbered, then by who receives it."""
        source, target, value = transfer
        return *_numbered(value), self.devices.index(target), self.devices.index(source)

    def _first(self, transfer):
        return self.can[transfer], *(self.devices.index(end) for end in transfer[:2]), self._rank(transfer)

    def play(self):
        """Return the steps, or None where somebody waits for ever."""
        while True:
            while due := next((event for event in self.events if event[0] == self.now), None):
                self.events.remove(due)
                due[1]()
            self._come()
            if self._send() or self._run():
                continue
            if not self.events:
                return None if any(self.programs.values()) else self.steps
            self.now = min(when for when, _ in self.events)

    def _come(self):
        for device, program in self.programs.items():
            if program and isinstance(program[0], set) and self.doing[device] is None:
                for transfer in program[0]:
                    self.came.setdefault(transfer, set()).add(device)
                    if len(self.came[transfer]) == 1 + self.both:
                        self.can.setdefault(transfer, self.now)

    def _send(self):
        for transfer in sorted(self.can, key=self._first):
            source, target, value = transfer
            ends = (source, target) if self.both else (source,)
            if any(self.doing[end] is not None for end in ends):
                continue
            del self.can[transfer]
            here, there = self.machine.processors[source], self.machine.processors[target]
            link = self.machine.link(here, there)
            for end in ends:
                self.doing[end] = transfer
            self.steps.append({"copy": value, "from": here, "to": there, "start": self.now})
            until = self.now + link.duration(self.graph.values[value])
            self.events.append((until, partial(self._left, transfer, ends)))
            self.events.append((until + link.delay, partial(self.there.add, (there, value))))
            return True
        return False

    def _left(self, transfer, ends):
        for end in ends:
            self.doing[end] = None
            self.programs[end][0].discard(transfer)
            if not self.programs[end][0]:
                del self.programs[end][0]

    def _run(self):
        begun, time = False, _clock(self.graph, self.machine)
        for device, program in self.programs.items():
            memory = self.machine.processors[device]
            if self.doing[device] is not None or not program or isinstance(program[0], set):
                continue
            operation, at = program[0], self.now
            if not all((memory, value) in self.there for value in operation.needs):
                continue
            self.doing[device] = operation
            for index, name in enumerate(operation.tasks):
                step = {"run": name, "on": [device], "start": at}
                self.steps.append(step | ({"paired": True} if index in operation.beside else {}))
                if index + 1 not in operation.beside:
                    at = at + _lasts(self.graph, self.machine, time, operation, index)
            self.events.append((at, partial(self._ran, device, operation)))
            begun = True
        return begun

    def _ran(self, device, operation):
        self.doing[device] = None
        del self.programs[device][0]
        self.there.update((self.machine.processors[device], value) for value in operation.makes)


def _lasts(graph, machine, time, operation, index):
    """Return how long a task of an operation goes on: what is at once with another one, as long as that."""
    name, device = operation.tasks[index], operation.device
    if index not in operation.beside:
        return time(name, device)
    other, kind = operation.tasks[index - 1], machine.types[device]
    spared = min(graph.tasks[one].spared.get(kind, 0) for one in (other, name))
    return time(other, device) + time(name, device) - spared


def _durations(graph, machine, steps):
    """Return how long each task of the steps goes on; a pipeline runs each once."""
    time, found = _clock(graph, machine), {}
    for before, step in zip([None, *steps], steps, strict=False):
        if "run" in step and graph.tasks[step["run"]].parts:
            found[step["run"]] = graph.tasks[step["run"]].time
        elif "run" in step:
            (device,) = step["on"]
            found[step["run"]] = time(step["run"], device)
            if step.get("paired"):
                pair = _Operation(device, [before["run"], step["run"]], set(), [], frozenset([1]))
                found[before["run"]] = found[step["run"]] = _lasts(graph, machine, time, pair, 1)
    return found


def _with_drops(graph, machine, steps):
    """Sort the steps by their starts, and free every value at the end of its last use in each memory."""
    order = sorted(range(len(steps)), key=lambda index: steps[index]["start"])
    steps = [steps[index] for index in order]
    lasting = _durations(graph, machine, steps)
    last = {}
    of_all = [task for task in graph.tasks.values() if len(task.parts) > 1]
    stay = graph.placeable | {value for task in of_all for value in (*task.reads, *task.writes)}
    for index, step in enumerate(steps):
        if "run" in step and len(graph.tasks[step["run"]].parts) > 1:
            continue
        if "run" in step:
            (device,) = step["on"]
            task = graph.tasks[step["run"]]
            end = step["start"] + lasting[step["run"]]
            uses = [(machine.processors[device], value) for value in (*task.reads, *task.writes)]
        else:
            link = machine.link(step["from"], step["to"])
            end = step["start"] + link.duration(graph.values[step["copy"]]) + link.delay
            uses = [(step["from"], step["copy"]), (step["to"], step["copy"])]
        for place in uses:
            last[place] = max(last.get(place, (end, index)), (end, index))
    for (memory, value), (_, index) in last.items():
        if value in stay:
            continue
        step = steps[index]
        if "run" in step:
            step.setdefault("drop", []).append(value)
        elif memory == step["from"]:
            step["drop"] = True
    return steps
