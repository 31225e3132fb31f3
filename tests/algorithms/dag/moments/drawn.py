"""Small documents with all that programs of moments know, and what is possible with them."""

import random
from fractions import Fraction

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.moments.bounds import Setting
from tests.oracles import offloading, search


def graph(draw, count, *, alternatives=False, host=False):
    """Return a graph of so many tasks, perhaps with a few more that need not run."""
    sizes, inputs = {}, []
    for number in range(draw.randint(0, 2)):
        inputs.append(f"i{number}")
        sizes[inputs[-1]] = draw.randint(0, 5)
    tasks = []
    for number in range(count):
        readable = sorted(sizes)
        reads = draw.sample(readable, min(len(readable), draw.randint(0 if number < 2 else 1, 2)))
        writes = [f"v{number}{letter}" for letter in "ab"[: draw.choice([1, 1, 1, 1, 2])]]
        sizes |= {value: draw.choice([0, 1, 1, 2, 3, 5]) for value in writes}
        task = {"id": f"t{number}", "time": draw.randint(1, 6), "reads": reads, "writes": writes}
        seldom(draw, task, 0.2, "workspace", draw.randint(1, 3))
        seldom(draw, task, 0.25, "in_place", True)
        seldom(draw, task, 0.1, "recomputable", False)
        seldom(draw, task, 0.1, "once", True)
        if alternatives and "once" not in task:
            seldom(draw, task, 0.2, "required", False)
        tasks.append(task)
    for number in range(draw.randint(1, 2) if alternatives else 0):
        first = draw.choice(tasks)
        other = {"id": f"other{number}", "time": draw.randint(1, 6), "required": False}
        other |= {"reads": first["reads"][: draw.randint(0, 2)], "writes": first["writes"][: draw.randint(1, 2)]}
        tasks.append(other)
    outputs = draw.sample(sorted(sizes), min(len(sizes), draw.randint(0, 2)))
    if set(outputs) <= set(inputs) and not any(task.get("required", True) for task in tasks):
        del tasks[0]["required"]  # Something must run.
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "inputs": inputs, "outputs": outputs}
    document["values"] = [{"id": value, "size": size} for value, size in sizes.items()]
    seldom(draw, document, 0.3, "static_memory", 1)
    if host:
        document["inputs"] = [{"value": v, "memory": "host"} if draw.random() < 0.5 else v for v in inputs]
        document["outputs"] = [{"value": v, "memory": "host"} if draw.random() < 0.4 else v for v in outputs]
        document["machine"] = machine(draw)
    elif inputs:
        seldom(draw, document, 0.3, "pinned_inputs", [draw.choice(inputs)])
    return document


def seldom(draw, document, odds, key, value):
    if draw.random() < odds:
        document[key] = value


def training(draw, depth, *, host=False):
    """Return forward tasks, and backward tasks that read them in reverse, with some more reads."""
    reads = {}
    for i in range(depth):
        reads[f"f{i}"] = {f"f{i - 1}"} if i else set()
        if i > 1 and draw.random() < 0.3:
            reads[f"f{i}"].add(f"f{draw.randrange(i - 1)}")
    for i in reversed(range(depth)):
        reads[f"b{i}"] = {f"f{i}", *([f"b{i + 1}"] if i < depth - 1 else [])}
        if draw.random() < 0.3:
            reads[f"b{i}"].add(f"f{draw.randrange(depth)}")
    tasks = []
    for name, read in reads.items():
        task = {"id": name, "time": draw.randint(1, 6), "size": draw.choice([0, 1, 1, 2, 3, 5]), "reads": sorted(read)}
        seldom(draw, task, 0.1, "workspace", 2)
        seldom(draw, task, 0.2, "in_place", True)
        seldom(draw, task, 0.1, "recomputable", False)
        tasks.append(task)
    document = {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["b0"]}
    return document | ({"machine": machine(draw)} if host else {})


def chain(draw, length, *, host=False):
    """Return a chain, whose forwards are alternatives."""
    stages = []
    for _ in range(length):
        stage = {"forward_time": draw.randint(1, 5), "backward_time": draw.randint(1, 6)}
        stage |= {"output_size": draw.randint(0, 4), "saved_size": draw.randint(0, 4)}
        seldom(draw, stage, 0.3, "saving_forward_time", draw.randint(1, 6))
        seldom(draw, stage, 0.3, "backward_workspace", draw.randint(0, 3))
        stages.append(stage)
    document = {"schema": "remat.instance/1", "kind": "chain", "input_size": draw.randint(0, 3), "stages": stages}
    return document | ({"machine": machine(draw)} if host else {})


def none_fits():
    """Return a graph that no order fits into 8 bytes, although no task needs more.

    While c runs, b is live, and also a, which d reads and which is not recomputable.
    """
    tasks = [
        {"id": "a", "time": 1, "size": 3, "recomputable": False},
        {"id": "b", "time": 1, "size": 3, "reads": ["a"]},
        {"id": "c", "time": 1, "size": 3, "reads": ["b"]},
        {"id": "d", "time": 1, "size": 1, "reads": ["a", "c"]},
    ]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "outputs": ["d"]}


def machine(draw):
    """Return a device and a host, bounded or not, with links of all sorts."""
    host = {"name": "host", **({"capacity": draw.randint(2, 8)} if draw.random() < 0.3 else {})}
    channels = draw.choice([("o", "i"), ("o", "i"), ("b", "b"), ("o", "gpu"), ("gpu", "gpu")])
    links = []
    for source, target, channel in zip(("device", "host"), ("host", "device"), channels, strict=True):
        link = {"source": source, "target": target, "channel": channel}
        seldom(draw, link, 0.9, "bandwidth", draw.choice([1, 1, 2, 3]))
        seldom(draw, link, 0.3, "latency", draw.randint(1, 2))
        links.append(link)
    memories, gpu = [{"name": "device"}, host], {"name": "gpu", "memory": "device"}
    if draw.random() < 0.1:
        memories.append({"name": "disk"})
        links += [
            {"source": "host", "target": "disk", "bandwidth": draw.choice([1, 2]), "channel": draw.choice(["o", "x"])},
            {"source": "disk", "target": "host", "bandwidth": draw.choice([1, 2]), "channel": draw.choice(["i", "y"])},
        ]
    return {"memories": memories, "processors": [gpu], "links": links}


def drawn(seed, *, host):
    """Return a document, its budget, and whether to speak of its listed order only."""
    draw = random.Random(seed)
    kind = draw.choice([graph, graph, training, chain])
    if kind is graph:
        document = graph(
            draw, draw.randint(3, 4) if host else draw.randint(3, 7), alternatives=seed % 2 == 1, host=host
        )
    else:
        document = kind(draw, draw.randint(1, 2) if host else draw.randint(2, 4), host=host)
    problem = make_problem(remat.load(document))
    bound = problem.memory_bounds[0]
    least = bound.size if bound else 0
    return document, draw.randint(least, max(least, sum(problem.graph.size.tolist()))), draw.random() < 0.5


def setting_of(document, budget, *, listed):
    problem = make_problem(remat.load(document))
    memory = problem.machine.memories[problem.machine.processors[0].memory].name
    setting = Setting.of(make_problem(remat.load(document), budget={memory: budget}), listed=listed)
    assert setting is not None
    return setting


def chained(draw, setting, count):
    """Return so many tasks, or fewer, each before the next in every schedule of the class."""
    chosen = [draw.choice(setting.facts.order)]
    while len(chosen) < count:
        later = [task for task in setting.facts.order if setting.order.before(task)[chosen[-1]] is True]
        if not later:
            break
        chosen.append(draw.choice(later))
    return chosen


def best_of_all(document, budget, setting, *, listed, states=None):
    """Return the minimum makespan of the class by exhaustive search, or None without a schedule."""
    names = setting.problem.graph.tasks
    order = [names[task] for task in setting.facts.order] if listed else None
    if setting.behind is not None:
        return offloading.least_makespan(document, budget, recompute=True, states=states, order=order)
    return search.chain_best(document, budget, order)


def in_units(setting, makespan):
    """Return the units on top of what must run; infinite for None."""
    if makespan is None:
        return float("inf")
    return (Fraction(makespan) - Fraction(setting.facts.base)) / setting.facts.unit
