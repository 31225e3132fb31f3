"""Lower task graphs and task trees, and repeat a graph for each sample of a stream."""

from dataclasses import replace

from .machines import machine
from .records import Graph, Task


def lower_dag(document, on):
    first = on.first
    own = machine(document)
    free = {} if "any" in own.memories else _placed_by_the_schedule(document)
    values = {value["id"]: value["size"] for value in document.get("values", [])}
    tasks = {}
    for given in document["tasks"]:
        writes = given.get("writes", [])
        if "size" in given:
            values[given["id"]] = given["size"]
            writes = [given["id"]]
        parts = tuple(
            (tuple(part.get("reads", [])), tuple(part.get("writes", [])), part.get("memory"))
            for part in given.get("parts") or []
        )
        reads = given.get("reads", [])
        if parts:
            reads, writes = ([name for part in parts for name in part[which]] for which in (0, 1))
        tasks[given["id"]] = Task(
            _least_time(given, on),
            tuple(dict.fromkeys(reads)),
            tuple(dict.fromkeys(writes)),
            given.get("workspace", 0),
            given.get("in_place", False),
            given.get("required", True),
            given.get("recomputable", True),
            given.get("once", False),
            given.get("parallel"),
            on=given.get("on") and tuple(given["on"]),
            times=given["time"] if isinstance(given["time"], dict) else None,
            parts=parts,
            busy=given.get("busy", False),
        )

    def located(entries):
        if free:
            entries = [entry for entry in entries if isinstance(entry, str) or entry.get("memory") != "any"]
        return [
            (entry, first) if isinstance(entry, str) else (entry["value"], entry.get("memory") or first)
            for entry in entries
        ]

    return Graph(
        tasks,
        values,
        located(document.get("inputs", [])),
        frozenset(document.get("pinned_inputs", [])) - set(free),
        located(document.get("outputs", [])),
        document.get("static_memory", 0),
        frozenset(free),
        max(free.values(), default=1),
        free,
        {value["id"]: value["ratio"] for value in document.get("values", []) if value.get("ratio") is not None},
    )


def _placed_by_the_schedule(document):
    """Return the inputs that the schedule places, with the allowed number of memories."""
    entries = [entry for entry in document.get("inputs", []) if isinstance(entry, dict)]
    return {entry["value"]: entry.get("copies", 1) for entry in entries if entry.get("memory") == "any"}


def _least_time(given, on):
    """Return the time of a task; of times by type the least of those on which it may run."""
    if not isinstance(given["time"], dict):
        return given["time"]
    able = [on.types.get(name, "") for name in given.get("on") or on.processors if name in on.processors]
    times = [given["time"][kind] for kind in able if kind in given["time"]]
    return min(times or given["time"].values())


def lower_tree(document, first):
    parent = document["parent"]
    n = len(parent)
    workspace = document.get("workspace") or [0] * n
    time = document.get("time") or [1] * n
    parallel = document.get("parallel")
    if not isinstance(parallel, list):
        parallel = [parallel] * n
    children = [[] for _ in range(n)]
    for i, above in enumerate(parent):
        if above != -1:
            children[above].append(f"v{i}")
    inward = document.get("orientation", "in") == "in"
    tasks = {}
    for i in range(n):
        own, below = (f"v{i}",), tuple(children[i])
        reads, writes = (below, own) if inward else (own, below)
        tasks[f"T{i}"] = Task(time[i], reads, writes, workspace[i], once=True, parallel=parallel[i])
    roots = [(f"v{i}", first) for i in range(n) if parent[i] == -1]
    return Graph(
        tasks,
        {f"v{i}": size for i, size in enumerate(document["output_size"])},
        [] if inward else roots,
        frozenset(),
        roots if inward else [],
        document.get("static_memory", 0),
    )


def each_sample(graph, samples):
    """Return the graph of so many samples: task t of sample m is ``t.m``; what is there at the start serves all."""
    staying = {value for value, _ in graph.inputs} | graph.placeable
    values = {name: size for name, size in graph.values.items() if name in staying}
    ratios = {name: own for name, own in graph.ratios.items() if name in staying}
    tasks = {}

    def of(names, m):
        return tuple(name if name in staying else f"{name}.{m}" for name in names)

    for m in range(samples):
        values |= {f"{name}.{m}": size for name, size in graph.values.items() if name not in staying}
        ratios |= {f"{name}.{m}": own for name, own in graph.ratios.items() if name not in staying}
        for name, task in graph.tasks.items():
            tasks[f"{name}.{m}"] = replace(task, reads=of(task.reads, m), writes=of(task.writes, m))
    return replace(graph, tasks=tasks, values=values, ratios=ratios)
