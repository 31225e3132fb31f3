"""Free every value after its last use."""

from tests.oracles.judging.simulation import clusters

from .operations import clock, lasts, operation


def _durations(graph, machine, steps):
    """Return the duration of each step."""
    time, found = clock(graph, machine), [0] * len(steps)
    for index, step in enumerate(steps):
        if "copy" in step:
            link = machine.link(step["from"], step["to"])
            found[index] = link.duration(graph.values[step["copy"]], graph.ratios.get(step["copy"])) + link.delay
        elif graph.tasks[step["run"]].parts:
            found[index] = graph.tasks[step["run"]].time
        else:
            (device,) = step["on"]
            found[index] = time(step["run"], device)
            if step.get("paired"):
                pair = operation(graph, device, [steps[index - 1]["run"], step["run"]], frozenset([1]))
                found[index - 1] = found[index] = lasts(graph, machine, time, pair, 1)
    return found


def with_drops(graph, machine, steps, *, is_sorted=False):
    """Sort the steps by their starts, and free every value at the end of its last use in each memory.

    The given steps are in an order in which each follows its prerequisites; steps of one instant keep it. A recomputed
    value has several lifetimes in a memory.
    """
    ends = [step["start"] + time for step, time in zip(steps, _durations(graph, machine, steps), strict=True)]
    instant = clusters([*ends, *(step["start"] for step in steps)])
    order = list(range(len(steps)))
    if not is_sorted:
        order.sort(key=lambda index: instant[steps[index]["start"]])
    steps, ends = [steps[index] for index in order], [instant[ends[index]] for index in order]
    last, lives = {}, {}
    of_all = [task for task in graph.tasks.values() if len(task.parts) > 1]
    stay = graph.placeable | {value for task in of_all for value in (*task.reads, *task.writes)}
    for index, step in enumerate(steps):
        end = ends[index]
        for place, is_made in _uses(graph, machine, step):
            lives[place] = lives.get(place, 0) + is_made
            life = (*place, lives[place])
            last[life] = max(last.get(life, (end, index)), (end, index))
    for (memory, value, _), (_, index) in last.items():
        if value in stay:
            continue
        step = steps[index]
        if "run" in step:
            step.setdefault("drop", []).append(value)
        elif memory == step["from"]:
            step["drop"] = True
    return steps


def _uses(graph, machine, step):
    """Return the places that a step uses, and whether it makes what is there then."""
    if "copy" in step:
        return [((step["from"], step["copy"]), False), ((step["to"], step["copy"]), True)]
    task = graph.tasks[step["run"]]
    if len(task.parts) > 1:
        return []
    (device,) = step["on"]
    memory = machine.processors[device]
    return [*(((memory, value), False) for value in task.reads), *(((memory, value), True) for value in task.writes)]
