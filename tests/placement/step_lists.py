"""Random task graphs and machines, and lists of steps that are valid in the order in which they are listed.

Everything is a plain document. The generator tracks memory contents itself, so draws do not depend on placement or the
verifier: each step of a list may run when all previous steps have ended. All overlaps that placement creates must be
legal.
"""

import random
from dataclasses import dataclass, field

INTEGER, FLOAT, TINY = "integer", "float", "tiny"

TIMES = {
    INTEGER: (0, 0, 1, 1, 2, 3, 5, 8),
    FLOAT: (0.0, 0.1, 0.3, 0.7, 1.0, 1.1, 2.3, 1 / 3),
    # Durations below the tolerance of one instant, and ordinary ones.
    TINY: (0.0, 1e-13, 1e-12, 7e-10, 2e-9, 1e-8, 0.5, 1.0, 3, 1 / 3),
}
LATENCIES = {INTEGER: (0, 0, 0, 1, 2), FLOAT: (0, 0.0, 0.1, 1.7), TINY: (0, 0, 1e-12, 3e-10, 1.0)}
BANDWIDTHS = {INTEGER: (None, 1, 1, 2, 3), FLOAT: (None, 0.5, 1, 3, 2.7), TINY: (None, 1, 1e10, 1e12, 3.3)}


@dataclass
class World:
    """A document, and step lists that are valid for it one after the other."""

    document: dict
    lists: list = field(default_factory=list)


def draw_world(chance, *, lists, flavour=None, longest=45, sequential=False):
    """Draw an instance with its machine and that many lists of steps.

    Parameters
    ----------
    chance : random.Random
    lists : int
    flavour : str, optional
        Which times; drawn where it is left out.
    longest : int
        Most attempts to add a step.
    sequential : bool
        Whether everything shall share one processor (for the short cut of placement).
    """
    flavour = flavour or chance.choice((INTEGER, INTEGER, FLOAT, TINY))
    document = {"schema": "remat.instance/1", "kind": "dag", "units": {"time": "unit", "memory": "unit"}}
    document["machine"] = _machine(chance, flavour, sequential)
    _graph(chance, flavour, document)
    if chance.random() < 0.3:
        document["static_memory"] = chance.randint(0, 3)
    _capacities(chance, document)
    drawn = [_Executor(chance, document, sequential) for _ in range(lists)]
    for executor in drawn:
        for _ in range(chance.randint(5, longest)):
            executor.attempt()
    _demand(chance, document, drawn)
    for processor in document["machine"]["processors"][1:]:
        if chance.random() < 0.4:
            document["schema"] = "remat.instance/2"
            processor["speed"] = chance.choice((0.5, 0.25, 0.1, 1 / 3, 0.7))
    return World(document, [executor.steps for executor in drawn])


def working_memory(document):
    """Return the memory of the first processor, which is where static bytes and inputs without a place are."""
    return document["machine"]["processors"][0]["memory"]


def _machine(chance, flavour, sequential):
    memories = ["device", "host", "disk"][: chance.choice((1, 2, 2, 3))]
    processors = [{"name": "cpu0", "memory": chance.choice((memories[0], memories[-1]))}]
    while not sequential and len(processors) < 4 and chance.random() < 0.5:
        processors.append({"name": f"cpu{len(processors)}", "memory": chance.choice(memories)})
    links = []
    for source in memories:
        for target in memories:
            if source == target or chance.random() < 0.2:
                continue
            link = {"source": source, "target": target, "bandwidth": chance.choice(BANDWIDTHS[flavour])}
            link["latency"] = chance.choice(LATENCIES[flavour])
            channel = chance.choice((None, "bus", "bus", "ring", chance.choice(processors)["name"]))
            if sequential:
                channel = "cpu0"
            if channel is not None:
                link["channel"] = channel
            links.append(link)
    return {"memories": [{"name": name} for name in memories], "processors": processors, "links": links}


def _graph(chance, flavour, document):
    memories, working = [memory["name"] for memory in document["machine"]["memories"]], working_memory(document)
    names = [f"v{i}" for i in range(chance.randint(2, 6))]
    document["values"] = [{"id": name, "size": chance.choice((0, 1, 2, 3, 4, 6))} for name in names]
    inputs = chance.sample(names, chance.randint(1, len(names)))
    places = []
    for name in inputs:
        for memory in chance.sample(memories, chance.choice((1, 1, min(2, len(memories))))):
            plain = memory == working and chance.random() < 0.5
            places.append(name if plain else {"value": name, "memory": memory})
    document["inputs"] = places
    document["pinned_inputs"] = [name for name in inputs if chance.random() < 0.15]
    available, tasks = list(inputs), []
    for i in range(chance.randint(2, 6)):
        task = {"id": f"t{i}", "time": chance.choice(TIMES[flavour]), "required": False}
        task["reads"] = chance.sample(available, min(len(available), chance.choice((0, 1, 1, 2, 3))))
        task["writes"] = chance.sample(names, min(len(names), chance.choice((0, 1, 1, 1, 2))))
        if chance.random() < 0.5:
            task["workspace"] = chance.randint(0, 4)
        if chance.random() < 0.4:
            task["in_place"] = True
        if chance.random() < 0.1:
            task["recomputable"] = False
        if chance.random() < 0.3:
            task["parallel"] = {"max": chance.randint(2, 4), "alpha": chance.choice((0, 0.5, 1, 1.0))}
        available += [name for name in task["writes"] if name not in available]
        tasks.append(task)
    orphans = [name for name in names if name not in available]
    if orphans:
        tasks.append({"id": "all", "time": 1, "required": False, "writes": orphans})
    document["tasks"] = tasks


def _capacities(chance, document):
    size = {value["id"]: value["size"] for value in document["values"]}
    working = working_memory(document)
    for memory in document["machine"]["memories"]:
        name = memory["name"]
        resident = document.get("static_memory", 0) if name == working else 0
        for place in document["inputs"]:
            value, where = (place, working) if isinstance(place, str) else (place["value"], place["memory"])
            resident += size[value] if where == name else 0
        if chance.random() < 0.7:
            memory["capacity"] = resident + chance.randint(0, sum(size.values()) + 2)


def _demand(chance, document, drawn):
    """Ask, where every list grants it, for tasks to run and for outputs to be there."""
    for task in document["tasks"]:
        name = task["id"]
        if all(executor.runs.get(name) for executor in drawn) and chance.random() < 0.7:
            task["required"] = True
            if all(executor.runs[name] == 1 for executor in drawn) and chance.random() < 0.5:
                task["once"] = True
    document["outputs"] = [
        {"value": value, "memory": memory}
        for memory, value in sorted(set.intersection(*(executor.complete() for executor in drawn)))
        if chance.random() < 0.4
    ]


class _Executor:
    """Adds steps to a list, each executed to its end before the next is thought of."""

    def __init__(self, chance, document, sequential):
        self.chance, self.sequential = chance, sequential
        machine = document["machine"]
        self.size = {value["id"]: value["size"] for value in document["values"]}
        self.tasks, self.processors, self.links = document["tasks"], machine["processors"], machine["links"]
        self.memories = [memory["name"] for memory in machine["memories"]]
        self.capacity = {memory["name"]: memory.get("capacity") for memory in machine["memories"]}
        working = working_memory(document)
        self.static = {working: document.get("static_memory", 0)}
        self.bytes = {memory: {} for memory in self.memories}
        for place in document["inputs"]:
            value, memory = (place, working) if isinstance(place, str) else (place["value"], place["memory"])
            self.bytes[memory][value] = self.size[value]
        self.pinned = {
            (memory, value)
            for memory in self.memories
            for value in self.bytes[memory]
            if value in document["pinned_inputs"]
        }
        self.runs, self.steps = {}, []

    def complete(self):
        """Every (memory, value) that is there with all its bytes."""
        return {(m, v) for m in self.memories for v, there in self.bytes[m].items() if there == self.size[v]}

    def attempt(self):
        """Add a step, if the one that comes to mind is possible."""
        kind = self.chance.random()
        step = self._run() if kind < 0.5 else self._copy() if kind < 0.9 and self.links else self._drop()
        if step is None:
            return
        if self.steps and not self.sequential and self.chance.random() < 0.08:
            step["after"] = sorted({self.chance.randrange(len(self.steps)) for _ in range(2)})
        self.steps.append(step)

    def _fits(self, memory, size):
        there = self.static.get(memory, 0) + sum(self.bytes[memory].values())
        return self.capacity[memory] is None or there + size <= self.capacity[memory]

    def _some(self, memory, values, share):
        """Draw some of the values that may be freed in that memory."""
        return [v for v in values if (memory, v) not in self.pinned and self.chance.random() < share]

    def _run(self):
        task = self.chance.choice(self.tasks)
        name, writes = task["id"], task.get("writes", [])
        reads = task.get("reads", [])
        on = [self.chance.choice(self.processors)]
        if self.sequential:
            on = self.processors[:1]
        memory = on[0]["memory"]
        if task.get("parallel"):
            beside = [other for other in self.processors if other["memory"] == memory and other is not on[0]]
            most = min(len(beside), task["parallel"]["max"] - 1)
            on += self.chance.sample(beside, self.chance.randint(0, most))
        here = self.bytes[memory]
        if any(here.get(value) != self.size[value] for value in reads):
            return None
        if self.runs.get(name) and not task.get("recomputable", True):
            return None
        drops = self._some(memory, dict.fromkeys([*reads, *writes]), 0.35)
        adds = sum(self.size[value] for value in writes)
        if task.get("in_place"):
            adds = max(0, adds - sum(self.size[value] for value in drops if value in reads))
        if not self._fits(memory, adds + task.get("workspace", 0)):
            return None
        self.runs[name] = self.runs.get(name, 0) + 1
        here.update({value: self.size[value] for value in writes})
        for value in drops:
            del here[value]
        step = {"run": name}
        if on[0] is not self.processors[0] or len(on) > 1 or self.chance.random() < 0.2:
            step["on"] = [processor["name"] for processor in on]
        if drops:
            step["drop"] = drops
        return step

    def _copy(self):
        link = self.chance.choice(self.links)
        source, target = link["source"], link["target"]
        if not self.bytes[source]:
            return None
        value = self.chance.choice(list(self.bytes[source]))
        there, size = self.bytes[source][value], self.size[value]
        free = (source, value) not in self.pinned
        step = {"copy": value, "from": source, "to": target}
        if there != size or (free and size > 1 and not self.sequential and self.chance.random() < 0.5):
            most = min(there, size - 1, size - self.bytes[target].get(value, 0))
            if not free or most < 1:
                return None
            step |= {"bytes": self.chance.randint(1, most), "drop": True}
        elif free and self.chance.random() < 0.5:
            step["drop"] = True
        moved = step.get("bytes", size)
        if not self._fits(target, moved):
            return None
        if "bytes" in step:
            self.bytes[target][value] = self.bytes[target].get(value, 0) + moved
            self.bytes[source][value] -= moved
        else:
            self.bytes[target][value] = size
        if step.get("drop") and ("bytes" not in step or self.bytes[source][value] == 0):
            del self.bytes[source][value]
        return step

    def _drop(self):
        memory = self.chance.choice(self.memories)
        values = self._some(memory, list(self.bytes[memory]), 0.3)
        if not values and self.chance.random() < 0.95:
            return None
        for value in values:
            del self.bytes[memory][value]
        return {"drop": values, "memory": memory}


def world_of(seed, **options):
    """Draw the world with that number."""
    return draw_world(random.Random(f"step lists {seed}"), **options)
