"""Instance documents and budgets for the property tests of all algorithms, drawn from a seed.

The module draws every part of a document that an algorithm may not support: places of inputs and outputs, memories
without links, processors of other speeds, disks, parameters in any memory. Figures are small, equal, zero, near 2^62,
or floats over twenty orders of magnitude.
"""

import random

FIGURES = ("small", "small", "small", "equal", "zeros", "huge", "floats", "mixed")
READS = ("input", "output", "saved")
LARGEST = 2**62
"""Largest total of sizes. Documents that exceed it are no instances."""


class Draw:
    """Figures of one character, chances and choices.

    Parameters
    ----------
    seed : str or int
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.sizes, self.times = self.pick(FIGURES), self.pick((*FIGURES, "vast"))
        self.equal = self.random.randint(0, 5)
        self.largest = LARGEST // self.pick([20, 40, 100, 400])

    def chance(self, odds):
        """Once in `odds`."""
        return self.random.randrange(odds) == 0

    def pick(self, choices):
        return self.random.choice(choices)

    def whole(self, least, most):
        return self.random.randint(least, most)

    def some(self, choices, most):
        return self.random.sample(choices, min(self.random.randint(0, most), len(choices)))

    def size(self):
        return int(self._figure(self.sizes, self.largest))

    def time(self):
        return self._figure(self.times, LARGEST)

    def _figure(self, character, most):
        match character:
            case "small":
                return self.whole(0, 6)
            case "equal":
                return self.equal
            case "zeros":
                return self.pick([0, 0, 0, 1])
            case "huge":
                return self.whole(most // 2, most)
            case "floats":
                return min(10.0 ** self.random.uniform(-10, 10), most)
            case "vast":
                return 10.0 ** self.random.uniform(-290, 290)
        return self.pick([0, self.whole(0, 9), self.whole(0, most), self.random.random(), 2**53 + self.whole(0, 9)])

    def seldom(self, document, odds, **values):
        """Once in `odds` for each key: set it to what its function draws."""
        for key, value in values.items():
            if self.chance(odds):
                document[key] = value()


def document(seed, kinds=("chain", "adjoint", "dag", "tree", "join")):
    """Draw an instance document."""
    draw = Draw(seed)
    kind = draw.pick(kinds)
    drawn = {"schema": "remat.instance/3", "kind": kind, **_KINDS[kind](draw)}
    draw.seldom(drawn, 6, static_memory=draw.size)
    return drawn


def machine(draw):
    """Draw a machine: one or several memories, links or none, one or several processors in any of them."""
    memories = [{"name": "device"}, {"name": "host"}, {"name": "disk"}][: draw.pick([1, 1, 2, 2, 2, 2, 2, 3])]
    processors = [{"name": "gpu", "memory": "device"}]
    if draw.chance(3):
        processors[0]["count"] = draw.whole(2, 3)
    if draw.chance(3):
        processors.append({"name": "slow", "memory": "device", "speed": draw.pick([1, 0.5, 0.25, 0.3])})
    if len(memories) > 1 and draw.chance(3):
        processors.append({"name": "cpu", "memory": "host", "speed": draw.pick([1, 0.5, 0.0625])})
    links = []
    for other in memories[1:]:
        near = draw.pick(["device", "device", "host"]) if other["name"] == "disk" else "device"
        links += _links(draw, near, other["name"], processors)
    for memory in memories[1:]:
        draw.seldom(memory, 4, capacity=lambda: draw.size() * draw.whole(0, 4), static=draw.size)
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def _links(draw, one, other, processors):
    """Draw links in both directions, one direction, or none."""
    own = processors[0]["name"] + ("0" if "count" in processors[0] else "")
    channel = draw.pick([None, None, None, "bus", "bus", own])
    links = []
    for source, target in ((one, other), (other, one)):
        link = {"source": source, "target": target}
        draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 5, 0.5, 1000, 1e-10, 1e10]))
        draw.seldom(link, 4, latency=draw.time)
        draw.seldom(link, 10, delay=draw.time)
        links.append(link if channel is None else link | {"channel": channel})
    return draw.pick([links] * 7 + [links[:1], links[1:], []])


def memories_of(drawn):
    """Return the names of a document's memories."""
    return [entry["name"] for entry in drawn.get("machine", {"memories": [{"name": "memory"}]})["memories"]]


def chain(draw):
    """Draw a chain: variants, workspaces, in place, parameters and optimizer states in any memory."""
    drawn = {"input_size": draw.size(), "stages": [_stage(draw) for _ in range(draw.whole(1, 5))]}
    draw.seldom(drawn, 4, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    if draw.chance(3):
        drawn["stages"] = [stage | {"name": draw.pick(["conv", "pool"])} for stage in drawn["stages"]]
    if draw.chance(3):
        for stage in drawn["stages"]:
            draw.seldom(stage, 2, parameter_size=draw.size, optimizer_size=draw.size)
            if stage.get("parameter_size") or stage.get("optimizer_size"):
                draw.seldom(stage, 3, update_time=draw.time, parameter_gradient_size=draw.size)
        draw.seldom(drawn, 2, parameter_memory=lambda: draw.pick([*memories_of(drawn), "any"]))
        draw.seldom(drawn, 2, optimizer_memory=lambda: draw.pick([*memories_of(drawn), "any"]))
        draw.seldom(drawn, 4, master_copy=lambda: True)
    draw.seldom(drawn, 8, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
    return drawn


def _stage(draw):
    stage = {"forward_time": draw.time(), "backward_time": draw.time(), "output_size": draw.size()}
    draw.seldom(stage, 2, saved_size=draw.size)
    draw.seldom(stage, 5, forward_workspace=draw.size, backward_workspace=draw.size, gradient_size=draw.size)
    draw.seldom(stage, 6, saving_workspace=draw.size, saving_forward_time=draw.time)
    draw.seldom(stage, 10, backward_reads=lambda: draw.some(READS, 3))
    draw.seldom(stage, 6, variants=lambda: [_variant(draw) for _ in range(draw.whole(1, 3))])
    return stage


def _variant(draw):
    variant = {}
    draw.seldom(variant, 2, saved_size=draw.size, backward_time=draw.time)
    draw.seldom(variant, 4, saving_forward_time=draw.time, saving_workspace=draw.size, backward_workspace=draw.size)
    return variant


def join(draw):
    """Draw chains that meet in one loss."""
    drawn = {"chains": [_branch(draw) for _ in range(draw.whole(1, 3))]}
    draw.seldom(drawn, 3, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)
    draw.seldom(drawn, 8, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
    draw.seldom(drawn, 3, machine=lambda: machine(draw))
    return drawn


def _branch(draw):
    return {"input_size": draw.size(), "stages": [_stage(draw) for _ in range(draw.whole(1, 3))]}


def adjoint(draw):
    """Draw an adjoint: one to three levels or a machine, tapes, unequal steps."""
    count = draw.whole(1, 8)
    drawn = {"steps": [_step(draw) for _ in range(count)] if draw.chance(3) else count}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time, state_size=draw.size)
    draw.seldom(drawn, 3, adjoint_size=draw.size, tape_size=draw.size)
    if "tape_size" in drawn:
        draw.seldom(drawn, 2, tape_time=draw.time)
    if draw.chance(2):
        drawn["storage"] = [_level(draw, number) for number in range(draw.whole(1, 3))]
        draw.seldom(drawn, 4, initial_state=lambda: draw.pick(drawn["storage"])["name"])
    else:
        draw.seldom(drawn, 2, machine=lambda: machine(draw))
    return drawn


def _step(draw):
    step = {}
    draw.seldom(step, 2, forward_time=draw.time, backward_time=draw.time)
    draw.seldom(step, 3, state_size=draw.size, adjoint_size=draw.size)
    return step


def _level(draw, number):
    level = {"name": f"level{number}"}
    if draw.chance(2):
        level["slots"] = draw.whole(0, 4)
    elif draw.chance(2):
        level["capacity"] = draw.size() * draw.whole(1, 5)
    draw.seldom(level, 2, write_time=draw.time, read_time=draw.time)
    draw.seldom(level, 4, bandwidth=lambda: draw.pick([1, 3, 0.1, 1e9]))
    draw.seldom(level, 5, channel=lambda: draw.pick(["bus", "disk"]))
    return level


def dag(draw):
    """Draw a task graph: inputs and outputs anywhere, alternatives, in-place and parallel tasks."""
    inputs = [f"i{number}" for number in range(draw.whole(0, 3))]
    sizes, tasks = {name: draw.size() for name in inputs}, []
    for number in range(draw.whole(1, 8)):
        reads = draw.some(list(sizes)[-5:], 3)
        written = [f"v{number}{letter}" for letter in "ab"[: draw.pick([1, 1, 1, 1, 2, 0])]]
        sizes |= {name: draw.size() for name in written}
        task = {"id": f"t{number}", "time": draw.time(), "reads": reads, "writes": written}
        draw.seldom(task, 5, workspace=draw.size, required=lambda: False)
        draw.seldom(task, 6, in_place=lambda: True, recomputable=lambda: False)
        draw.seldom(task, 12, parallel=lambda: {"max": draw.whole(1, 3), "alpha": draw.pick([1, 0.5, 0])})
        if task.get("required", True):
            draw.seldom(task, 8, once=lambda: True)
        tasks.append(task)
    makers = [task for task in tasks if task["writes"]]
    if makers and draw.chance(4):
        first = draw.pick(makers)
        other = {"id": "other", "time": draw.time(), "reads": first["reads"][:1], "writes": first["writes"][:1]}
        tasks.append(other | {"required": False})
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()]}
    draw.seldom(drawn, 3, pinned_inputs=lambda: draw.some(inputs, 2))
    if draw.whole(1, 4) > 1:
        drawn["machine"] = machine(draw)
        if draw.chance(8):
            _tie(draw, drawn)
    outputs = draw.some(list(sizes), 3) if draw.chance(2) else []
    drawn |= {"inputs": _places(draw, drawn, inputs), "outputs": _places(draw, drawn, outputs)}
    if draw.chance(6) and inputs:
        drawn["inputs"][0] = {"value": inputs[0], "memory": "any"}
        draw.seldom(drawn["inputs"][0], 3, copies=lambda: 2)
    return drawn


def _tie(draw, drawn):
    """Give processors types, and tie tasks to processors or give them times by type."""
    processors = drawn["machine"]["processors"]
    for number, processor in enumerate(processors):
        processor["type"] = f"type{number % 2}"
    types = sorted({processor["type"] for processor in processors})
    names = [processor["name"] for processor in processors if processor.get("count", 1) == 1]
    for task in drawn["tasks"]:
        if "parallel" not in task:
            draw.seldom(task, 3, time=lambda: {name: draw.time() for name in draw.some(types, 2) or types})
        if names:
            draw.seldom(task, 4, on=lambda: [draw.pick(names)])


def _places(draw, drawn, names):
    """Place values in the first memory or another one; some values occupy two memories."""
    places = []
    for name in names:
        own = draw.some(memories_of(drawn), 2) if draw.chance(3) else []
        places += [{"value": name, "memory": memory} for memory in own] or [name]
    return places


def tree(draw):
    """Draw a tree of any shape, both orientations, on one or several processors or with a disk."""
    count, shape = draw.whole(1, 9), draw.pick(["any", "any", "chain", "star"])
    above = {"chain": lambda node: node - 1, "star": lambda node: 0, "any": lambda node: draw.whole(0, node - 1)}
    label = draw.random.sample(range(count), count)
    parent = [-1] * count
    for node in range(1, count):
        parent[label[node]] = label[above[shape](node)]
    drawn = {"parent": parent, "output_size": [draw.size() for _ in parent]}
    draw.seldom(drawn, 2, workspace=lambda: [draw.size() for _ in parent], time=lambda: [draw.time() for _ in parent])
    draw.seldom(drawn, 3, orientation=lambda: "out")
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    draw.seldom(drawn, 8, parallel=lambda: {"max": 2, "alpha": draw.pick([1, 0.5])})
    return drawn


_KINDS = {"chain": chain, "adjoint": adjoint, "dag": dag, "tree": tree, "join": join}


def budgets(draw, problem, peak):
    """Return budgets, as `remat.solve` takes them: none, tight ones, the lower bound, one byte below it.

    Parameters
    ----------
    draw : Draw
    problem : remat.plugin.Problem
        Without budgets.
    peak : int or None
        Of some schedule without budgets, in the first processor's memory.
    """
    memories, known = problem.machine.memories, problem.memory_bounds
    own = problem.machine.processors[0].memory
    if getattr(problem.instance, "storage", ()):
        own = 1
        most = int(problem.graph.size.max(initial=0)) * draw.whole(1, 5)
        peak = most
    least = 0 if known[own] is None else known[own].size
    most = max(least, 2 * least if peak is None else peak)
    found = {least, max(0, least - 1), least + (most - least) // draw.whole(2, 8), most, max(0, most - 1)}
    chosen = [None, *({memories[own].name: size} for size in draw.random.sample(sorted(found), min(len(found), 2)))]
    others = [number for number in range(len(memories)) if number != own]
    if others and draw.chance(2):
        other = draw.pick(others)
        tight = 0 if known[other] is None else known[other].size
        size = draw.pick([tight, max(0, tight - 1), tight + int(problem.graph.size.max(initial=0)) * draw.whole(0, 3)])
        chosen[-1] = (chosen[-1] or {}) | {memories[other].name: size}
    return chosen
