"""Read the operations of orders: which tasks they run, what these need, and how long they take."""

import re
from dataclasses import dataclass, field

from tests.oracles.lowering import run_time

OPERATION = re.compile(r"(F|BW|B|W|R)(\d+)\.(\d+)")


@dataclass
class Operation:
    """One entry of an order: its tasks, what it needs from elsewhere, and what it makes."""

    device: str
    tasks: list
    needs: set
    makes: list
    beside: frozenset = frozenset()  # tasks that run simultaneously with the previous one
    passes: list = field(default_factory=list)  # stage, its layers, and whether this is no forward
    again: frozenset = frozenset()  # of the tasks, those that run once more
    started: bool = False


def _batches_of(segment):
    """Return the micro-batches of a segment, listed or from one to another as layers are; None: all."""
    batches = segment.get("micro_batches")
    return None if batches is None else layers_of(batches)


def layers_of(given):
    """Return the layers of a stage or of a segment."""
    if isinstance(given, dict):
        return list(range(given["from"], given["to"] + 1))
    return sorted(given)


def layer_of(value):
    """Return the layer of a placeable input."""
    return int(value[1:].split(".")[0])


def numbered(value):
    """Order values by letter, layer, whose gradient of an output it is (where that is not the next layer), batch."""
    layer, *reader, batch = map(int, value[1:].split("."))
    return "xsyve".index(value[0]), layer, reader or [layer + 1], batch


class Plan:
    """The stages and orders of a schedule, with their graph and machine."""

    def __init__(self, graph, machine, schedule):
        self.graph, self.machine = graph, machine
        self.stages = [layers_of(stage["layers"]) for stage in schedule["stages"]]
        self.parts = [stage.get("part", [1, 1]) for stage in schedule["stages"]]
        self.devices = [stage["device"] for stage in schedule["stages"]]
        self.segments = [
            [(layers_of(one["layers"]), _batches_of(one)) for one in stage.get("recompute", ())]
            for stage in schedule["stages"]
        ]
        listed = [(device, text) for device, texts in schedule["orders"].items() for text in texts]
        self.ahead = {text[1:] for _, text in listed if text.startswith("R")}  # "stage.batch"

    def again(self, stage, batch):
        """Return the recomputed segments of layers of a stage for a micro-batch."""
        return [layers for layers, batches in self.segments[stage] if batches is None or batch in batches]

    def read(self, text, device):
        """Return the operation of an entry in a device's order, or None if the entry is not allowed there."""
        sides = [self._side(one, device) for one in text.split("&")]
        if None in sides or (len(sides) > 1 and any(again for _, again in sides)):
            return None
        if len(sides) == 1:
            ((tasks, again),) = sides
            beside = frozenset()
        else:
            (tasks, beside), again = _pair(*(tasks for tasks, _ in sides)), frozenset()
        return operation(self.graph, device, tasks, beside, again, [self._pass(one) for one in text.split("&")])

    def _side(self, text, device):
        """Return the tasks of one side of an entry, and the recomputed ones among them."""
        match = OPERATION.fullmatch(text)
        if match is None or int(match[2]) >= len(self.stages) or self.devices[int(match[2])] != device:
            return None
        phase, stage, batch = match[1], int(match[2]), int(match[3])
        part, of = self.parts[stage]
        number, layers = batch * of + part - 1, self.stages[stage]
        segments = self.again(stage, batch)
        if phase == "F":
            tasks, again = [f"Fe{layer}.{number}" for layer in layers], frozenset()
        elif phase == "R":
            tasks = [f"Fe{layer}.{number}" for segment in segments for layer in segment]
            again = frozenset(range(len(tasks)))
            if not tasks:
                return None
        else:
            tasks = [f"{half}{layer}.{number}" for half in phase for layer in reversed(layers)]
            halved = [name for name in tasks if name[0] != "W" or name in self.graph.tasks]
            if "W" in phase and not any(name[0] == "W" for name in halved):
                return None
            tasks, again = halved, frozenset()
            if "B" in phase and f"{stage}.{batch}" not in self.ahead:
                tasks, again = _with_segments(halved, segments, number)
        if any(name not in self.graph.tasks for name in tasks):
            return None
        time = clock(self.graph, self.machine)
        return None if any(time(name, device) is None for name in tasks) else (tasks, again)

    def _pass(self, text):
        phase, stage, _ = OPERATION.fullmatch(text).groups()
        return int(stage), self.stages[int(stage)], phase != "F"

    def misplaced(self, texts):
        """Return whether some R is not between its forward and its backward, or is there twice."""
        for text in [text for text in texts if text.startswith("R")]:
            rest = text[1:]
            at = texts.index(text)
            backward = [index for index, one in enumerate(texts) if one in (f"B{rest}", f"BW{rest}")]
            if texts.count(text) > 1 or f"F{rest}" not in texts[:at] or not backward or backward[0] < at:
                return True
        return False


def _with_segments(tasks, segments, number):
    """Insert recomputed segments right before the backward of their last layer."""
    found, again = [], set()
    for name in tasks:
        for segment in segments:
            if name == f"B{segment[-1]}.{number}":
                again |= set(range(len(found), len(found) + len(segment)))
                found += [f"Fe{layer}.{number}" for layer in segment]
        found.append(name)
    return found, frozenset(again)


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


def operation(graph, device, tasks, beside=frozenset(), again=frozenset(), passes=()):
    """Return an operation.

    Each side of a pair needs all inputs that it does not produce itself, because the other side's results come too
    late. Recomputation produces no value that another device waits for.
    """
    sides = [tasks]
    if beside:
        forward = [name for name in tasks if name.startswith("F")]
        sides = [forward, [name for name in tasks if not name.startswith("F")]]
    makes, needs = [], set()
    for side in sides:
        own = []
        for index, name in enumerate(side):
            needs |= set(graph.tasks[name].reads) - set(own)
            own += graph.tasks[name].writes
            makes += graph.tasks[name].writes if index not in again else ()
    return Operation(device, tasks, needs, makes, beside, list(passes), again)


def own_runs(operations):
    """Return the tasks that the operations of a device run, without recomputations."""
    return {name for one in operations for index, name in enumerate(one.tasks) if index not in one.again}


def clock(graph, machine):
    """Return the time of a task on a device, as a function."""

    def time(name, device):
        return run_time(graph.tasks[name], 1, machine.speeds.get(device, 1), [machine.types[device]])

    return time


def lasts(graph, machine, time, operation, index):
    """Return the duration of a task of an operation; a paired task takes the time of its partner."""
    name, device = operation.tasks[index], operation.device
    if index not in operation.beside:
        return time(name, device)
    other, kind = operation.tasks[index - 1], machine.types[device]
    spared = min(graph.tasks[one].spared.get(kind, 0) for one in (other, name))
    return time(other, device) + time(name, device) - spared


def runs_of(graph, machine, operation, start):
    """Return the steps of an operation that begins at `start`, and when it ends."""
    steps, time, at = [], clock(graph, machine), start
    for index, name in enumerate(operation.tasks):
        step = {"run": name, "on": [operation.device], "start": at}
        steps.append(step | ({"paired": True} if index in operation.beside else {}))
        if index + 1 not in operation.beside:
            at = at + lasts(graph, machine, time, operation, index)
    return steps, at
