"""Energy of a plan, read from the documents alone; and the least energy of any schedule of a tiny instance."""

import heapq
import itertools
import math
from fractions import Fraction

from . import offloading


def energy_of(document, steps):
    """Add the energy of each run and each copy of a plan of a task graph; exactly, as a fraction."""
    machine = document["machine"]
    processors = {}
    for entry in machine["processors"]:
        count = entry.get("count", 1)
        for name in [entry["name"]] if count == 1 else [f"{entry['name']}{k}" for k in range(count)]:
            processors[name] = entry
    reference = next(name for name, entry in processors.items() if entry.get("speed", 1) == 1)
    tasks = {task["id"]: task for task in document["tasks"]}
    sizes = {value["id"]: value["size"] for value in document.get("values", ())}
    sizes |= {task["id"]: task["size"] for task in document["tasks"] if "size" in task}
    total = Fraction(0)
    for step in steps:
        if "run" in step:
            energy = tasks[step["run"]].get("energy", 0)
            if isinstance(energy, dict):
                energy = energy[processors[(step.get("on") or [reference])[0]].get("type", "")]
            total += Fraction(energy)
        elif "copy" in step:
            link = next(
                link for link in machine["links"] if (link["source"], link["target"]) == (step["from"], step["to"])
            )
            amount = step.get("bytes", sizes[step["copy"]])
            total += Fraction(link.get("energy", 0)) * amount
    return total


def least_energy(document, budget=None, deadline=None):
    """Return the least energy of all schedules of a task graph that end by a deadline, or None without one.

    Schedules of whole values on the first processor, as `offloading` describes them, with any recomputation. Each state
    is kept with all pairs of energy and time that no other pair dominates.
    """
    space = offloading._Space(document, budget, recompute=True)
    costs = _costs(document, space)
    start = space.start()
    if not space.fits((space.inputs, *start[1:])):
        return None
    end = math.inf if deadline is None else deadline
    queue, known, ticket = [(0, 0, 0, start)], {start: [(0, 0)]}, itertools.count(1)
    while queue:
        energy, time, _, state = heapq.heappop(queue)
        if (energy, time) not in known[state]:
            continue
        if space.finished(state):
            return energy
        for cost, passed, after in _moves(space, costs, state):
            reached = energy + cost, time + passed
            if reached[1] + space.to_go(after) > end:
                continue
            others = known.setdefault(after, [])
            if not any(one <= reached[0] and other <= reached[1] for one, other in others):
                others[:] = [pair for pair in others if pair[0] < reached[0] or pair[1] < reached[1]]
                others.append(reached)
                heapq.heappush(queue, (*reached, next(ticket), after))
    return None


def _costs(document, space):
    """Return the energy of each step of a space: it lists the runs of all tasks, then the copies link by link."""
    machine = document["machine"]
    kind = machine["processors"][0].get("type", "")
    tasks = [task.get("energy", 0) for task in document["tasks"]]
    tasks = [Fraction(energy[kind] if isinstance(energy, dict) else energy) for energy in tasks]
    copies = [Fraction(link.get("energy", 0)) * size for link in machine["links"] for size in space.size]
    runs = [step.task for step in space.steps if step.task >= 0]
    return [tasks[task] for task in runs] + copies


def _moves(space, costs, state):
    """Yield (energy, time that passes, next state)."""
    resident, _, _, running = state
    reading = writing = 0
    for _, number in running:
        reading |= space.steps[number].reads
        writing |= space.steps[number].writes
    if running:
        for passed, after in space._wait(state):
            yield 0, passed, after
    busy = {space.steps[number].resource for _, number in running}
    for number, done, place in space._startable(state):
        step = space.steps[number]
        if step.resource in busy or step.reads & ~resident or step.reads & writing or step.writes & (reading | writing):
            continue
        began = tuple(sorted((*running, (step.duration, number))))
        for dropped in space._making_room(resident, began, resident & ~(reading | writing | step.reads | space.pinned)):
            after = (resident & ~dropped, done, place, began)
            if step.duration == 0:
                for passed, then in space._wait(after):
                    yield costs[number], passed, then
            else:
                yield costs[number], 0, space._tidy(*after)
