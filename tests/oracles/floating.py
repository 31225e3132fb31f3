"""The best floating schedule of a tiny chain, by plain recursion on exact bytes (see `rotor-float` for the class)."""

import math
from functools import cache

from . import lowering


def floating_best(document, budget):
    """Return the minimum makespan of the floating schedules of a chain; None if no schedule fits.

    `best(i, k, j, others, tape)` is the time to run the backwards j..k (0-based; the loss has the number of stages)
    from x_i, with `others` bytes held elsewhere throughout; `tape` means that x_{j+1} and the saved values of stage j
    also stay in memory until the backward of j has run. Every run's bytes are counted in full.

    Only for chains in which every backward reads input, output and saved values, and nothing runs in place.
    """
    graph = lowering.lower(document)
    tasks, size = graph.tasks, graph.values
    stages = sum(name.startswith("Fe") for name in tasks)
    for i in range(1, stages + 1):
        if set(tasks[f"B{i}"].reads) != {f"y{i}", f"x{i - 1}", f"x{i}", f"s{i}"} or tasks[f"B{i}"].in_place:
            raise ValueError("the class is stated for default chains only")

    def fits(task, held):
        """Return whether a task fits next to the held bytes, which include its reads."""
        written = sum(size[value] for value in task.writes)
        return held + written + task.workspace <= budget

    @cache
    def best(i, k, j, others, tape):
        gradient = 0 if j == stages else size[f"y{j + 1}"]
        held = others + gradient + (size[f"x{j + 1}"] + size[f"s{j + 1}"] if tape else 0)
        start = size[f"x{i}"]
        if i == j:
            return whole_leaf(i, others, held, tape)
        options = []
        if i == k:
            options.append(save(i, j, others, held, tape))
        elif fits(tasks[f"F{i + 1}"], held + start):
            options.append(tasks[f"F{i + 1}"].time + best(i + 1, k, j, others, tape))
        if fits(tasks[f"F{i + 1}"], held + start):
            for middle in range(k + 1, j + 1):
                inner = best(i + 1, middle, j, others + start, tape)
                options.append(tasks[f"F{i + 1}"].time + inner + best(i, k, middle - 1, others, False))
        options.extend(leave_tapes(i, k, j, others, held, tape))
        return min(options, default=math.inf)

    def whole_leaf(i, others, held, tape):
        if i == stages:
            return tasks["loss"].time if fits(tasks["loss"], others + size[f"x{i}"]) else math.inf
        forward, backward = tasks[f"Fe{i + 1}"], tasks[f"B{i + 1}"]
        if not tape and not fits(forward, held + size[f"x{i}"]):
            return math.inf
        reads = sum(size[value] for value in backward.reads)
        return (0 if tape else forward.time) + backward.time if fits(backward, others + reads) else math.inf

    def save(i, j, others, held, tape):
        forward, backward = tasks[f"Fe{i + 1}"], tasks[f"B{i + 1}"]
        reads = sum(size[value] for value in backward.reads)
        if not fits(forward, held + size[f"x{i}"]) or not fits(backward, others + reads):
            return math.inf
        inner = best(i + 1, i + 1, j, others + size[f"x{i}"] + size[f"s{i + 1}"], tape)
        return forward.time + inner + backward.time

    def leave_tapes(i, k, j, others, held, tape):
        """Save stage m during the forward sweep, and drop its input."""
        time, kept = 0, held + size[f"x{i}"]
        for m in range(i + 1, j):
            before = tasks[f"F{m}"]
            if not fits(before, kept + (size[f"x{m - 1}"] if m - 1 > i else 0)):
                return
            time += before.time
            saving = tasks[f"Fe{m + 1}"]
            if m >= k and fits(saving, kept + size[f"x{m}"]):
                inner = best(m + 1, m + 1, j, others + size[f"x{i}"] + size[f"s{m + 1}"], tape)
                yield time + saving.time + inner + best(i, k, m, others, True)

    found = best(0, 0, stages, graph.static, False)
    return None if found == math.inf else found
