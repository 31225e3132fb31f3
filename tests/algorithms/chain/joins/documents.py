"""Joins as other documents see them."""

import remat
from remat.instance.lowering import lower


def as_dag(document):
    """Write the task graph of an instance out as a `dag` document."""
    instance = remat.load(document)
    graph = lower(instance)
    names = list(graph.values)
    tasks = []
    for number, (name, reads, writes) in enumerate(
        zip(graph.tasks, graph.reads.to_lists(), graph.writes.to_lists(), strict=True)
    ):
        task = {
            "id": name,
            "time": graph.time[number].item(),
            "reads": [names[value] for value in reads],
            "writes": [names[value] for value in writes],
            "workspace": int(graph.workspace[number]),
        }
        for key, default in (("in_place", False), ("required", True), ("recomputable", True), ("once", False)):
            if bool(getattr(graph, key)[number]) != default:
                task[key] = not default
        tasks.append(task)
    written = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": name, "size": int(size)} for name, size in zip(names, graph.size, strict=True)],
        "tasks": tasks,
        "inputs": [names[place.value] for place in graph.inputs],
        "outputs": [names[place.value] for place in graph.outputs],
        "static_memory": graph.static_memory,
    }
    return written | {key: document[key] for key in ("units", "machine") if key in document}


def of_long_steps():
    """Return a time loop as a graph: the runs of a schedule in 4 bytes take more time than 64 bits hold."""
    long, count = 2**59 + 1, 7
    steps = range(1, count + 1)
    values = [{"id": f"x{k}", "size": 1} for k in range(count + 1)] + [
        {"id": f"g{k}", "size": 1} for k in range(count + 1)
    ]
    forwards = [{"id": f"F{k}", "time": long, "reads": [f"x{k - 1}"], "writes": [f"x{k}"]} for k in steps]
    backwards = [
        {"id": f"B{k}", "time": 4, "reads": [f"g{k}", f"x{k - 1}"], "writes": [f"g{k - 1}"]} for k in reversed(steps)
    ]
    loss = {"id": "loss", "time": 0, "reads": [f"x{count}"], "writes": [f"g{count}"]}
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": values,
        "inputs": ["x0"],
        "pinned_inputs": ["x0"],
        "outputs": ["g0"],
        "tasks": [*forwards, loss, *backwards],
    }
