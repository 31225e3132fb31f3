"""Task graphs on one device and on several, streams of samples, and trees."""

from tests.fuzz.kinds.machines import BANDWIDTHS, machine, memories_of


def dag(draw):
    """Draw a task graph: alternatives, once, in place, parallel tasks, inputs and outputs elsewhere."""
    plain = draw.chance(4)
    inputs = [f"i{number}" for number in range(draw.whole(0, 2))]
    count = draw.pick([1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 10])
    sizes, tasks = {name: draw.size() for name in inputs}, []
    for number in range(count):
        # Mostly of what came last: a graph of some depth.
        reads = draw.some(list(sizes)[-5:], 3)
        written = [f"v{number}{letter}" for letter in "ab"[: draw.pick([1, 1, 1, 1, 2, 0])]]
        sizes |= {name: draw.size() for name in written}
        tasks.append({"id": f"t{number}", "time": draw.time(), "reads": reads, "writes": written})
        add_traits(draw, tasks[-1], plain)
    if not plain:
        _add_alternative(draw, tasks)
        if draw.chance(4):
            draw.random.shuffle(tasks)
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()], "inputs": inputs}
    draw.seldom(drawn, 3, pinned_inputs=lambda: draw.some(inputs, 2))
    draw.seldom(drawn, 2, outputs=lambda: draw.some(list(sizes), 2))
    draw.seldom(drawn, 2, machine=lambda: machine(draw))
    _place_ends(draw, drawn)
    return drawn


def hosted(draw):
    """Draw a graph with a host or a disk that holds inputs and must hold outputs."""
    drawn = dag(draw)
    drawn["machine"] = machine(draw, draw.pick(["host", "host", "disk", "both"]))
    drawn["inputs"], drawn["outputs"] = (
        [_value(entry) for entry in drawn.get(key, [])] for key in ("inputs", "outputs")
    )
    _place_ends(draw, drawn)
    return drawn


def wide(draw):
    """Draw a graph of mostly independent tasks for several processors that share one memory."""
    tasks, sizes = [], {}
    for number in range(draw.pick([3, 4, 5, 5, 6, 6, 8, 12, 18])):
        reads = draw.some(list(sizes), 2) if draw.chance(2) else []
        sizes[f"v{number}"] = draw.size(50)
        tasks.append({"id": f"t{number}", "time": draw.time(19), "reads": reads, "writes": [f"v{number}"]})
        add_traits(draw, tasks[-1], not draw.chance(6))
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()]}
    drawn["outputs"] = draw.some(list(sizes), len(sizes))
    drawn["machine"] = machine(draw, draw.pick([*["processors"] * 6, "both", "apart"]))
    _place_ends(draw, drawn)
    return drawn


def forward_backward(draw):
    """Draw a graph of a forward that is a chain and its backward, as programs that train have it."""
    count = draw.whole(1, 5)
    names = ["x0", *(f"x{k}" for k in range(1, count + 1)), *(f"y{k}" for k in range(count + 1))]
    sizes = {name: draw.size() for name in names}
    tasks = [
        {"id": f"f{k}", "time": draw.time(), "reads": [f"x{k - 1}"], "writes": [f"x{k}"], "phase": "forward"}
        for k in range(1, count + 1)
    ]
    tasks.append({"id": "loss", "time": draw.time(), "reads": [f"x{count}"], "writes": [f"y{count}"], "phase": "loss"})
    for k in range(count, 0, -1):
        reads = [f"x{k - 1}", f"x{k}", f"y{k}"]
        task = {"id": f"b{k}", "time": draw.time(), "reads": reads, "writes": [f"y{k - 1}"]}
        tasks.append(task | {"phase": "backward"})
    for task in tasks:
        draw.seldom(task, 4, workspace=draw.size)
    drawn = {"tasks": tasks, "values": [{"id": name, "size": size} for name, size in sizes.items()], "inputs": ["x0"]}
    draw.seldom(drawn, 2, machine=lambda: machine(draw), outputs=lambda: ["y0"], pinned_inputs=lambda: ["x0"])
    return drawn


def _value(entry):
    return entry if isinstance(entry, str) else entry["value"]


def _place_ends(draw, drawn):
    """Put some inputs and outputs into other memories than the working memory."""
    memories = memories_of(drawn)
    if len(memories) > 1:
        for key in ("inputs", "outputs"):
            listed = drawn.get(key, [])
            drawn[key] = [{"value": e, "memory": draw.pick(memories[1:])} if draw.chance(5) else e for e in listed]


def add_traits(draw, task, plain):
    """Draw a task's optional fields, beyond time, reads and writes."""
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


def disk_tree(draw):
    """Draw a tree with a disk for its files, or on several processors."""
    return tree(draw) | {"machine": machine(draw, draw.pick(["host", "host", "processors"]))}


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
    drawn["inputs"] = [_somewhere(draw, _value(entry), [*memories, "any"]) for entry in drawn["inputs"]]
    drawn["outputs"] = [_somewhere(draw, _value(entry), memories) for entry in drawn.get("outputs", [])]
    return drawn


def _somewhere(draw, name, memories):
    return {"value": name, "memory": draw.pick(memories)} if draw.chance(3) else name


def _devices(draw):
    """Draw two or three devices with separate memories, and maybe a host, fully or partly connected."""
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
                links.append({"source": source, "target": target, "bandwidth": draw.pick(BANDWIDTHS)})
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
