"""What ends a step of a pipeline: copies of layers add up their gradients, and update their parameters.

Readings of the format where it is brief
----------------------------------------
- A layer's copies are the devices that hold any of its parameters, gradients or optimizer state; without any of these
  it ends with nothing.
- Copies exchange only if there are two at least, and gradients have a size. The exchange waits for the last backward
  (or weight half) of each micro-batch, and an update for that exchange, or else for those of its own device.
- A round of the ring lasts as long as its slowest link: latency + delay + bytes / (copies x bandwidth).
- Updates come behind the order of their device: of the stage whose last backward stands first there before others, of a
  stage the last layer first; where no backward runs comes last, from the first layer on.
- An exchange takes all its ways at once, from when all are free that were asked for before; of what can begin at one
  instant exchanges are the last, the lowest layer first.
"""

from dataclasses import replace

from .lowering import Task


def ended(document, graph, machine, orders, initial):
    """Return the graph with exchanges and updates, and (device, update) in the order in which they come.

    Parameters
    ----------
    document : dict
    graph : Graph
    machine : Machine
    orders : dict of device to list of operations
    initial : dict of value to list of memories
    """
    layers = [layer for layer in document["layers"] for _ in range(layer.get("repeat", 1))]
    ring = document.get("exchange", "none") == "ring" and document.get("copies", 1) > 1
    tasks, values, updates = dict(graph.tasks), dict(graph.values), {}
    ran = {name: device for device, operations in orders.items() for op in operations for name in op.tasks}
    for number, layer in enumerate(layers, 1):
        own = [f"{letter}{number}" for letter in "wgo" if f"{letter}{number}" in graph.values]
        memories = {memory for value in own for memory in initial[value]}
        homes = [device for device, memory in machine.processors.items() if memory in memories]
        time = layer.get("update_time", 0)
        exchanged = ring and len(homes) > 1 and f"g{number}" in own
        if not homes or not (time or exchanged):
            continue
        marks = {home: [] for home in homes}
        for batch in range(sum(name.startswith(f"B{number}.") for name in graph.tasks)):
            half = f"W{number}.{batch}" if f"W{number}.{batch}" in tasks else f"B{number}.{batch}"
            values[f"d{number}.{batch}"] = 0
            tasks[half] = replace(tasks[half], writes=(*tasks[half].writes, f"d{number}.{batch}"))
            marks[ran[half]].append(f"d{number}.{batch}")
        if exchanged:
            values[f"r{number}"] = 0
            parts = tuple(((f"g{number}", *marks[home]), (f"r{number}",), home) for home in homes)
            every = (f"g{number}", *(mark for home in homes for mark in marks[home]))
            took = _around(machine, homes, graph.values[f"g{number}"])
            tasks[f"A{number}"] = Task(took, every, (f"r{number}",), once=True, recomputable=False, parts=parts)
        for index, home in enumerate(homes if time else []):
            reads = (*own, *([f"r{number}"] if exchanged else marks[home]))
            updates[number, home] = f"U{number}.{index}"
            tasks[f"U{number}.{index}"] = Task(time, reads, (), once=True, recomputable=False, on=(home,))
    return replace(graph, tasks=tasks, values=values), _in_turn(orders, updates)


def channels(machine, task):
    """Return the channels that an exchange holds."""
    homes = [place for _, _, place in task.parts]
    pairs = zip(homes, homes[1:] + homes[:1], strict=True) if len(homes) > 1 else ()
    return list(
        dict.fromkeys(name for pair in pairs for name in (machine.link(*pair).channel, *machine.link(*pair).also))
    )


def _around(machine, homes, size):
    """Return the time of 2 (r - 1) rounds."""
    count, rounds = len(homes), []
    for pair in zip(homes, homes[1:] + homes[:1], strict=True):
        link = machine.link(*pair)
        took = link.latency + link.delay
        if link.bandwidth is not None:
            whole = isinstance(link.bandwidth, int) and size % (count * link.bandwidth) == 0
            took += size // (count * link.bandwidth) if whole else size / (count * link.bandwidth)
        rounds.append(took)
    return 2 * (count - 1) * max(rounds)


def _in_turn(orders, updates):
    found = []
    for device, operations in orders.items():
        last, of_stage = {}, {}
        for index, operation in enumerate(operations):
            for stage, layers, backward in operation.passes:
                of_stage[stage] = layers
                last[stage] = index if backward else last.get(stage, -1)
        for stage in sorted((one for one in of_stage if last[one] >= 0), key=lambda one: last[one]):
            found += [(device, (layer, device)) for layer in reversed(of_stage[stage])]
        found += [(device, key) for key in sorted(updates) if key[1] == device]
    return [(device, updates[key]) for device, key in dict.fromkeys(found) if key in updates]
