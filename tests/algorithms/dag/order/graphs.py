"""Random task graphs in one memory, every value with one origin."""

from __future__ import annotations

import random
from typing import Any

UNITS = {"time": "unit", "memory": "unit"}


def document(**body: Any) -> dict[str, Any]:
    return {"schema": "remat.instance/1", "kind": "dag", "name": "drawn", "units": UNITS, **body}


def random_graph(rng: random.Random, tasks: int) -> dict[str, Any]:
    """Workspaces, in-place and multi-output tasks, inputs (some pinned, some unread), outputs, static memory."""
    values, listed, inputs, pinned = [], [], [], []
    for i in range(rng.randint(0, 2)):
        values.append({"id": f"i{i}", "size": rng.randint(0, 9)})
        inputs.append(f"i{i}")
        if rng.random() < 0.4:
            pinned.append(f"i{i}")
    there = list(inputs)
    density = rng.random() * 0.6 + 0.1
    for t in range(tasks):
        recent = there[-6:]
        reads = [v for v in there if rng.random() < density * (1 if v in recent else 0.3)]
        writes = [f"v{t}_{k}" for k in range(rng.choice([1, 1, 1, 2, 0]))]
        values += [{"id": v, "size": rng.randint(0, 12)} for v in writes]
        workspace = rng.choice([0, 0, rng.randint(0, 9)])
        task = {"id": f"T{t}", "time": rng.randint(0, 4), "reads": reads, "writes": writes, "workspace": workspace}
        listed.append(task | {"in_place": rng.random() < 0.3})
        there += writes
    outputs = [v for v in there if rng.random() < 0.15]
    return document(
        values=values,
        tasks=listed,
        inputs=inputs,
        pinned_inputs=pinned,
        outputs=outputs,
        static_memory=rng.randint(0, 3),
    )


def random_series_parallel(rng: random.Random, tasks: int) -> dict[str, Any]:
    """A series-parallel order of tasks, one value for each pair of neighbours (data on the edges)."""
    parts: list[tuple[list[int], list[int]]] = [([t], [t]) for t in range(tasks)]  # first and last tasks
    edges = []
    while len(parts) > 1:
        one = parts.pop(rng.randrange(len(parts)))
        other = parts.pop(rng.randrange(len(parts)))
        if rng.random() < 0.6:
            edges += [(a, b) for a in one[1] for b in other[0]]
            parts.append((one[0], other[1]))
        else:
            parts.append((one[0] + other[0], one[1] + other[1]))
    # The numbers need not be topological: values are listed by name only.
    values = [{"id": f"e{a}_{b}", "size": rng.randint(0, 20)} for a, b in edges]
    listed = []
    for t in range(tasks):
        reads = [f"e{a}_{b}" for a, b in edges if b == t]
        writes = [f"e{a}_{b}" for a, b in edges if a == t]
        if rng.random() < 0.3:
            values.append({"id": f"o{t}", "size": rng.randint(0, 9)})
            writes.append(f"o{t}")
        task = {"id": f"T{t}", "time": 1, "reads": reads, "writes": writes, "workspace": rng.choice([0, 0, 7, 15])}
        listed.append(task | {"in_place": rng.random() < 0.2})
    outputs = [v["id"] for v in values if str(v["id"]).startswith("o") and rng.random() < 0.5]
    return document(values=values, tasks=listed, outputs=outputs)


def width(branches: int, length: int) -> dict[str, Any]:
    """Independent chains with pseudo-random sizes: the number of down-sets is (length + 1)^branches."""
    tasks = []
    for b in range(branches):
        for i in range(length):
            reads = [f"T{b}_{i - 1}"] if i else []
            tasks.append({"id": f"T{b}_{i}", "time": 1, "reads": reads, "size": (b * 7919 + i * 104729) % 97 + 1})
    last = [f"T{b}_{length - 1}" for b in range(branches)]
    tasks.append({"id": "end", "time": 1, "reads": last, "size": 1})
    return document(values=[], tasks=tasks, outputs=["end"])
