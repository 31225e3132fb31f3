"""Tiny task graphs in one memory in which everything occurs that a task graph may have, and often."""

from __future__ import annotations

import random
from typing import Any

TIMES = {"whole": lambda rng: rng.randint(0, 5), "floating": lambda rng: rng.choice([0, 0.1, 0.2, 0.3, 0.7, 1.5, 1e-9])}


def random_graph(rng: random.Random, most: int) -> dict[str, Any]:
    """Draw at most so many tasks, some of which are alternatives.

    Some alternatives make inputs again, some wait for each other in a circle. Most graphs have a second half that
    needs what the first one has made, last things first: there reruns pay.
    """
    time = TIMES[rng.choice(["whole", "whole", "floating"])]
    inputs = [f"i{index}" for index in range(rng.randint(0, 2))]
    values = [{"id": name, "size": _size(rng)} for name in inputs]
    there = list(inputs)
    tasks: list[dict[str, Any]] = []
    others = rng.choice([0, 0, 1, 2])
    mirrored = rng.random() < 0.7
    count = max(1, most - others) if mirrored else rng.randint(1, max(1, most - others))
    for index in range(count):
        reads = rng.sample(there, min(len(there), rng.choice([0, 1, 1, 2, 3])))
        if mirrored:
            reads = _mirrored(tasks, index, count) if rng.random() < 0.9 else reads
        writes = [f"v{index}{letter}" for letter in "ab"[: rng.choice([1, 1, 1, 1, 2, 0])]]
        values += [{"id": name, "size": _size(rng)} for name in writes]
        tasks.append(_task(rng, f"t{index}", reads, writes, time(rng)))
        there += writes
    for index in range(min(others, most - len(tasks))):
        if there:
            reads, writes = rng.sample(there, rng.randint(0, min(2, len(there)))), rng.sample(there, 1)
            tasks.append(_task(rng, f"other{index}", reads, writes, time(rng)) | {"required": False, "once": False})
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "values": values,
        "tasks": tasks,
        "inputs": inputs,
        "pinned_inputs": [name for name in inputs if rng.random() < 0.25],
        "outputs": [name for name in there if rng.random() < 0.15],
        "static_memory": rng.choice([0, 0, 3]),
    }


def _mirrored(tasks: list[dict[str, Any]], index: int, count: int) -> list[str]:
    """Read what the task before has made; in the second half, as in a backward pass, that of the mirror image, too."""
    read = tasks[index - 1]["writes"][:1] if index else []
    if 2 * index >= count and count - 1 - index < index - 1:
        read = read + tasks[count - 1 - index]["writes"][:1]
    return read


def _size(rng: random.Random) -> int:
    return rng.choice([0, 1, 2, 2, 3, 5, 8])


def _task(rng: random.Random, name: str, reads: list[str], writes: list[str], time: float) -> dict[str, Any]:
    task = {"id": name, "time": time, "reads": reads, "writes": writes, "workspace": rng.choice([0, 0, 0, 1, 4])}
    task |= {"in_place": rng.random() < 0.3, "required": rng.random() < 0.7}
    if rng.random() < 0.1:
        task["recomputable"] = False
    elif rng.random() < 0.05:
        task |= {"once": True, "required": True}
    return task
