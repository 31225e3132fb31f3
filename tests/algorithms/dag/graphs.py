"""Small graphs for the tests of this family."""

import random

from remat.plugin import unread_tasks


def document(tasks, **more):
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, **more}


def training(rng, forward, *, most_reads=2, linear=False, most_size=9):
    """A random forward graph, the loss, and a backward task for each forward one that reads what it should."""
    sizes = [rng.randint(1, most_size) for _ in range(forward)]
    before = []
    for i in range(forward):
        if linear or i < 2:
            before.append([i - 1] if i else [])
        else:
            before.append(sorted(rng.sample(range(i), rng.randint(1, min(i, most_reads)))))
    after = [[j for j in range(forward) if i in before[j]] for i in range(forward)]
    tasks = [
        {
            "id": f"f{i}",
            "time": rng.randint(1, 9),
            "size": sizes[i],
            "reads": [f"f{j}" for j in before[i]],
            "phase": "forward",
        }
        for i in range(forward)
    ]
    for i in range(forward - 1, -1, -1):
        reads = [f"f{i}", *(f"f{j}" for j in before[i]), *(f"b{j}" for j in after[i])]
        tasks.append({"id": f"b{i}", "time": rng.randint(1, 9), "size": sizes[i], "reads": reads, "phase": "backward"})
    return document(tasks, outputs=["b0"])


def layered(rng, count):
    """A random graph without phases."""
    tasks = []
    for i in range(count):
        reads = sorted(rng.sample(range(i), min(i, rng.randint(1, 3))))
        tasks.append(
            {"id": f"t{i}", "time": rng.randint(1, 9), "size": rng.randint(1, 9), "reads": [f"t{j}" for j in reads]}
        )
    return document(tasks)


def forward_edges(training_found):
    return [(other, stage) for stage, earlier in enumerate(training_found.before) for other in earlier]


def seeded(seed):
    return random.Random(seed)


def unread_time(model, tasks):
    """Time of the runs that cost nothing in the tables of a plan: the last of them stays, the others are left out."""
    free = unread_tasks(model.graph) & model.graph.recomputable & ~model.graph.once
    return sum(model.graph.time[task].item() for task in tasks if free[task]) / model.time_unit
