"""Small instance documents of every kind from a seed: plain `random`, so that a number is all it takes to draw again.

Sizes and times are small, with many zeros and ties, and now and then huge, fractional or of very different magnitude.
"""

import random

KINDS = ("chain", "adjoint", "dag", "tree")
READS = ("input", "output", "saved")
SIZES = (1, 1, 1, 1, 1, 3, 1000, 2**20 + 7, 2**50 + 1, 2**56)
TIMES = (1, 1, 1, 1, 1, 7, 10**10, 2**53 + 1, 0.5, 0.1)
LARGE = 10**6
"""Figures on scales from here on are now and then off by a few units: what rounds cannot tell them apart."""


class Draw:
    """A source of figures on one scale, or (`wild`) each of a magnitude of its own."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.wild = self.chance(12)
        self.scale, self.time_scale = self.pick(SIZES), self.pick(TIMES)

    def chance(self, odds):
        """Once in `odds`."""
        return self.random.randrange(odds) == 0

    def pick(self, choices):
        return self.random.choice(choices)

    def some(self, choices, most):
        count = min(self.random.randint(0, most), len(choices))
        return self.random.sample(choices, count)

    def whole(self, least, most):
        return self.random.randint(least, most)

    def size(self, most=6):
        if self.wild:
            return self.random.randrange(10 ** self.random.randrange(17))
        return self._figure(most, self.scale)

    def time(self, most=6):
        if self.wild:
            return self.random.randrange(10 ** self.random.randrange(17))
        return self._figure(most, self.time_scale)

    def _figure(self, most, scale):
        figure = self.random.randint(0, most) * scale
        return figure + self.random.randint(0, 9) if scale >= LARGE and self.chance(2) else figure

    def seldom(self, document, odds, **values):
        """Once in `odds` for each key: set it to what its function draws."""
        for key, value in values.items():
            if self.chance(odds):
                document[key] = value()


def document(seed):
    """Draw an instance document."""
    draw = Draw(seed)
    kind = draw.pick(KINDS)
    drawn = {"schema": "remat.instance/2", "kind": kind, **_KINDS[kind](draw)}
    draw.seldom(drawn, 5, static_memory=draw.size)
    draw.seldom(drawn, 5, units=lambda: draw.pick([{"time": "unit", "memory": "unit"}, {"time": "ms"}, {"time": "ns"}]))
    draw.seldom(drawn, 10, name=lambda: draw.pick(["a", "två minnen", 'a "name"']))
    return drawn


# --- machines ---------------------------------------------------------------------------------------------------------


def machine(draw):
    """Draw a machine: several processors, or several memories, or both."""
    form = draw.pick(["processors", "host", "host", "host", "disk", "both"])
    memories = [{"name": "device"}]
    processors = [{"name": "gpu", "memory": "device"}]
    if form in ("processors", "both"):
        if draw.chance(2):
            processors[0]["count"] = draw.whole(2, 3)
        else:
            processors.append({"name": "slow", "memory": "device", "speed": draw.pick([1, 0.5, 0.25, 0.3])})
    links = []
    if form != "processors":
        memories.append({"name": "host"})
        links += _links(draw, "device", "host", processors)
        if draw.chance(4):
            processors.append({"name": "cpu", "memory": "host", "speed": draw.pick([1, 0.5, 0.3])})
    if form == "disk":
        memories.append({"name": "disk"})
        links += _links(draw, draw.pick(["host", "device"]), "disk", processors)
    for memory in memories[1:]:
        draw.seldom(memory, 4, capacity=lambda: draw.size(20))
    return {"memories": memories, "processors": processors, **({"links": links} if links else {})}


def _links(draw, one, other, processors):
    """Two links, as a rule: full duplex, on a bus or on a processor's own time."""
    channel = draw.pick(
        [None, None, None, "bus", "bus", processors[0]["name"] if "count" not in processors[0] else "x"]
    )
    links = []
    for source, target in ((one, other), (other, one)):
        link = {"source": source, "target": target}
        draw.seldom(link, 2, bandwidth=lambda: draw.pick([1, 2, 5, 0.5, 1000]))
        draw.seldom(link, 3, latency=draw.time)
        links.append(link if channel is None else link | {"channel": channel})
    return links[: 1 if draw.chance(10) else 2]


def memories_of(drawn):
    """Return the memories' names; a document without a machine has one called `memory`."""
    return [entry["name"] for entry in drawn.get("machine", {"memories": [{"name": "memory"}]})["memories"]]


# --- kinds ------------------------------------------------------------------------------------------------------------


def chain(draw):
    """Draw a chain: variants, workspaces, in place, reads of its own, parameters."""
    plain, count = draw.chance(3), draw.pick([1, 2, 2, 3, 3, 3, 4, 4, 5])
    drawn = {"input_size": draw.size(), "stages": [_stage(draw, plain) for _ in range(count)]}
    if draw.chance(6):
        drawn["stages"] = [drawn["stages"][0] | {"repeat": count}]
    draw.seldom(drawn, 4, loss=lambda: {"time": draw.time(), "workspace": draw.size()}, input_gradient=lambda: False)
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    if draw.chance(3):
        drawn["stages"] = [stage | {"name": draw.pick(["conv", "pool", "conv 3×3"])} for stage in drawn["stages"]]
    if draw.chance(4):
        _add_parameters(draw, drawn)
    if not plain:
        draw.seldom(drawn, 6, in_place=lambda: True, backward_reads=lambda: draw.some(READS, 3))
    return drawn


def _stage(draw, plain):
    stage = {"forward_time": draw.time(), "backward_time": draw.time(), "output_size": draw.size()}
    draw.seldom(stage, 2, saved_size=draw.size)
    draw.seldom(stage, 4, forward_workspace=draw.size, backward_workspace=lambda: draw.size(12))
    draw.seldom(stage, 6, saving_workspace=draw.size, saving_forward_time=draw.time, gradient_size=draw.size)
    if not plain:
        draw.seldom(stage, 10, backward_reads=lambda: draw.some(READS, 3))
        draw.seldom(stage, 6, variants=lambda: [_variant(draw) for _ in range(draw.whole(1, 3))])
    return stage


def _variant(draw):
    variant = {}
    draw.seldom(variant, 2, saved_size=draw.size, backward_time=draw.time)
    draw.seldom(variant, 4, saving_forward_time=draw.time, saving_workspace=draw.size, backward_workspace=draw.size)
    draw.seldom(variant, 8, backward_reads=lambda: draw.some(READS, 3))
    return variant


def _add_parameters(draw, drawn):
    for stage in drawn["stages"]:
        draw.seldom(stage, 2, parameter_size=draw.size, optimizer_size=draw.size)
        draw.seldom(stage, 3, update_time=draw.time, parameter_gradient_size=draw.size)
    if not draw.chance(3):
        drawn["machine"] = machine(draw)
    *_, home = memories_of(drawn)
    draw.seldom(drawn, 2, optimizer_memory=lambda: home)
    draw.seldom(drawn, 3, parameter_memory=lambda: home)
    draw.seldom(drawn, 4, master_copy=lambda: True)


def adjoint(draw):
    """Draw an adjoint: equal steps or not, tapes, storage levels or a machine."""
    count = draw.whole(1, 7)
    drawn = {"steps": [_step(draw) for _ in range(count)] if draw.chance(3) else count}
    draw.seldom(drawn, 2, forward_time=draw.time, backward_time=draw.time, state_size=draw.size)
    draw.seldom(drawn, 3, adjoint_size=draw.size)
    draw.seldom(drawn, 3, tape_size=draw.size)
    if "tape_size" in drawn:
        draw.seldom(drawn, 2, tape_time=draw.time)
    if draw.whole(1, 5) < 3:
        drawn["storage"] = [_level(draw, number) for number in range(draw.pick([1, 2, 2, 3]))]
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
    match draw.whole(0, 3):
        case 0 | 1:
            level["slots"] = draw.whole(0, 4)
        case 2:
            level["capacity"] = draw.size(20)
    draw.seldom(level, 3, write_time=draw.time, read_time=draw.time)
    draw.seldom(level, 4, bandwidth=lambda: draw.whole(1, 5))
    draw.seldom(level, 6, channel=lambda: draw.pick(["bus", "disk"]))
    return level


def dag(draw):
    """Draw a task graph: alternatives, once, in place, parallel tasks, inputs and outputs elsewhere."""
    plain = draw.chance(4)
    inputs = [f"i{number}" for number in range(draw.whole(0, 2))]
    sizes, tasks = {name: draw.size() for name in inputs}, []
    for number in range(draw.whole(1, 7)):
        # Of what came last, rather: a graph with some depth.
        reads = draw.some(list(sizes)[-5:], 3)
        written = [f"v{number}{letter}" for letter in "ab"[: draw.pick([1, 1, 1, 1, 2, 0])]]
        sizes |= {name: draw.size() for name in written}
        tasks.append({"id": f"t{number}", "time": draw.time(), "reads": reads, "writes": written})
        _traits(draw, tasks[-1], plain)
    if not plain:
        _add_alternative(draw, tasks)
        if draw.chance(4):
            draw.random.shuffle(tasks)
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()], "inputs": inputs}
    draw.seldom(drawn, 3, pinned_inputs=lambda: draw.some(inputs, 2))
    draw.seldom(drawn, 2, outputs=lambda: draw.some(list(sizes), 2))
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    if len(memories_of(drawn)) > 1:
        for key in ("inputs", "outputs"):
            drawn[key] = [{"value": name, "memory": "host"} if draw.chance(5) else name for name in drawn.get(key, [])]
    return drawn


def _traits(draw, task, plain):
    draw.seldom(task, 3, workspace=lambda: draw.size(12))
    draw.seldom(task, 6, in_place=lambda: True, recomputable=lambda: False, once=lambda: True)
    if not plain:
        draw.seldom(task, 10, parallel=lambda: {"max": draw.whole(2, 3), "alpha": draw.pick([1, 0.5, 0])})
        if not task.get("once"):
            draw.seldom(task, 4, required=lambda: False)


def _add_alternative(draw, tasks):
    makers = [task for task in tasks if task["writes"]]
    if makers and draw.chance(3):
        first = draw.pick(makers)
        second = {"id": "other", "time": draw.time(), "reads": first["reads"][:1], "writes": first["writes"][:1]}
        tasks.append(second | {"required": False})


def tree(draw):
    """Draw a tree: any shape, both orientations, nodes in any order."""
    count, shape = draw.whole(1, 8), draw.pick(["any", "any", "chain", "star", "bushy"])
    above = {"chain": lambda node: node - 1, "star": lambda node: 0, "bushy": lambda node: (node - 1) // 2}
    above["any"] = lambda node: draw.whole(0, node - 1)
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


_KINDS = {"chain": chain, "adjoint": adjoint, "dag": dag, "tree": tree}
