"""Task graphs, on one device and on several, streams of samples, and trees."""

from tests.fuzz.kinds.machines import machine, memories_of


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


def devices(draw):
    """Draw a graph on processors of several types: times by type, ties, static bytes, inputs to be placed."""
    drawn = dag(draw)
    drawn["machine"] = _devices(draw)
    memories, processors = memories_of(drawn), drawn["machine"]["processors"]
    types, names = sorted({entry["type"] for entry in processors}), [entry["name"] for entry in processors]
    for task in drawn["tasks"]:
        task.pop("parallel", None)
        if draw.chance(3):
            task["time"] = {of: draw.time() for of in types}
        draw.seldom(task, 6, on=lambda: draw.some(names, 2) or names[:1])
    drawn.pop("pinned_inputs", None)
    inputs = [entry if isinstance(entry, str) else entry["value"] for entry in drawn["inputs"]]
    drawn["inputs"] = [_somewhere(draw, name, [*memories, "any"]) for name in inputs]
    drawn["outputs"] = [entry if isinstance(entry, str) else entry["value"] for entry in drawn.get("outputs", [])]
    drawn["outputs"] = [_somewhere(draw, name, memories) for name in drawn["outputs"]]
    return drawn


def _somewhere(draw, name, memories):
    return {"value": name, "memory": draw.pick(memories)} if draw.chance(3) else name


def _devices(draw):
    """Draw two or three devices with memories of their own, and perhaps a host, all connected or some of them."""
    count, types = draw.whole(2, 3), ["fast", draw.pick(["fast", "slow"])]
    memories = [{"name": f"m{number}"} for number in range(count)]
    processors = [{"name": f"p{k}", "memory": f"m{k}", "type": draw.pick(types)} for k in range(count)]
    for memory in memories:
        draw.seldom(memory, 4, static=draw.size, capacity=lambda: draw.size(40))
    ends = [memory["name"] for memory in memories]
    if draw.chance(3):
        memories.append({"name": "host"})
        ends = ["host", *ends]
    links = []
    for source in ends:
        for target in ends:
            if source != target and (ends[0] != "host" or "host" in (source, target)) and not draw.chance(12):
                links.append({"source": source, "target": target, "bandwidth": draw.pick([1, 2, 5, 0.5, 1000])})
                draw.seldom(links[-1], 5, latency=draw.time, delay=draw.time, channel=lambda: "bus")
    return {"memories": memories, "processors": processors, "links": links}


def stream(draw):
    """Draw a stream of samples: parameters to be placed, tasks by type, all devices connected."""
    drawn = {"stream": draw.whole(1, 6), "machine": _devices(draw)}
    for link in drawn["machine"]["links"]:
        link.pop("channel", None)
    processors = drawn["machine"]["processors"]
    types = sorted({entry["type"] for entry in processors})
    parameters = [f"w{number}" for number in range(draw.whole(1, 3))]
    sizes, tasks = {name: draw.size() for name in parameters}, []
    for number in range(draw.whole(1, 5)):
        made = [name for name in sizes if name[0] == "v"]
        reads = [*draw.some(parameters, 1), *draw.some(made[-3:], 2)]
        last = f"v{number}"
        sizes[last] = draw.size()
        time = {of: draw.time() for of in types} if draw.chance(2) else draw.time()
        tasks.append({"id": f"t{number}", "time": time, "reads": reads, "writes": [last]})
    drawn["inputs"] = [{"value": name, "memory": "any"} for name in parameters]
    for entry in drawn["inputs"]:
        draw.seldom(entry, 4, copies=lambda: 2)
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    return drawn | {"tasks": tasks, "values": values}
