"""Free every value after its last use."""

from .operations import clock, lasts, operation


def _durations(graph, machine, steps):
    """Return how long each run goes on."""
    time, found = clock(graph, machine), {}
    for index, step in enumerate(steps):
        if "run" in step and graph.tasks[step["run"]].parts:
            found[index] = graph.tasks[step["run"]].time
        elif "run" in step:
            (device,) = step["on"]
            found[index] = time(step["run"], device)
            if step.get("paired"):
                pair = operation(graph, device, [steps[index - 1]["run"], step["run"]], frozenset([1]))
                found[index - 1] = found[index] = lasts(graph, machine, time, pair, 1)
    return found


def with_drops(graph, machine, steps):
    """Sort the steps by their starts, and free every value at the end of its last use in each memory.

    A value that is made again has several lives there.
    """
    order = sorted(range(len(steps)), key=lambda index: steps[index]["start"])
    steps = [steps[index] for index in order]
    lasting = _durations(graph, machine, steps)
    last, lives = {}, {}
    of_all = [task for task in graph.tasks.values() if len(task.parts) > 1]
    stay = graph.placeable | {value for task in of_all for value in (*task.reads, *task.writes)}
    for index, step in enumerate(steps):
        if "run" in step and len(graph.tasks[step["run"]].parts) > 1:
            continue
        if "run" in step:
            (device,) = step["on"]
            task = graph.tasks[step["run"]]
            end = step["start"] + lasting[index]
            memory = machine.processors[device]
            made = {(memory, value) for value in task.writes}
            uses = [*((memory, value) for value in task.reads), *made]
        else:
            link = machine.link(step["from"], step["to"])
            end = step["start"] + link.duration(graph.values[step["copy"]]) + link.delay
            made = {(step["to"], step["copy"])}
            uses = [(step["from"], step["copy"]), *made]
        for place in uses:
            lives[place] = lives.get(place, 0) + (place in made)
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
